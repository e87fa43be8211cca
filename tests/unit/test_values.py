"""Parsers of single values: what they take, what they give, and that only ConfigError comes out."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx import quantities, values
from ocisbx.capabilities import parse_capability
from ocisbx.errors import ConfigError
from ocisbx.quantities import UNLIMITED

# Lone surrogates too: os.fsdecode() makes them of names that are not UTF-8.
HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(),
    st.lists(st.text(), max_size=3),
    st.sampled_from(["", " ", "\0", "\ud800", "-1", "nan", "1e9", "\u0663", "9" * 5000]),
)
PARSERS = (
    values.check_text,
    quantities.parse_size,
    quantities.parse_size_limit,
    quantities.parse_memory,
    quantities.parse_pids,
    quantities.parse_cpus,
    quantities.parse_seconds,
    values.check_path,
    values.check_pattern,
    values.check_name,
    values.check_hostname,
    values.parse_user,
    values.check_env_name,
    values.parse_env,
    quantities.check_rlimit_name,
    quantities.parse_ulimit,
    values.check_command,
    parse_capability,
)


def refusal(parser: Any, value: object) -> str:
    try:
        parser(value)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
@given(value=HOSTILE)
def test_only_config_error_comes_out(parser: Any, value: object) -> None:
    message = refusal(parser, value)
    # Printable and bounded: hostile input must not reach the terminal as it is.
    assert message.isprintable()
    assert len(message) < 500


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_integers_without_a_repr(parser: Any) -> None:
    # sys.set_int_max_str_digits: repr() of such an integer raises ValueError.
    assert refusal(parser, 10**5000)


SIZES = [
    (0, 0),
    ("0", 0),
    (512, 512),
    ("512", 512),
    ("512b", 512),
    ("64k", 64 << 10),
    ("64K", 64 << 10),
    ("64kb", 64 << 10),
    ("64KiB", 64 << 10),
    ("512M", 512 << 20),
    ("512 M", 512 << 20),
    ("2g", 2 << 30),
    ("1.5G", 3 << 29),
    ("0.1k", 102),
    ("1t", 1 << 40),
]


@pytest.mark.parametrize(("given_", "expected"), SIZES)
def test_size(given_: object, expected: int) -> None:
    assert quantities.parse_size(given_) == expected


@pytest.mark.parametrize(
    "value",
    ["", "M", "-1", -1, "1.5", "12x",
     "1 2", "1e3", "0x10", "1,5G", "\u0661", True, 1.0, None, "9" * 21,
     "16777216t", math.nan, "1ib", "2GG"],
)  # fmt: skip
def test_size_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        quantities.parse_size(value)


def test_wrong_unit_shows_right_ones() -> None:
    with pytest.raises(ConfigError, match=r"'12x' is not a size: .*512M, 2g, 64k"):
        quantities.parse_size("12x")


@given(st.integers(0, quantities.MAX_BYTES))
def test_size_of_any_integer(size: int) -> None:
    assert quantities.parse_size(size) == quantities.parse_size(str(size)) == size


@pytest.mark.parametrize("value", ["unlimited", "-1", -1])
def test_unlimited(value: object) -> None:
    assert quantities.parse_memory(value) == UNLIMITED
    assert quantities.parse_pids(value) == UNLIMITED
    assert quantities.parse_cpus(value) == UNLIMITED


def test_memory_without_its_unit_is_refused() -> None:
    assert quantities.parse_memory("1m") == 1 << 20
    with pytest.raises(ConfigError, match="at least 1048576 bytes"):
        quantities.parse_memory(512)


@pytest.mark.parametrize("value", [0, "0", -2, 1.5, "1.5", True, "", "many", 1 << 23])
def test_pids_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        quantities.parse_pids(value)


@pytest.mark.parametrize(("value", "expected"), [(1, 1.0), ("0.5", 0.5), (2.25, 2.25), ("4", 4.0)])
def test_cpus(value: object, expected: float) -> None:
    assert quantities.parse_cpus(value) == expected


@pytest.mark.parametrize("value", [0, "0", -0.5, 0.001, math.nan, math.inf, "1e3", True, 10**400])
def test_cpus_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"such as 0\.5 or 2"):
        quantities.parse_cpus(value)


def test_seconds() -> None:
    assert quantities.parse_seconds("2.5") == 2.5
    assert quantities.parse_seconds(30) == 30.0
    assert quantities.parse_seconds(0, zero=True) == 0.0


@pytest.mark.parametrize("value", [0, "0", -1, "-1", math.nan, math.inf, "30s", "inf", True, 2e9])
def test_seconds_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="expected seconds above 0"):
        quantities.parse_seconds(value)


@pytest.mark.parametrize("path", ["/", "/opt/go", "/a b", "/a\nb", "/a:b", "/ü", "/a/../b"])
def test_path(path: str) -> None:
    assert values.check_path(path) == path
    assert values.check_path(Path(path)) == path


@pytest.mark.parametrize(
    "path", ["", "a", "./a", "~/a", "/a\0", "/\udcff", "/" + "a" * 4095, 3, b"/a"]
)
def test_path_refused(path: object) -> None:
    with pytest.raises(ConfigError):
        values.check_path(path)


@pytest.mark.parametrize("pattern", ["/a", "**/.env", "src/*.py", "/home/*/.ssh", "a..b"])
def test_pattern(pattern: str) -> None:
    assert values.check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["", "~/.ssh", "../x", "a/../../b", "a\0", "a" * 5000])
def test_pattern_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        values.check_pattern(pattern)


@pytest.mark.parametrize("name", ["a", "7", "build-1", "a.b_c", "A" * 64])
def test_name(name: str) -> None:
    assert values.check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", ".a", "-a", "a..b", "a\n", "a b", "A" * 65, "x" * 300, "ä", "a\0"]
)
def test_name_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name"):
        values.check_name(name)


@pytest.mark.parametrize("name", ["a", "sandbox", "a-b.example", "7", "x" * 63])
def test_hostname(name: str) -> None:
    assert values.check_hostname(name) == name


# 65 bytes: RFC 1123 would go on to 253, sethostname(2) does not.
@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a..b", ".a", "a.", "a_b", "a\n", "x" * 64, "a." * 32 + "a", "ä"]
)
def test_hostname_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name"):
        values.check_hostname(name)


def test_user() -> None:
    assert values.parse_user("1000") == (1000, None)
    assert values.parse_user("1000:100") == (1000, 100)
    assert values.parse_user(0) == (0, None)


@pytest.mark.parametrize(
    "user", ["", "root", ":1", "1:", "-1", "4294967295", "1:4294967295", "1:2:3", -1, True, 1 << 40]
)
def test_user_refused(user: object) -> None:
    with pytest.raises(ConfigError, match="UID or UID:GID in digits"):
        values.parse_user(user)


def test_env() -> None:
    assert values.parse_env("A=1") == ("A", "1")
    assert values.parse_env("A=b=c") == ("A", "b=c")
    assert values.parse_env("A=") == ("A", "")
    assert values.parse_env("A") == ("A", None)


@pytest.mark.parametrize("text", ["", "=", "=x", "A=\0", "A=\udc80", 1])
def test_env_refused(text: object) -> None:
    with pytest.raises(ConfigError):
        values.parse_env(text)


def test_env_file() -> None:
    text = "\ufeff# comment\n\n  A=1\r\nB\n  # more\nC=a # no comment\nD='quoted'\nE=\nF=x\u2028y\n"
    assert values.parse_env_file(text) == [
        ("A", "1"),
        ("B", None),
        ("C", "a # no comment"),
        ("D", "'quoted'"),
        ("E", ""),
        ("F", "x\u2028y"),
    ]


@pytest.mark.parametrize("line", ["=x", "A B=1", "export A=1", "A\0=1"])
def test_env_file_names_the_line(line: str) -> None:
    with pytest.raises(ConfigError, match=r"^vars: line 3: "):
        values.parse_env_file(f"A=1\n\n{line}\n", "vars")


@given(st.text(st.characters(exclude_categories=())))
def test_env_file_hostile(text: str) -> None:
    try:
        entries = values.parse_env_file(text)
    except ConfigError:
        return
    assert all(name and "=" not in name for name, _ in entries)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nofile=1024", ("RLIMIT_NOFILE", (1024, 1024))),
        ("NOFILE=1024:4096", ("RLIMIT_NOFILE", (1024, 4096))),
        ("RLIMIT_CORE=0", ("RLIMIT_CORE", (0, 0))),
        ("core=unlimited", ("RLIMIT_CORE", (UNLIMITED, UNLIMITED))),
        ("nproc=10:-1", ("RLIMIT_NPROC", (10, UNLIMITED))),
        ("fsize=1g", ("RLIMIT_FSIZE", (1 << 30, 1 << 30))),
    ],
)
def test_ulimit(text: str, expected: object) -> None:
    assert quantities.parse_ulimit(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "nofile", "nofile=", "nofile=1:", "nofile=2:1", "nofile=unlimited:1", "nofile=1k",
     "=1", "files=1", "nofile=-2", "nofile=1:2:3"],
)  # fmt: skip
def test_ulimit_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        quantities.parse_ulimit(text)


def test_unknown_rlimit_suggests() -> None:
    with pytest.raises(ConfigError, match="did you mean 'nofile'"):
        quantities.parse_ulimit("nofiles=1")


@pytest.mark.parametrize("prefix", values.ANNOTATIONS)
def test_annotation(prefix: str) -> None:
    assert values.check_annotation(f"{prefix}a/b_c-d.9", "é x") == (f"{prefix}a/b_c-d.9", "é x")


STEERING = (
    "run.oci.handler", "dev.gvisor.flag.host-uds", "org.criu.config", "RUN.OCI.x",
    "io.katacontainers.config.hypervisor.path", "org.systemd.property.X",
    "module.wasm.image/variant",
    "io.kubernetes.cri.container-type", "io.containerd.x", "org.opencontainers.runtime.x",
    "org.opencontainers.imagex.y", "com.examples.x", "LABEL.x", "labels.x",
)  # fmt: skip
MALFORMED = (
    "", "label.", "label..x", "label.x.", "label.a b", "label.a\n", "label.../x", "../x", "label.é",
    "label.a\0", "label.x/../y", "label." + "x" * 250, "com.example", 7,
)  # fmt: skip


@pytest.mark.parametrize("key", [*STEERING, *MALFORMED])
def test_annotation_refused(key: object) -> None:
    with pytest.raises(ConfigError):
        values.check_annotation(key, "1")


@pytest.mark.parametrize("value", ["a\nb", "\x1b[1m", "\u2028", "\0", "\ud800", 7])
def test_annotation_value_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        values.check_annotation("label.x", value)


KEYS = st.text(st.sampled_from("labe.comxp-_/ORGrun\n "), max_size=24)


@given(st.sampled_from(["", *values.ANNOTATIONS, "run.oci.", "dev.gvisor.flag."]), KEYS | HOSTILE)
def test_no_annotation_outside_the_list(prefix: str, rest: object) -> None:
    key = f"{prefix}{rest}"
    try:
        name, _ = values.check_annotation(key, "1")
    except ConfigError:
        return
    assert name == key
    assert key.startswith(tuple(values.ANNOTATIONS))
    assert key.isascii()
    assert not {"..", " ", "\n"} & {key[i : i + n] for n in (1, 2) for i in range(len(key))}


def test_annotation_tells_how_to_say_it() -> None:
    with pytest.raises(ConfigError) as raised:
        values.check_annotation("dev.acme.task", "true")
    assert values.check_annotation(raised.value.remedy.split()[0], "true")


def test_command() -> None:
    assert values.check_command(["ls", "-l", ""]) == ("ls", "-l", "")
    assert values.check_command(iter([Path("/bin/ls")])) == ("/bin/ls",)


def test_shell_command() -> None:
    argv = values.check_command("a | b", shell=True)
    assert argv == ("/bin/sh", "-c", "a | b")


COMMANDS = [
    ([], "command is empty"),
    ([""], "first word is empty"),
    ("ls -l", "one text, not a list"),
    (b"ls", "one text, not a list"),
    (Path("/bin/ls"), "one text, not a list"),
    (None, "expected a list"),
    ({"ls": 1}, "expected a list"),
    (["ls", b"x"], "not bytes"),
    (["ls", 1], "not int"),
    (["ls", "a\0b"], "NUL"),
    (["ls", "\udcff"], "not valid UTF-8"),
    (["ls", "x" * 131_072], "the kernel takes 131071"),
    (["x" * 100_000] * 21, "the kernel takes 2097152"),
]


@pytest.mark.parametrize(("command", "message"), COMMANDS, ids=[text for _, text in COMMANDS])
def test_command_refused(command: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        values.check_command(command)


def test_text_command_tells_of_shell() -> None:
    with pytest.raises(ConfigError) as caught:
        values.check_command("ls -l")
    assert "shell=True" in caught.value.remedy


def test_longest_argument_passes() -> None:
    assert values.check_command(["echo", "x" * 131_071])


def test_show_is_bounded_and_printable() -> None:
    assert values.show("a" * 10_000).endswith("...'")
    assert values.show(b"a" * 10_000).isprintable()
    assert values.show("\x1b[31m\ud800") == r"'\x1b[31m\ud800'"
    assert values.show(10**5000) == "a huge int"
