"""What a supervisor imports in place of typing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ocisbx import errors
from ocisbx.background.boot import stand_in


def test_the_stand_in_makes_what_typing_makes() -> None:
    """For every class of ours that a supervisor imports: the same fields, defaults and methods."""
    script = """
import json, sys
def shape(kind):
    return [kind._fields, {k: repr(v) for k, v in kind._field_defaults.items()}, sorted(vars(kind))]
import ocisbx.background.supervisor
found = {f"{name}.{key}": shape(kind) for name, module in sorted(sys.modules.items())
         if name.startswith("ocisbx.") for key, kind in vars(module).items()
         if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")}
print(json.dumps(found))
"""
    lean = (
        "import sys; from runpy import run_path;"
        f"sys.modules['typing'] = run_path({stand_in.__code__.co_filename!r})['stand_in']();"
    )
    root = os.path.dirname(os.path.dirname(errors.__file__))
    head = f"import sys; sys.path.append({root!r});"
    shapes = []
    for first in ("", lean):
        argv = [sys.executable, "-I", "-S", "-c", head + first + script]
        done = subprocess.run(argv, capture_output=True, check=True, text=True)
        shapes.append(json.loads(done.stdout))
    plain, stood_in = shapes
    assert len(plain) > 40
    assert plain.keys() == stood_in.keys()
    for name, (fields, defaults, names) in plain.items():
        mine = stood_in[name]
        assert (mine[0], mine[1]) == (fields, defaults), name
        assert set(names) - set(mine[2]) <= {"__orig_bases__", "__annotations__"}, name
