"""What `import kafkacore` refuses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(*options: str, free_threaded: bool, **environment: str) -> subprocess.CompletedProcess[str]:
    """`import kafkacore`, on what looks like a free-threaded Python or not."""
    looks = "import sys; sys._is_gil_enabled = lambda: False; " if free_threaded else ""
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, *options, "-c", looks + "import kafkacore"], env=os.environ | paths | environment, capture_output=True, text=True
    )


@pytest.mark.skipif(hasattr(sys, "_is_gil_enabled"), reason="a Python with a GIL of its own takes neither switch")
@pytest.mark.parametrize("how", ["variable", "option"])
def test_a_python_that_never_turns_its_gil_on_is_refused(how: str) -> None:
    options, environment = ([], {"PYTHON_GIL": "0"}) if how == "variable" else (["-X", "gil=0"], {})
    refused = run(*options, free_threaded=True, **environment)
    assert refused.returncode == 1
    assert "ImportError: kafkacore needs the GIL" in refused.stderr
    assert run(*options, free_threaded=False, **environment).returncode == 0


@pytest.mark.skipif(hasattr(sys, "_is_gil_enabled"), reason="a Python with a GIL of its own takes neither switch")
def test_a_python_that_may_turn_it_on_is_not() -> None:
    assert run(free_threaded=True).returncode == 0
    assert run("-X", "gil=1", free_threaded=True, PYTHON_GIL="0").returncode == 0
