"""A SPARK_HOME of links: what is in it, when there is none, and that nothing stays behind in the environment."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkacore.errors import ConfigError
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
    (packages / "pyspark" / "python" / "lib" / "pyspark.zip").unlink()  # not as pip lays it down
    assert given() is None
    (packages / "pyspark" / "jars").rmdir()  # pyspark-client has none
    assert given() is None


def test_none_where_spark_would_not_take_the_package_or_cannot_be_told(
    packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert given() is not None
    (packages / "pyspark" / "spark-distribution").mkdir()  # pip with PYSPARK_HADOOP_VERSION
    assert given() is None
    (packages / "pyspark" / "spark-distribution").rmdir()
    monkeypatch.setenv("KAFKACORE_CACHE", str(tmp_path / f"a{os.pathsep}b"))  # would be two places on each path
    assert given() is None
    monkeypatch.delenv("KAFKACORE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)  # as in a container, with any number for a user
    assert given() is None


def test_a_relative_cache_is_where_it_was_named(packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKACORE_CACHE", "relative")
    assert Path(given() or "").parent == tmp_path / "relative"


def test_what_is_in_the_way_stays_and_nothing_gathers_beside_it(packages: Path) -> None:
    found = Path(given() or "")
    (found / "jars").unlink()
    (found / "jars").mkdir()
    assert given() is None and given() is None
    assert sorted(each.name for each in found.iterdir()) == ["bin", "jars", "python"]


def test_defaults_of_the_installation_are_seen(packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They may name a master."""
    assert not home.has_defaults()
    for place, there in ((packages / "pyspark", None), (tmp_path / "spark", str(tmp_path / "spark"))):
        if there is not None:
            monkeypatch.setenv("SPARK_HOME", there)
            assert not home.has_defaults()
        (place / "conf").mkdir(parents=True)
        (place / "conf" / "spark-defaults.conf").touch()
        assert home.has_defaults()


def test_only_where_all_is_one_process() -> None:
    assert [each for each in ("local", "local[*]", "local-cluster[2,1,1024]", "yarn", "") if home.is_local(each)] == ["local", "local[*]"]


# ---- off, and away


def test_a_variable_switches_it_off(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("0", "false", " FALSE "):
        monkeypatch.setenv(home.SWITCH, value)
        assert given() is None
    assert not (packages.parent / "cache").exists()
    monkeypatch.setenv(home.SWITCH, "1")
    assert given() is not None
    monkeypatch.setenv(home.SWITCH, "maybe")
    with pytest.raises(ConfigError, match="KAFKACORE_FAST_HOME must be 0 or 1, not 'maybe'"), home.compiled_home():
        pytest.fail("it was taken")


def another(packages: Path, name: str) -> Path:
    """The home of another environment, which exists."""
    site = packages.parent / name
    shutil.copytree(packages, site)
    made = home._made(site / "pyspark", site / "py4j")
    assert made is not None
    return made


def test_homes_of_environments_that_no_longer_exist_are_removed(packages: Path) -> None:
    left, kept = another(packages, "removed"), another(packages, "half")
    (left / "bin").unlink()  # as after a removal that was interrupted
    (left / "python" / "more").mkdir()
    shutil.rmtree(packages.parent / "removed")
    shutil.rmtree(packages.parent / "half" / "py4j")  # one link leads nowhere, the others do not
    foreign = left.parent / "spark-home-of-a-user"
    foreign.mkdir()
    (foreign / "jars").symlink_to("/nowhere/at/all")
    (foreign / "notes").write_text("mine")
    (left.parent / "java").mkdir()
    own = Path(given() or "")
    assert not left.exists() and not left.is_symlink()
    assert kept.is_dir() and own.is_dir() and (own / "jars").is_dir() and (left.parent / "java").is_dir()
    assert (foreign / "notes").read_text() == "mine"
    assert (packages / "pyspark" / "jars").is_dir() and (packages / "py4j").is_dir()  # no link was followed


def test_homes_are_made_and_removed_by_one_process_at_a_time(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = another(packages, "removed")
    shutil.rmtree(packages.parent / "removed")
    found: list[str | None] = []
    asked, real = threading.Event(), fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        asked.set()
        real(descriptor, operation)

    thread = threading.Thread(target=lambda: found.append(str(home._made(packages / "pyspark", packages / "py4j"))))
    with (left.parent / "spark-home.lock").open("a") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", flock)
        thread.start()
        assert asked.wait(60) and left.exists() and not found  # it waits for the other process
    thread.join(60)
    assert found and not left.exists()


def test_a_cache_that_is_read_only_serves_the_home_it_has(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, left = given(), another(packages, "removed")
    shutil.rmtree(packages.parent / "removed")
    real = Path.open

    def refused(path: Path, *arguments: object, **more: object) -> object:
        if path.name == "spark-home.lock":
            raise PermissionError(13, "Read-only file system")
        return real(path, *arguments, **more)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(Path, "open", refused)
    assert given() == first and left.exists()
