"""The manual pages of the configuration: every field is there, every example is really parsed."""

import re
from pathlib import Path

import pytest

import ocisbx.presets
from ocisbx.config import SandboxConfig
from ocisbx.config_errors import field_paths
from ocisbx.errors import ConfigError
from ocisbx.fields import ENFORCEMENT_NAMES
from ocisbx.presets import DOCKER_CAPABILITIES, ISOLATION_LEVELS, PRESETS, PROTECTED
from ocisbx.quantities import RLIMITS
from ocisbx.values import ANNOTATIONS

MAN = Path(ocisbx.presets.__file__).parent / "man"
CONFIG = (MAN / "ocisbx-config.5.md").read_text()
PAGE = (MAN / "ocisbx-presets.7.md").read_text()
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", CONFIG + PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example: str) -> None:
    config = SandboxConfig.from_toml(example)
    assert config != SandboxConfig()
    assert SandboxConfig.from_toml(config.to_toml()) == config


def test_examples_show_every_table_and_limit() -> None:
    shown = "\n".join(EXAMPLES)
    hidden = {"backend", "image", "rootfs", "terminal", "target", "source"}
    for path in field_paths(SandboxConfig):
        name = path.rpartition(".")[2]
        assert name in hidden or re.search(rf"\b{name}\b", shown), path


def test_every_field_has_its_line() -> None:
    for path in field_paths(SandboxConfig):
        head, _, name = path.partition(".")
        heading = f"## [{head}]" if f"## [{head}]" in CONFIG else "## Top level"
        start = CONFIG.index(heading)
        section = CONFIG[start : CONFIG.index("\n## ", start + 1)]
        own_section = heading != "## Top level" and not name
        assert own_section or f"`{path.rpartition('.')[2]}`" in section, path


def test_data_in_the_manual() -> None:
    for name in (*ENFORCEMENT_NAMES, *PRESETS, *ISOLATION_LEVELS):
        assert f"`{name}`" in CONFIG or name in PAGE
    for rlimit in RLIMITS:
        assert f"`{rlimit.removeprefix('RLIMIT_').lower()}`" in CONFIG
    for prefix in ANNOTATIONS:
        assert f"`{prefix}`" in CONFIG


def test_presets_page_holds_the_data() -> None:
    words = " ".join(PAGE.split())
    for name, preset in PRESETS.items():
        assert f"### {name}" in PAGE
        # From the second word on: in the page the sentence goes on from "It opens".
        assert preset.opens in words, name
        assert preset.description.partition(" ")[2] in words, name
    for one in PROTECTED:
        assert f"| `{one.pattern}` | {one.reason} |" in PAGE, one.pattern
    for level in ISOLATION_LEVELS.values():
        for path in (*level.masked_paths, *level.readonly_paths):
            assert re.search(rf"{path}[,.;]", words), path
    for capability in DOCKER_CAPABILITIES:
        assert capability.removeprefix("CAP_") in words


def test_the_message_in_the_manual_is_true(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.toml"
    path.write_text("networks = 'none'\n[limits]\nmemory_bytes = '512X'\n")
    with pytest.raises(ConfigError) as caught:
        SandboxConfig.from_toml(path)
    shown = re.findall(r"^```text\n(.*?)^```$", CONFIG, re.DOTALL | re.MULTILINE)[0]
    assert caught.value.render().replace(f"{tmp_path}/", "") == shown.rstrip("\n")
