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
import fcntl
import hashlib
import importlib.util
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from kafkacore.errors import ConfigError

log = logging.getLogger(__name__)

LINKED = ("bin", "conf", "jars", "sbin")
SWITCH = "KAFKACORE_FAST_HOME"
"""An environment variable; 0 keeps Spark's own SPARK_HOME."""


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
    """Inside, a JVM that is started gets such a SPARK_HOME; not if one is set, there is no PySpark from pip, or no place for the links.

    Raises:
        ConfigError: KAFKACORE_FAST_HOME is neither 0 nor 1.
    """
    wanted = os.environ.get(SWITCH, "1").strip().lower()
    if wanted not in ("0", "1", "true", "false"):
        raise ConfigError(f"the environment variable {SWITCH} must be 0 or 1, not {wanted!r}")
    skipped = wanted in ("0", "false") or "SPARK_HOME" in os.environ
    home = None if skipped else _made(_package("pyspark"), _package("py4j"))
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)                            # it was not set before


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
        home.parent.mkdir(parents=True, exist_ok=True)
        with _locked(home.parent) as alone:
            for link, target in links.items():
                _link(home / link, target)
            if alone:
                _sweep(home.parent)
    except (OSError, RuntimeError) as error:                          # RuntimeError: this user has no home directory
        log.debug("no SPARK_HOME of links, Spark takes its own: %s", error)
        return None
    return home


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    part = link.with_name(f".{secrets.token_hex(8)}")
    part.symlink_to(target)
    try:
        part.replace(link)                                            # another process may do the same
    except OSError:
        part.unlink()
        raise


@contextlib.contextmanager
def _locked(cache: Path) -> Iterator[bool]:
    """Holds the lock of all homes in a cache; yields False where that is not possible.

    Who makes a home checks its links under the lock, and who removes one finds them broken under the lock. So a home whose environment is
    made again at the same place is not removed behind the check of the process that is about to use it.
    """
    with contextlib.ExitStack() as held:
        try:
            file = held.enter_context((cache / "spark-home.lock").open("a"))
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        except OSError as error:                                      # a cache that is read only may hold a home all the same
            log.debug("%s cannot be locked: %s", cache, error)
            yield False
        else:
            yield True


def _sweep(cache: Path) -> None:
    """Removes the homes whose links all lead nowhere: their environment no longer exists. What is not a link of ours stays."""
    for home in cache.glob("spark-home-*"):
        links = [each for each in home.rglob("*") if each.is_symlink()]
        if not links or any(each.exists() for each in links):
            continue
        with contextlib.suppress(OSError):                            # of another user, or with other files in it
            for link in links:
                link.unlink()
            for directory in sorted((each for each in home.rglob("*") if each.is_dir()), reverse=True):
                directory.rmdir()
            home.rmdir()
