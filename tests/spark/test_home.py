"""A SPARK_HOME of links: what is in it, when there is none, and that nothing stays behind in the environment."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkacore.spark import home


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PySpark as pip lays it down, and an empty cache."""
    site = tmp_path / "site"
    for each in ("pyspark/bin", "pyspark/jars", "pyspark/python/lib", "py4j"):
        (site / each).mkdir(parents=True)
    for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip"):
        (site / "pyspark" / "python" / "lib" / name).touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("KAFKACORE_CACHE", str(tmp_path / "cache"))
    found = {name: SimpleNamespace(submodule_search_locations=[str(site / name)]) for name in ("pyspark", "py4j")}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: found.get(name))
    return site


def given() -> str | None:
    with home.compiled_home():
        inside = os.environ.get("SPARK_HOME")
    assert "SPARK_HOME" not in os.environ
    return inside


def test_it_leads_to_the_package(packages: Path) -> None:
    found = given()
    assert found is not None
    made = {str(each.relative_to(found)): os.readlink(each) for each in Path(found).rglob("*") if each.is_symlink()}
    assert made == {
        "bin": str(packages / "pyspark/bin"),
        "jars": str(packages / "pyspark/jars"),
        "python/lib/pyspark.zip/pyspark": str(packages / "pyspark"),
        "python/lib/py4j-0.10.9.9-src.zip/py4j": str(packages / "py4j"),
    }


def test_it_is_made_once_and_mended(packages: Path) -> None:
    found = Path(given() or "")
    times = {each: each.lstat().st_mtime_ns for each in found.rglob("*")}
    assert given() == str(found) and {each: each.lstat().st_mtime_ns for each in found.rglob("*")} == times
    (found / "jars").unlink()
    (found / "bin").unlink()
    (found / "bin").symlink_to("/nowhere")
    assert given() == str(found)
    assert os.readlink(found / "bin") == str(packages / "pyspark/bin") and (found / "jars").is_dir()


def test_another_pyspark_gets_another(packages: Path) -> None:
    first = given()
    (packages / "pyspark" / "sbin").mkdir()
    assert given() not in (None, first)


def test_a_home_that_is_set_stays(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with home.compiled_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_none_where_it_cannot_be(packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KAFKACORE_CACHE", str(tmp_path / "file"))
    assert given() is None
    monkeypatch.setenv("KAFKACORE_CACHE", str(tmp_path / "cache"))
    (packages / "pyspark" / "python" / "lib" / "pyspark.zip").unlink()              # not as pip lays it down
    assert given() is None
    (packages / "pyspark" / "jars").rmdir()                                           # pyspark-client has none
    assert given() is None


def test_only_where_all_is_one_process() -> None:
    assert [each for each in ("local", "local[*]", "local-cluster[2,1,1024]", "yarn", "") if home.is_local(each)] == ["local", "local[*]"]
