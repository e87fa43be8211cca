"""Interpreters that have started before the call, on the newest runtime of each name."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.errors import ConfigError, RuntimeFailed
from ocisbx.pool.warm import BLOCK_BYTES, letter
from ocisbx.result import Termination as T
from tests.box import eventually
from tests.cgroups import state
from tests.pool.conftest import NEWEST, on_any

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box
    from tests.pool.conftest import Make

pytestmark = pytest.mark.runtime


@pytest.fixture(params=NEWEST, ids=[one.name for one in NEWEST])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found


@pytest.fixture
def warm(make: Make) -> ocisbx.Pool:
    return make(2, warm="python3", warm_imports=["json", "re"])


# What an interpreter does when it ends.
ENDS = (
    "import atexit, os; atexit.register(os.system, 'echo a shell')",
    """
import os, sys
class A:
    def __del__(self):
        os.write(1, b"gone " + word)
        sys.stdout.flush()
word = b"by then"
kept = A()
kept.me = kept
print("first")
""",
    "import os, json; json.kept = open(os.dup(1), 'w'); json.kept.write('of a module')",
    "import os; kept = open(os.dup(1), 'w'); kept.write('of the code')",
    "import ctypes; ctypes.CDLL(None).printf(b'of the C library')",
    "import sys; sys.stdout.close()",
    "import sys; sys.stdout = None",
    "import sys; sys.exit(-1)",
    "import sys; sys.exit(1 << 40)",
    "import sys; sys.exit(True)",
    "import sys; sys.exit(2.5)",
    "import os; os.close(1); print('nowhere')",
    "import sys; del sys.modules['__main__']",
    """
import atexit
class A:
    def __repr__(self):
        return "A"
    def __call__(self):
        1 / 0
