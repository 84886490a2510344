"""Spark's own Kafka connector, for comparisons: four jars, fetched by Maven once and kept beside Kafka's.

Its release for Spark 4.3.0 is not published; 4.2.0 runs there. What else the connector names as dependencies Spark has itself.
"""

from __future__ import annotations

from tests.kit.kafka_server import fetched, jar_directory

VERSION = "4.2.0"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),  # the newest published; used for delegation tokens only
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def connector_jars() -> str:
    """For `spark.jars`: the paths, with commas."""
    where = fetched(jar_directory().parent / f"spark-connector-{VERSION}", ARTIFACTS, alone=True)
    return ",".join(str(path) for path in sorted(where.glob("*.jar")))
