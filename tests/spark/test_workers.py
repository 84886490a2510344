"""What is loaded is left out of the collections that Spark's daemon runs, in its workers and nowhere else."""

from __future__ import annotations

import gc
import importlib.machinery
import sys
import zipfile
import zipimport
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkacore.spark import workers


@pytest.mark.parametrize(("main", "frozen"), [("pyspark.daemon", 2), ("pytest", 0), (None, 0)])
def test_in_a_worker_when_more_is_loaded_never_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, main: str | None, frozen: int
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(workers, "_settled_modules", 0)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=main and SimpleNamespace(name=main)))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    archive = str(tmp_path / "some.zip")
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("there.py", "")
    monkeypatch.setitem(sys.path_importer_cache, archive, zipimport.zipimporter(archive))
    for loaded in (None, None, "kafkacore_loaded_behind_a_task", None):
        if loaded is not None:
            monkeypatch.setitem(sys.modules, loaded, SimpleNamespace())
        workers.settle()
    assert len(calls) == frozen
    assert (archive in sys.path_importer_cache) == (archive in zipimport._zip_directory_cache) == (not frozen)
    assert importlib.machinery.PathFinder.find_spec("there", [archive]) is not None       # and it is found again
