"""Other extensions may cimport the wheel: its .pxd and its headers are all they need."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent

USER = """
# cython: language_level=3
from kafkacore._wheel cimport TimingWheel

def churn(TimingWheel wheel, task, int n):
    cdef long long handle
    cdef int i, cancelled = 0
    for i in range(n):
        handle = wheel.call_at_c(i, task)
        if i % 2:
            cancelled += wheel.cancel_c(handle)
    return cancelled
"""


@pytest.mark.slow
def test_an_extension_of_somebody_else_uses_the_wheel_in_c(tmp_path):
    from kafkacore.timer import TimingWheel

    (tmp_path / "wheeluser.pyx").write_text(USER)
    (tmp_path / "setup.py").write_text(
        "from Cython.Build import cythonize\n"
        "from setuptools import Extension, setup\n"
        f"setup(name='wheeluser', ext_modules=cythonize([Extension('wheeluser', ['wheeluser.pyx'], "
        f"include_dirs=[{str(PACKAGE / 'kafkacore' / 'native')!r}])], include_path=[{str(PACKAGE)!r}]))\n"
    )
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    fast = {**os.environ, "CFLAGS": "-O0"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=fast)
    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / f"wheeluser{sysconfig.get_config_var('EXT_SUFFIX')}"
    spec = importlib.util.spec_from_file_location("wheeluser", path)
    wheeluser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheeluser)
    wheel = TimingWheel(1, 20, 0)
    assert wheeluser.churn(wheel, list, 1000) == 500
    assert len(wheel) == 500
    assert wheel.run_expired(1000) == 500
