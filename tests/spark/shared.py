"""What tests with and without a session share; no pyspark is needed for it."""

from __future__ import annotations

from typing import Any

from kafkacore.spark.decoded import HEADER
from kafkacore.testing import EmbeddedCluster
from tests.kit.records import read


def given(cluster: EmbeddedCluster, **more: str) -> dict[str, str]:
    """Options of a source or a sink."""
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, **more}


def dead_letters(cluster: EmbeddedCluster, topic: str, count: int) -> list[Any]:
    """All that a topic has, sorted by the offset that they had."""
    found = read(cluster.bootstrap_servers, topic, count)
    assert len(found) == count == cluster.high_watermark(topic, 0)
    return sorted(found, key=lambda each: int(dict(each.headers)[HEADER + "offset"]))
