"""A SPARK_HOME for a Spark on this machine that starts its Python faster.

Spark puts SPARK_HOME/python/lib/pyspark.zip before all else on the path of every Python it starts: a daemon for each kind of worker, and a
process for every streaming query. The archive has sources only, so each of them compiles what it imports, 0.8 of the 1.2 s of CPU that such
a process takes before it does anything. A PySpark from pip lies beside that archive, compiled when it was installed:

    HOME/{bin,conf,jars,sbin}           -> those of the package
    HOME/python/lib/pyspark.zip/pyspark -> the package; py4j in the same way. The names are Spark's own; that they are directories is not

Source: org.apache.spark.api.python.PythonUtils.sparkPythonPath.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

LINKED = ("bin", "conf", "jars", "sbin")


def cache_directory() -> Path:
    """Where files are kept that can be made again: KAFKACORE_CACHE, else XDG's."""
    named = os.environ.get("KAFKACORE_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkacore"


def is_local(master: str) -> bool:
    """Whether driver and executor are one process here; a cluster's machines could not follow the links."""
    return master == "local" or master.startswith("local[")


def has_defaults() -> bool:
    """Whether Spark reads a spark-defaults.conf, which may name a master, where nothing in the environment says so or SPARK_HOME does."""
    home = os.environ.get("SPARK_HOME") or _package("pyspark")
    return home is not None and Path(home, "conf", "spark-defaults.conf").exists()


@contextlib.contextmanager
def compiled_home() -> Iterator[None]:
    """Inside, a JVM that is started gets such a SPARK_HOME; not if one is set, there is no PySpark from pip, or no place for the links."""
    home = None if "SPARK_HOME" in os.environ else _made(_package("pyspark"), _package("py4j"))
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)                            # nobody else asked for it


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0]) if places else None


def _made(pyspark: Path | None, py4j: Path | None) -> Path | None:
    if pyspark is None or py4j is None or not (pyspark / "jars").is_dir():
        return None
    if (pyspark / "spark-distribution").exists():                     # by PYSPARK_HADOOP_VERSION: Spark takes that one, with other jars
        return None
    archives = {each.name: pyspark if each.name.startswith("pyspark") else py4j for each in (pyspark / "python" / "lib").glob("*.zip")}
    links = {Path(name): pyspark / name for name in LINKED if (pyspark / name).exists()}
    links |= {Path("python", "lib", name, package.name): package for name, package in archives.items()}
    if pyspark not in archives.values() or py4j not in archives.values():
        return None
    text = "\n".join(f"{link} {target}" for link, target in sorted(links.items()))
    try:
        home = cache_directory().absolute() / f"spark-home-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if os.pathsep in str(home):
            raise OSError(f"{home} cannot be part of a path, for it has a {os.pathsep} in it")
        for link, target in links.items():
            _link(home / link, target)
    except (OSError, RuntimeError) as error:                          # RuntimeError: this user has no home directory
        log.debug("no SPARK_HOME of links, Spark takes its own: %s", error)
        return None
    return home


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mktemp(prefix=".", dir=link.parent))
    part.symlink_to(target)
    try:
        part.replace(link)                                            # another process may do the same
    except OSError:
        part.unlink()
        raise
