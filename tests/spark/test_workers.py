"""What is loaded is left out of the collections that Spark's daemon runs, in its workers and nowhere else."""

from __future__ import annotations

import gc
import importlib.machinery
import sys
import weakref
import zipfile
import zipimport
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkacore.spark import workers


@pytest.mark.parametrize(("main", "frozen"), [("pyspark.daemon", 2), ("pytest", 0), (None, 0)])
@pytest.mark.parametrize("private", [True, False])
def test_in_a_worker_when_more_is_loaded_never_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, main: str | None, frozen: int, private: bool
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(workers, "_settled_modules", 0)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=main and SimpleNamespace(name=main)))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    archive = str(tmp_path / "some.zip")
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("there.py", "")
    monkeypatch.setitem(sys.path_importer_cache, archive, zipimport.zipimporter(archive))
    listings = zipimport._zip_directory_cache
    if not private:  # as a Python may be that comes later
        monkeypatch.delattr(zipimport, "_zip_directory_cache")
    for more in (0, 0, 1, 0, len(sys.modules) // 5, 0, 1):
        for at in range(more):
            monkeypatch.setitem(sys.modules, f"kafkacore_loaded_{len(sys.modules)}_{at}", SimpleNamespace())
        workers.settle()
    assert len(calls) == frozen
    monkeypatch.setattr(zipimport, "_zip_directory_cache", listings, raising=False)
    assert (archive in sys.path_importer_cache) == (not frozen)
    assert (archive in listings) == (not frozen or not private)
    assert importlib.machinery.PathFinder.find_spec("there", [archive]) is not None  # and it is found again


def test_garbage_is_collected_before_all_else_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(workers, "_settled_modules", 0)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon")))
    monkeypatch.setattr(sys, "path_importer_cache", {})
    gone = weakref.ref(Circle())
    try:
        workers.settle()
        gc.collect()
        assert gone() is None
    finally:
        gc.unfreeze()