atexit.register(A())
atexit.register(print, "both")
""",
    "import threading, time; threading.Thread(target=time.sleep, args=[60], daemon=True).start()",
    "import pickle\nclass A: pass\nprint(len(pickle.dumps(A())), A.__module__)",
    "import multiprocessing as m\nwith m.get_context('fork').Pool(1) as p: print(p.map(abs, [-1]))",
)


ORDINARY = (
    "print(1+1)", "import sys; sys.exit(7)", "import sys; sys.exit('a word')", "1/0",
    "def f(): raise ValueError('x')\nf()", "syntax error", "import sys; print(sys.argv)",
    "import sys; print(sys.stdin.read())", "print(input())", "raise KeyboardInterrupt",
    "import os; os.kill(os.getpid(), 9)", "import os; os._exit(3)", "print(__name__, __file__)",
    "import sys; print('out', end=''); print('err', file=sys.stderr)", "raise SystemExit",
    "import atexit; atexit.register(print, 'the end')", "import os; print(os.getcwd())",
    "import os; print(sorted(os.environ.items()))", "print(sorted(globals()))",
    "import threading; threading.Timer(.05, print, ['later']).start()",
)  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("codes", [ORDINARY, ENDS], ids=["ordinary", "ends"])
def test_it_is_as_a_cold_call(box: Box, warm: ocisbx.Pool, codes: tuple[str, ...]) -> None:
    """Each code in an interpreter of its own, of one pool."""
    names = ("stdout", "stderr", "termination", "exit_code", "signal", "command", "enforcement")
    for code in codes:
        cold = box.run(["python3", "-c", code, "one", "two"], input=b"input\n")
        result = warm.run_code(code, ["one", "two"], input=b"input\n")
        for name in names:
            assert getattr(result, name) == getattr(cold, name), (code, name)


def test_each_call_has_an_interpreter_of_its_own(warm: ocisbx.Pool) -> None:
    for _ in range(4):
        result = warm.run_code("import json, sys; print(hasattr(json, 'mark')); json.mark = 1")
        assert result.stdout == b"False\n"


def test_the_modules_are_there(make: Make) -> None:
    code = "import sys; print('decimal' in sys.modules, 'sqlite3' in sys.modules)"
    pool = make(1, warm="python3", warm_imports=["decimal"])
    assert pool.run_code(code).stdout == b"True False\n"


def test_a_stream_that_an_import_has_replaced(box: Box, make: Make) -> None:
    """The rehearsal of its end fails, and the call does not."""
    odd = "import sys\nclass Odd:\n def write(self, text): sys.__stdout__.write('<' + text)\n"
    odd += " def flush(self): sys.__stdout__.flush()\nsys.stdout = Odd()\n"
    (box.workspace / "odd.py").write_text(odd)
    pool = make(1, warm="python3", warm_imports=["odd"])
    result = pool.run_code("print('odd', end='')")
    assert (result.stdout, result.exit_code) == (b"<odd<", 0)


def test_environment_directory_and_timeout(box: Box, warm: ocisbx.Pool) -> None:
    (box.workspace / "sub").mkdir()
    code = "import os; print(os.environ['ONE'], os.getcwd())"
    result = warm.run_code(code, env={"ONE": "eins"}, workdir=f"{box.workspace}/sub")
    assert result.stdout.decode() == f"eins {box.workspace}/sub\n"
    late = warm.run_code("import time; time.sleep(600)", timeout_s=0.3)
    assert late.termination is T.TIMED_OUT


# What JSON or Python could write or read in another way.
TEXTS = ("\N{GRINNING FACE}", "\\ud83d", "\ufeffa", "\x85\u2028\x0b\x0c\x1b\x7f", "\n\r\t\\\"'{}/")


@pytest.mark.parametrize("name", ["python3", "node"])
def test_texts_arrive_as_they_are(make: Make, name: str) -> None:
    code = {
        "python3": "import os, sys; said = '\N{GRINNING FACE}', *sys.argv[1:], os.environ['ONE']\n"
        "sys.stdout.buffer.write('|'.join(said).encode())",
        "node": "process.stdout.write(['\N{GRINNING FACE}', ...process.argv.slice(1),"
        " process.env.ONE].join('|'))",
    }[name]
    result = make(1, warm=name).run_code(code, TEXTS, env={"ONE": "".join(TEXTS)})
    assert result.stdout.decode() == "|".join(["\N{GRINNING FACE}", *TEXTS, "".join(TEXTS)])


def test_a_letter_is_whole_blocks() -> None:
    for length in (*range(3900, 4200), 100_000, 2_000_000):
        sent = letter("x" * length, [], ["A=1"], "/")
        size, text = sent.split(b"\n", 1)
        assert (len(sent) % BLOCK_BYTES, int(size)) == (0, len(text))
        assert json.loads(text)["code"] == "x" * length


@pytest.mark.parametrize("warm", ["python3", "node"])
def test_letters_of_any_length_and_an_input(make: Make, warm: str) -> None:
    """One that ends with its block, one of a byte more, and what comes after is the input."""
    code = {"python3": "print(input())", "node": "process.stdin.pipe(process.stdout)"}[warm]
    remark = {"python3": "#", "node": "//"}[warm]
    pool = make(2, warm=warm)
    for length in (0, 3000, BLOCK_BYTES, 20_000):
        result = pool.run_code(f"{code} {remark}{'x' * length}", input=b"the input\n")
        assert result.stdout == b"the input\n"


def test_large_code_and_input(warm: ocisbx.Pool) -> None:
    data = os.urandom(1 << 20)
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())" + "\n# x" * 200_000
    assert warm.run_code(code, input=data).stdout == data


def test_input_of_a_descriptor(warm: ocisbx.Pool) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"piped")
    os.close(writer)
    assert warm.run_code("print(input())", input=reader).stdout == b"piped\n"
    os.close(reader)


def test_what_it_used_counts_from_the_hand_over(warm: ocisbx.Pool) -> None:
    warm.open()
    time.sleep(1.0)
    began = time.monotonic()
    usage = warm.run_code("sum(range(3_000_000))").usage
    # Less than with the second in which it waited.
    most_s = time.monotonic() - began + 0.5
    assert usage.wall_s is not None
    assert usage.wall_s < most_s
    assert usage.cpu_user_s is not None
    assert 0 < usage.cpu_user_s < most_s


def test_many_threads(warm: ocisbx.Pool) -> None:
    seen: list[bytes] = []

    def work(name: int) -> None:
        seen.append(warm.run_code(f"print({name} ** 2)").stdout)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, seen)) == [0, 1, 4, 9, 16, 25]


def test_asyncio(box: Box) -> None:
    async def main() -> bytes:
        async with ocisbx.AsyncPool(box.sandbox().config, 1, warm="python3") as pool:
            return (await pool.run_code("print('awaited')")).stdout

    assert asyncio.run(main()) == b"awaited\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_interpreter_that_was_killed_or_stopped(
    make: Make, number: signal.Signals, box: Box
) -> None:
    if box.runtime.name == "runsc":
        pytest.skip("the host sees no process of it")
    pool = make(2, warm="python3")
    pool.open()
    assert eventually(lambda: pool.counts.waiting == 2)
    first = pool._store._waiting[0]
    (pid,) = first._warm_pids()
    os.kill(pid, number)
    assert eventually(lambda: state(pid) in ("", "T", "Z"))
    result = pool.run_code("print('fine')")
    assert result.stdout == b"fine\n"
    assert result.id != first.execution.id


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_does_not_keep_an_input_open(warm: ocisbx.Pool) -> None:
    warm.open()
    assert eventually(lambda: warm.counts.waiting == 2)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    code = "import sys; print(len(sys.stdin.read()))"
    assert warm.run_code(code, input=b"input", timeout_s=20).stdout == b"5\n"
    os.close(writer)
    os.waitpid(pid, 0)


def test_one_stream_for_both(make: Make) -> None:
    pool = make(1, warm="python3", capture={"combine": True})
    result = pool.run_code("import sys; print('out', flush=True); print('err', file=sys.stderr)")
    assert (result.stdout, result.stderr) == (b"out\nerr\n", b"")


def test_node(make: Make) -> None:
    pool = make(1, warm="node", warm_imports=["path"])
    assert pool.run_code("console.log(1 + 1, require('path').sep)").stdout == b"2 /\n"
    assert pool.run_code("process.exit(6)").exit_code == 6
    assert pool.run_code("console.log(process.argv.slice(1))", ["a"]).stdout == b"[ 'a' ]\n"
    echo = "process.stdin.pipe(process.stdout)"
    assert pool.run_code(echo, input=b"input").stdout == b"input"
    failed = pool.run_code("throw new Error('oh')")
    assert failed.exit_code == 1
    assert b"Error: oh" in failed.stderr


SHELL = 'echo ocisbx-ready; read size; letter=$(head -c "$size"); echo "${#letter} $size"; cat'


def test_a_command_of_ones_own(make: Make) -> None:
    pool = make(1, warm=["sh", "-c", SHELL])
    first, rest = pool.run_code("anything", input=b"the input").stdout.split(b"\n", 1)
    read, size = first.split()
    assert read == size
    assert rest == b"the input"


@on_any
@pytest.mark.parametrize(
    ("warm", "imports"),
    [("no-such-python", []), ("python3", ["a; b"]), ("python3", "json"), ([], []),
     (["true"], ["x"])],
)  # fmt: skip
def test_what_is_no_interpreter(make: Make, warm: Any, imports: Any) -> None:
    with pytest.raises(ConfigError):
        make(2, warm=warm, warm_imports=imports).open()


@pytest.mark.parametrize(
    ("warm", "imports"),
    [("python3-none", []), ("python3", ["no_such_module"]), (["true"], []),
     (["sh", "-c", "echo something else; exit 3"], []), (["sleep", "600"], [])],
)  # fmt: skip
def test_what_cannot_be_warm(make: Make, warm: Any, imports: Any) -> None:
    patience_s = 1.0 if warm == ["sleep", "600"] else None
    with pytest.raises(RuntimeFailed):
        make(2, warm=warm, warm_imports=imports, start_timeout_s=patience_s).open()


def test_code_and_commands_are_different_pools(make: Make, warm: ocisbx.Pool) -> None:
    with pytest.raises(ConfigError, match="waits for code"):
        warm.run(["true"])
    with pytest.raises(ConfigError, match="no interpreter"):
        make().run_code("1")
    codes: Any = (b"1", "print('\udc80')", "1\0")
    for code in codes:
        with pytest.raises(ConfigError, match="code"):
            warm.run_code(code)
