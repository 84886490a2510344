"""Kafka for PySpark: source and sink. Needs the extra `spark`; `import kafkacore` loads nothing of it.

`spark.read.format("kafkacore")` finds `pyspark_kafkacore.DefaultSource` by itself. Here is what goes beyond a format: the fast path, the
sink for update mode, lag, and a Java:

    session, ensure_java, ensure_spark           a SparkSession on this machine, with a Java found or provided
    read, stream, fetch                          the fast path
    sink, foreach_batch                          writing, in every output mode
    LagListener                                  how far queries are behind
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kafkacore.errors import ConfigError
from kafkacore.spark.java import NO_SPARK, ensure_java, ensure_spark, session

if TYPE_CHECKING:
    from kafkacore.spark.fast import fetch, foreach_batch, read, sink, stream
    from kafkacore.spark.lag import LagListener

__all__ = ["ensure_java", "ensure_spark", "session", "read", "stream", "fetch", "sink", "foreach_batch", "LagListener"]

_LATER = {"read": "fast", "stream": "fast", "fetch": "fast", "sink": "fast", "foreach_batch": "fast", "LagListener": "lag"}


def __getattr__(name: str) -> Any:
    """What needs pyspark is loaded when it is asked for.

    Raises:
        ConfigError: a package that Spark needs is missing; says what to do.
    """
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kafkacore":
            raise
        raise ConfigError(f"kafkacore.spark.{name}: the package {error.name.partition('.')[0]} is missing. {NO_SPARK}") from error
