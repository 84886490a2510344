"""Kafka for PySpark: source, sink, fast path, pipelines. Needs `pip install kafkacore[spark]`; nothing here is imported by `import kafkacore`.

`spark.read.format("kafkacore")` finds `pyspark_kafkacore.DefaultSource` by itself.
"""

from __future__ import annotations

from kafkacore.spark.java import ensure_java

__all__ = ["ensure_java"]
