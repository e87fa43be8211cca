"""Go and Rust: toolchains that the sandbox does not show by itself, mounted read-only.

The machine's own toolchains may well lie below /usr, which every sandbox shows. Here they are
mounted at /opt, and what is built is built by them: their own paths say so.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.programs.needs import program

if TYPE_CHECKING:
    from tests.programs.conftest import Work

pytestmark = pytest.mark.runtime

GO = "/opt/lib/go"
RUST = "/opt/rust"


def go_volumes() -> list[str]:
    """Debian keeps what is no program of Go in a second directory, which relative links name."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(program("go"))))
    name = os.path.basename(root)
    shared = f"/usr/share/{name}"
    volumes = [f"{root}:{GO}:ro"]
    if os.path.isdir(shared) and root == f"/usr/lib/{name}":
        volumes.append(f"{shared}:/opt/share/{name}:ro")
    return volumes


def rust_volumes() -> list[str]:
    command = [program("rustc"), "--print", "sysroot"]
    root = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return [f"{root}/{name}:{RUST}/{name}:ro" for name in ("bin", "lib")]


def with_tools(directory: str, **variables: str) -> dict[str, dict[str, str]]:
    return {"set": {"PATH": f"{directory}:/usr/bin:/bin", **variables}}


def test_go_build_and_test(work: Work) -> None:
    script = """
        go list -f {{.Dir}} fmt
        go build -o box .
        ./box
        go test -vet=off ./...
    """
    # Debian's go knows where it was installed, and would take its library from there.
    names = {"GOROOT": GO, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOCACHE": "/tmp/cache"}
    env = with_tools(f"{GO}/bin", **names)
    lines = work("go", script, volumes=go_volumes(), env=env).splitlines()
    assert lines[:2] == [f"{GO}/src/fmt", f"{sum(range(1000))} {len(os.sched_getaffinity(0))}"]
    assert lines[-1].split()[:2] == ["ok", "example.org/box/sum"]


def test_cargo_build_and_test(work: Work) -> None:
    script = """
        type -P cargo rustc
        cargo build --offline
        target/debug/box
        cargo test --offline --workspace
    """
    env = with_tools(f"{RUST}/bin", RUSTFLAGS=f"--sysroot={RUST}")
    lines = work("cargo", script, volumes=rust_volumes(), env=env).splitlines()
    assert lines[:3] == [f"{RUST}/bin/cargo", f"{RUST}/bin/rustc", str(sum(range(1000)))]
    assert "test adds ... ok" in lines
