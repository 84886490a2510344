"""What is loaded is left out of the collections that Spark's daemon runs, in its workers and nowhere else."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest

from kafkacore.spark import workers


@pytest.mark.parametrize(("main", "frozen"), [("pyspark.daemon", 1), ("pytest", 0), (None, 0)])
def test_once_in_a_worker_and_never_elsewhere(monkeypatch: pytest.MonkeyPatch, main: str | None, frozen: int) -> None:
    calls: list[int] = []
    monkeypatch.setattr(workers, "_settled", False)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=main and SimpleNamespace(name=main)))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    for _ in range(3):
        workers.settle()
    assert len(calls) == frozen
