"""The example cases of bundles/: what each holds, what it compiles to, and the index of them all.

A case is a folder: `sandbox.toml` (what is asked for), `host.json` (the recorded host),
`call.json` (command and the caller's environment) and `README.md`; `config.json` is generated.
Nothing of the machine at hand is looked at.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ocisbx.backends.lower import lower
from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from ocisbx.host import Host
from ocisbx.plan import Plan

FOLDER = Path(__file__).resolve().parent.parent / "bundles"

# Stands where a real container has 80 random bits.
CONTAINER_ID = "example"
# Where a bundle has the root that is made for it (config.md, "Root": relative to the bundle).
MADE_ROOT = "rootfs"
# Columns: an object that fits stays on one line (a mount is one); lists are filled like text.
OBJECT_WIDTH = 180
LIST_WIDTH = 100

INDEX = """\
# Example bundles

Each folder is one case: `sandbox.toml` is what the caller asks for, `host.json` the host on which
it was asked (a record of facts, part of the case), `call.json` the command and the part of the
caller's environment that matters, and `config.json` what ocisbx compiles them to. The root that
`root.path` names is made when a container starts, and is not part of an example.

`tools/generate` writes each `config.json` and this file anew; the tests compare them, judge them by
the specification, compile each case for the machine at hand and run it there on every runtime.

    ocisbx run --dry-run --config sandbox.toml --host host.json -- COMMAND   # the case itself
    ocisbx run --dry-run --config sandbox.toml -- COMMAND                    # for your machine
    ocisbx run --dry-run --json -- COMMAND                                   # your machine: `host`

| case | shows | compiled for | ociVersion |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Example:
    """One case, read from its folder."""

    name: str
    title: str
    config: SandboxConfig
    host: Host
    argv: tuple[str, ...]
    environment: Mapping[str, str]


def names() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob("*/sandbox.toml"))


@cache
def read_example(name: str) -> Example:
    """The case called `name`. Raises OSError, ValueError or ConfigError where it is not whole."""
    folder = FOLDER / name
    call = json.loads((folder / "call.json").read_text())
    heading, _, _ = (folder / "README.md").read_text().partition("\n")
    return Example(
        name=name,
        title=heading.removeprefix("# "),
        config=SandboxConfig.from_toml(folder / "sandbox.toml"),
        host=Host.model_validate_json((folder / "host.json").read_text()),
        argv=tuple(call["argv"]),
        environment=call["environment"],
    )


def compile_example(example: Example) -> Plan:
    """The plan of a case on its recorded host."""
    return lower(example.config, resolve(example.config, example.host), example.host)


def config_json(example: Example) -> str:
    """config.json as a bundle of the case would have it, on one line."""
    plan = compile_example(example)
    document = plan.standing_config(
        CONTAINER_ID,
        root=plan.root_directory or MADE_ROOT,
        argv=example.argv,
        environment=plan.payload_environment(example.environment),
    )
    return json.dumps(document, ensure_ascii=False)


def generate(root: Path) -> dict[Path, str]:
    """For tools/generate: each case's config.json below `root`, and the index."""
    examples = [read_example(name) for name in names()]
    documents = {example.name: json.loads(config_json(example)) for example in examples}
    files = {
        root / "bundles" / name / "config.json": pretty(document) + "\n"
        for name, document in documents.items()
    }
    rows = "".join(
        f"| [{example.name}]({example.name}/) | {example.title} | {_compiled_for(example)} "
        f"| {documents[example.name]['ociVersion']} |\n"
        for example in examples
    )
    return files | {root / "bundles" / "README.md": INDEX + rows}


def _compiled_for(example: Example) -> str:
    runtime = compile_example(example).runtime
    who = "root" if example.host.uid == 0 else "a user"
    return f"{who}, {runtime.name} {runtime.version}, {example.host.machine}"


def pretty(value: object, indent: int = 0, used: int = 0) -> str:
    """JSON for reading.

    `indent`: columns before the line; `used`: columns that a key has taken on it.
    """
    line = json.dumps(value, ensure_ascii=False)
    plain = isinstance(value, list) and not any(isinstance(item, dict | list) for item in value)
    if indent + used + len(line) < (LIST_WIDTH if plain else OBJECT_WIDTH):
        return line
    inner, pad = indent + 2, " " * (indent + 2)
    match value:
        case dict():
            keys = {key: json.dumps(key, ensure_ascii=False) for key in value}
            parts = [
                f"{keys[key]}: {pretty(value[key], inner, len(keys[key]) + 2)}" for key in keys
            ]
            body, ends = ",\n".join(pad + part for part in parts), "{}"
        case list():
            parts = [pad + pretty(item, inner) for item in value]
            body, ends = _filled(value, inner) if plain else ",\n".join(parts), "[]"
        case _:
            return line
    return f"{ends[0]}\n{body}\n{' ' * indent}{ends[1]}"


def _filled(values: list[object], indent: int) -> str:
    first, *rest = (json.dumps(value, ensure_ascii=False) for value in values)
    lines = [" " * indent + first]
    for word in rest:
        if len(lines[-1]) + len(word) + 3 <= LIST_WIDTH:
            lines[-1] += f", {word}"
        else:
            lines[-1] += ","
            lines.append(" " * indent + word)
    return "\n".join(lines)
