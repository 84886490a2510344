"""What pytest imports to collect the tests: each worker does it, before the first test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LATE = ("datafusion", "duckdb", "httpx", "opentelemetry", "pandas", "polars", "prometheus_client")
"""Packages that take long to import: `tests/kit/late.py`, or an import inside a test. `pa.array` imports pandas."""
PLUGIN = f"""
import sys

def pytest_collection_finish(session):
    print("imported:", *[name for name in {LATE} if name in sys.modules])
"""


@pytest.mark.night
@pytest.mark.slow
def test_to_collect_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    (tmp_path / "collected_by.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "collected_by", "--collect-only", "--ignore", "tests/spark/live", "tests"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert "imported:\n" in done.stdout, done.stdout[-2_000:] + done.stderr
