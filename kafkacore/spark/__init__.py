"""Kafka for PySpark: source and sink. Needs `pip install kafkacore[spark]`; `import kafkacore` loads nothing of it.

`spark.read.format("kafkacore")` finds `pyspark_kafkacore.DefaultSource` by itself.
"""

from __future__ import annotations

from kafkacore.spark.java import ensure_java

__all__ = ["ensure_java"]
