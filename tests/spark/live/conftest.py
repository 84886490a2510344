"""A Spark session and a broker for the tests that run Spark. Skipped without pyspark or a Java."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore.errors import ConfigError
from kafkacore.spark import ensure_java
from kafkacore.testing import EmbeddedCluster
from tests.interop.kafka_server import KafkaServer, why_unavailable
from tests.interop.spark_connector import connector_jars


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark/live" in str(item.path):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"))
            if item.get_closest_marker("kafka") and why_unavailable():
                item.add_marker(pytest.mark.skip(why_unavailable()))
            if importlib.util.find_spec("pyspark") is None:
                item.add_marker(pytest.mark.skip("no pyspark: pip install kafkacore[spark]"))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One session for all of them, `local[2]`; with Spark's own connector if a test compares with it."""
    try:
        ensure_java()
    except ConfigError as error:
        pytest.skip(str(error))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    compares = why_unavailable() is None and any(item.get_closest_marker("kafka") for item in request.session.items)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "1g")
            .config("spark.jars", connector_jars() if compares else "")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedCluster]:
    """One broker for all of them; each test has topics of its own."""
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """One Apache Kafka, for the tests marked so; its cleaner does not wait, and records of any age stay."""
    with KafkaServer(log_cleaner_backoff_ms=50, log_retention_ms=-1, auto_create_topics_enable="false") as server:
        yield server
