"""The benchmarks of bench/ that need no other client still run: once each, without taking time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.mark.slow
def test_each_piece_runs_once() -> None:
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--benchmark-disable"]
    command = [sys.executable, "-m", "pytest", *options, str(BENCH / "test_pieces.py")]
    done = subprocess.run(command, cwd=BENCH.parent, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
