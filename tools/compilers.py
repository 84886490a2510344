"""Which C compiler builds the extensions: what CC names, Python's own, another one that is there, or the ziglang package.

Standard library only: `setup_env.py` runs before anything is installed, `build_backend.py` in whatever environment pip makes.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

OTHERS = ("cc", "gcc", "clang")
ZIGLANG = "ziglang"
WHAT_TO_DO = (
    "kafkacore is compiled while it is installed, and no C compiler was found: install gcc or clang, or name a compiler in CC,"
    " or run pip without --no-build-isolation, which takes the one of the package ziglang"
)
NO_HEADERS = "Python.h is missing: install the headers of this Python (python3-dev or python3-devel)"


class NoCompilerError(Exception):
    """Nothing here can compile C; the text says what to do."""


def compiles(command: list[str]) -> bool:
    """Whether a shared library can be made with this compiler."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "probe.c")
        source.write_text("#include <stdint.h>\n#include <string.h>\nint probe(const char *s) { return (int)strlen(s); }\n")
        try:
            done = subprocess.run(
                [*command, "-shared", "-fPIC", "-o", str(source.with_suffix(".so")), str(source)], capture_output=True, timeout=300
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def environment_of_a_compiler() -> dict[str, str] | None:
    """What the environment needs for a build: nothing where CC or Python's own compiler works; None where no compiler is installed.

    Raises:
        NoCompilerError: CC names something that does not work.
    """
    if os.environ.get("CC"):
        if not compiles(shlex.split(os.environ["CC"])):
            raise NoCompilerError(f"CC={os.environ['CC']} cannot compile a shared library: name another compiler, or unset CC")
        return {}
    default = shlex.split(sysconfig.get_config_var("CC") or "cc")
    if shutil.which(default[0]) and compiles(default):
        return {}
    for name in OTHERS:
        if shutil.which(name) and compiles([name]):
            return {"CC": name, "LDSHARED": f"{name} -shared"}
    return None


def environment_of_ziglang(python: str) -> dict[str, str]:
    """What the environment needs for a build with the ziglang package that `python` can import."""
    zig = f"{shlex.quote(python)} -m {ZIGLANG}"
    # By default it compiles for this very processor; an image is built on one machine and runs on others.
    cc = f"{zig} cc -mcpu=baseline"
    return {"CC": cc, "CXX": f"{zig} c++ -mcpu=baseline", "LDSHARED": f"{cc} -shared", "AR": f"{zig} ar"}


def headers_are_missing() -> bool:
    """Whether this Python lacks what C code includes."""
    return not Path(sysconfig.get_path("include"), "Python.h").exists()


def build_environment(has_ziglang: Callable[[], bool] = lambda: importlib.util.find_spec(ZIGLANG) is not None) -> dict[str, str]:
    """What the environment needs for a build in this interpreter.

    Raises:
        NoCompilerError: there is no compiler, or no Python.h.
    """
    if headers_are_missing():
        raise NoCompilerError(NO_HEADERS)
    found = environment_of_a_compiler()
    if found is not None:
        return found
    if not has_ziglang():
        raise NoCompilerError(WHAT_TO_DO)
    return environment_of_ziglang(sys.executable)
