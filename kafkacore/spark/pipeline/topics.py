"""Where a pipeline's Kafka is, for the functions of its flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkacore.errors import ConfigError

if TYPE_CHECKING:
    from kafkacore import KafkaAdminClient

PREFIX = "spark.kafkacore."
"""Spark settings under this prefix are options of every source and sink of the pipeline."""
BOOTSTRAP = f"{PREFIX}kafka.bootstrap.servers"
NAMED_OTHERWISE = ("kafka.ssl.key.password", "kafka.ssl.endpoint.identification.algorithm")
"""Settings of the connector that kafkacore's clients know under names of their own."""


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


def client_options(configuration: Mapping[str, str]) -> dict[str, str]:
    """The options of a pipeline's sources that say how its Kafka is reached, secrets still as references.

    Args:
        configuration: the session's; of its settings for Kafka those that every client has are used.
    """
    from kafkacore.config import AdminConfig, ConsumerConfig

    both = set(AdminConfig.names()) & set(ConsumerConfig.names())
    known = {f"kafka.{name.replace('_', '.')}" for name in both}.union(NAMED_OTHERWISE)
    given = {name.removeprefix(PREFIX): value for name, value in configuration.items() if name.startswith(PREFIX)}
    return {name: value for name, value in given.items() if name.lower() in known}


def admin_client(configuration: Mapping[str, str], **more: Any) -> KafkaAdminClient:
    """An admin client of a pipeline's Kafka, with the security of its sources.

    Args:
        configuration: as for `client_options`.
        more: settings that go before those.

    Raises:
        ConfigError: a setting or a reference to a secret is wrong.
    """
    from kafkacore import KafkaAdminClient
    from kafkacore.config import AdminConfig
    from kafkacore.spark import secrets
    from kafkacore.spark.options import source_options

    client = source_options({**client_options(configuration), "subscribe": "any"}, streaming=False).client
    known = set(AdminConfig.names())
    chosen = {name.replace(".", "_"): value for name, value in client.items() if name.replace(".", "_") in known}
    return KafkaAdminClient({**secrets.resolve_all(chosen), **more})
