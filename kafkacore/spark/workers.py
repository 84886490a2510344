"""Being a good tenant of Spark's Python workers. No pyspark here."""

from __future__ import annotations

import gc
import os
import sys
import zipimport

PARALLELISM = "KAFKACORE_PARALLELISM"
"""An environment variable of the JVM, which its Python processes inherit: Spark does not tell a data source what the session has."""
MUCH_MORE = 1.1
_settled_modules = 0


def parallelism() -> int:
    """The session's default parallelism, where `kafkacore.spark.session` or a pipeline started Spark; 0 where it is not known."""
    text = os.environ.get(PARALLELISM, "")
    return int(text) if text.isdecimal() else 0


def settle() -> None:
    """Spares a worker of Spark's daemon what every further task would cost it. Call it where a task is done.

    The daemon calls `gc.collect` behind every task of a worker that it keeps, which walks over all that every loaded module has made: 20 ms
    with pandas and pyarrow, in which the worker takes no task. A stream of small batches spent nine tenths of its Python CPU there. So what
    is loaded when a task is done is left out; what is made later is collected as before. What is left out once is never collected: so it
    is done after a collection, and again only when much more is loaded, not for every task that imports a module of its own.

    Before every task Spark calls `importlib.invalidate_caches`, and for that every archive on the path where something was ever looked for
    is listed again: pyspark.zip alone is 5 ms. An archive is opened again by the next import that looks there.

    Source: pyspark.daemon.manager, pyspark.worker_util.setup_spark_files.
    """
    global _settled_modules
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != "pyspark.daemon":
        return
    if len(sys.modules) > _settled_modules * MUCH_MORE:           # behind its first task Spark loads pandas, for the commit message
        _settled_modules = len(sys.modules)
        gc.collect()
        gc.freeze()
    listings = getattr(zipimport, "_zip_directory_cache", None)   # private: another Python may keep them elsewhere, or not at all
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            sys.path_importer_cache.pop(path, None)
            if isinstance(listings, dict):
                listings.pop(finder.archive, None)
