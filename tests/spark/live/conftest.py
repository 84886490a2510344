"""A Spark session, a broker and a Kafka for the tests that run Spark. Skipped with the reason where there is no pyspark, Java or Kafka."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkacore.spark
from kafkacore.errors import ConfigError
from kafkacore.testing import EmbeddedCluster
from tests.interop.spark_connector import connector_jars
from tests.kit.kafka_server import KafkaServer, fetch_jars, why_unavailable

os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")  # of all Sparks, those in processes of their own too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark/live" in str(item.path):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"))
            if importlib.util.find_spec("pyspark") is None:
                item.add_marker(pytest.mark.skip("no pyspark: pip install '.[spark]'"))


@functools.cache
def connector() -> tuple[str, str | None]:
    """The jars of Spark's own connector, for `spark.jars`, and why it cannot be compared with."""
    if (reason := why_unavailable()) is not None:
        return "", reason
    try:
        fetch_jars()
        return connector_jars(), None
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"Maven cannot fetch Kafka and Spark's connector: {error}"


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One session for all of them, `local[2]`; with Spark's own connector if a test compares with it."""
    try:
        kafkacore.spark.ensure_java()
    except ConfigError as error:
        pytest.skip(str(error))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = connector()[0] if any(item.get_closest_marker("kafka") for item in request.session.items) else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = kafkacore.spark.session("tests", "local[2]", spark_jars=jars)
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
    if (reason := connector()[1]) is not None:
        pytest.skip(reason)
    with KafkaServer(log_cleaner_backoff_ms=50, log_retention_ms=-1, auto_create_topics_enable="false") as server:
        yield server
