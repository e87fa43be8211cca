"""What an interpreter runs ahead of its call: it imports, says that it is ready, and then runs the
code that it is sent (ocisbx-pool(1))."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What modules print goes to stderr. The frame of the bootstrap is taken off a traceback.
#
# An interpreter that ends takes itself down: 3 to 4 ms, for memory that the kernel frees at once.
# `leave` does what somebody could miss, in the order of Py_FinalizeEx, and then lets the C library
# end the process; where something is unusual the interpreter ends by itself. What was there before
# the call is frozen: only what is new has to be looked at.
#
# In gVisor a page that is touched first, a system call's first use and each call after a rest cost
# 20 to 80 us: all is rehearsed before the call, and the letter comes in one read. It frees what is
# mapped at the end, page by page, so little is imported: not json, which takes `re` with it. The
# letter's JSON has texts, lists and tables only, and no escaped surrogates: Python reads it as its
# own.
PYTHON = """\
def ocisbx_bootstrap():
    import atexit, gc, io, os, resource, sys
    try:
        import ctypes
        c_exit, freeze = ctypes.PyDLL(None).exit, gc.freeze
    except (ImportError, OSError, AttributeError):
        c_exit = freeze = None
    out = os.dup(1)
    os.dup2(2, 1)
    for name in sys.argv[1:]:
        __import__(name)
    sys.stdout.flush()
    os.dup2(out, 1)
    os.close(out)
    def files():
        return [one for one in gc.get_objects() if issubclass(type(one), io.IOBase)]
    def flush(*some):
        for one in some:
            if one is not None and not one.closed:
                one.flush()
    def leave():
        flush(sys.stdout, sys.stderr)
        sys.modules.pop("__main__", None)
        gc.collect()
        flush(*old_files, *files(), sys.stdout, sys.stderr)
    def read(size):
        data = b""
        while len(data) < size:
            more = os.read(0, size - len(data))
            if not more:
                os._exit(125)
            data += more
        return data
    def hear():
        head, _, text = read(4096).partition(b"\\n")
        return text + read(int(head) - len(text))
    def prepare(text):
        told = eval(text)
        if told["directory"]:
            os.chdir(told["directory"])
        if list(os.environ.items()) != list(told["environment"].items()):
            os.environ.clear()
            os.environ.update(told["environment"])
        sys.argv[:] = ["-c", *told["arguments"]]
        # The code's own module: not frozen, and nothing of this holds it when it ends.
        sys.modules["__main__"] = type(sys)("__main__")
        sys.modules["__main__"].__dict__.update(before)
        return told["code"]
    def rehearse():
        main, arguments = sys.modules["__main__"], sys.argv[:]
        code = "import sys; print(end='', file=sys.__stdout__)"
        told = {"code": code, "arguments": [], "directory": ""}
        try:
            code = prepare(ascii({**told, "environment": dict(os.environ)}).encode())
            exec(compile(code, "<string>", "exec"), sys.modules["__main__"].__dict__)
            leave()
        except Exception:
            # What was imported has put something odd in place of a stream.
            pass
        sys.modules["__main__"], sys.argv[:] = main, arguments
    before = sys.modules["__main__"].__dict__
    del before["ocisbx_bootstrap"]
    old_files = files()
    rehearse()
    if freeze is not None:
        gc.collect()
        freeze()
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime * 1e6), int(used.ru_stime * 1e6)
    os.write(1, b"ocisbx-ready %d %d\\n" % spent)
    code = prepare(hear())
    status = 0
    try:
        exec(compile(code, "<string>", "exec"), sys.modules["__main__"].__dict__)
    except SystemExit as error:
        status = 0 if error.code is None else error.code
    except BaseException as error:
        error = error.with_traceback(error.__traceback__.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            import signal
            signal.signal(2, signal.SIG_DFL)
            os.kill(os.getpid(), 2)
        status = 1
    if c_exit is not None and isinstance(status, int) and 0 <= status <= 255:
        try:
            if "threading" in sys.modules:
                sys.modules["threading"]._shutdown()
            atexit._run_exitfuncs()
            leave()
            c_exit(status)
        except BaseException:
            pass
    sys.exit(status)
ocisbx_bootstrap()
"""
NODE = """\
const fs = require("fs"), vm = require("vm");
for (const name of process.argv.slice(1)) require(name);
const spent = process.cpuUsage();
fs.writeSync(1, `ocisbx-ready ${spent.user} ${spent.system}\\n`);
const read = (size) => {
  const data = Buffer.alloc(size);
  for (let at = 0; at < size; ) {
    const more = fs.readSync(0, data, at, size - at);
    if (!more) process.exit(125);
    at += more;
  }
  return data;
};
const first = read(4096), text = first.subarray(first.indexOf("\\n") + 1);
const told = JSON.parse(Buffer.concat([text, read(parseInt(first) - text.length)]));
if (told.directory) process.chdir(told.directory);
for (const name of Object.keys(process.env)) delete process.env[name];
Object.assign(process.env, told.environment);
process.argv.splice(1, Infinity, ...told.arguments);
Object.assign(globalThis, { require, module, exports });
vm.runInThisContext(told.code, { filename: "[eval]" });
"""
# How each is started; what it imports comes after.
INTERPRETERS: Mapping[str, tuple[str, ...]] = {"python3": ("-c", PYTHON), "node": ("-e", NODE)}
