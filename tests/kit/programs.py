"""Programs that tests run: a Python with this checkout's package, to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
GUARD_S = 120.0
Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """This process's, with the checkout first among Python's paths."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def run_python(*arguments: str, timeout: float = GUARD_S, env: dict[str, str] | None = None, **options: Any) -> Done:
    """Runs `python ARGUMENTS`; what it prints is text, and its return code the test's to look at."""
    command, more = [sys.executable, *arguments], environment(**(env or {}))
    return subprocess.run(command, env=more, capture_output=True, text=True, timeout=timeout, **options)
