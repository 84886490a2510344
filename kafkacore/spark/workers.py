"""Being a good tenant of Spark's Python workers. No pyspark here."""

from __future__ import annotations

import gc
import sys

_settled = False


def settle() -> None:
    """Takes what is loaded by now out of the collections of garbage that Spark's daemon runs, once per worker process.

    The daemon calls `gc.collect` behind every task of a worker that it keeps, which walks over all that every loaded module has made: 20 ms
    with pandas and pyarrow, in which the worker takes no task. A stream of small batches spent nine tenths of its Python CPU there.
    What is made later is collected as before. Call it where a first task is done, when all that tasks import has been imported.

    Source: pyspark.daemon.manager.
    """
    global _settled
    if _settled:
        return
    _settled = True
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        gc.collect()
        gc.freeze()
