"""Where a pipeline's Kafka is, for the functions of its flows."""

from __future__ import annotations

from typing import Any

from kafkacore.errors import ConfigError

PREFIX = "spark.kafkacore."
"""Spark settings under this prefix are options of every source and sink of the pipeline."""
BOOTSTRAP = f"{PREFIX}kafka.bootstrap.servers"


def kafka_options(spark: Any = None) -> dict[str, str]:
    """The options by which sources and sinks of this pipeline reach Kafka: `.options(**kafka_options(), subscribe="orders")`.

    They are the settings `spark.kafkacore.kafka.*` of the pipeline's configuration; `kafkacore pipeline run -b HOST:PORT` goes before
    them. Secrets stay references (`secret://env/NAME`).

    Args:
        spark: the session; default the active one.

    Raises:
        ConfigError: no Kafka is named.
    """
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
    found = {name.removeprefix(PREFIX): value for name, value in spark.conf.getAll.items() if name.startswith(PREFIX)}
    if "kafka.bootstrap.servers" not in found:
        raise ConfigError(
            f"no Kafka is named: run the pipeline by `kafkacore pipeline run -b HOST:PORT`, or put {BOOTSTRAP} into the configuration "
            "of its spark-pipeline.yml"
        )
    return found


def topic_sink(name: str, topic: str, **options: str) -> None:
    """Adds a sink that writes a topic: what `@append_flow(target=name)` is to write into.

    Args:
        name: of the sink in the pipeline.
        topic: in Kafka.
        options: more options of the sink, such as partitioner="sticky"; dotted names by `**{"kafka.acks": "all"}`.
    """
    from pyspark import pipelines

    pipelines.create_sink(name, "kafkacore", {**kafka_options(), "topic": topic, **options})
