"""`commitOffsetsToGroup`: finished offsets show in the group, and a coordinator that is away does not stop the query. No Spark session."""

from __future__ import annotations

import logging

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer
from kafkacore.testing import Disconnect, EmbeddedCluster

pytest.importorskip("pyspark")

from kafkacore.spark import source
from kafkacore.spark.options import source_options
from tests.spark.driven import places

FIND_COORDINATOR = 10


def test_offsets_show_in_the_group_and_a_missing_coordinator_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source, "GROUP_COMMIT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(source, "IDLE_POLL_MS", 0)
    with EmbeddedCluster() as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.create_topic("t")
        for _ in range(10):
            producer.send("t", "x")
        producer.flush()
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", "commitOffsetsToGroup": "g"}
        options = source_options({**given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}, streaming=True)
        reader = source.KafkaStreamReader(options, source.KAFKA_SCHEMA)
        limit = reader.getDefaultReadLimit()

        def committed() -> int | None:
            with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
                [found] = admin.list_group_offsets("g").values()
                return None if found is None else found.offset

        start = reader.initialOffset()
        assert reader.latestOffset(start, limit) == start  # batch 0 pins it
        first = reader.latestOffset(start, limit)
        assert (places(first), committed()) == ({"t": {"0": 4}}, 0)
        cluster.control(FIND_COORDINATOR, lambda request: Disconnect())
        with caplog.at_level(logging.WARNING, "kafkacore.spark"):
            second = reader.latestOffset(first, limit)
            assert places(second) == {"t": {"0": 8}}  # the query goes on
            assert places(reader.latestOffset(second, limit)) == {"t": {"0": 10}}
        warnings = [each.getMessage() for each in caplog.records if "commitOffsetsToGroup" in each.getMessage()]
        assert len(warnings) == 1  # and is not held up again for a while
        assert warnings[0].startswith("commitOffsetsToGroup: the offsets of group g are behind those of the query: ")
        cluster.control(FIND_COORDINATOR, None)
        reader._commit_again_at = 0.0
        assert reader.latestOffset({"t": {"0": 10}}, limit) == {"t": {"0": 10}}
        assert committed() == 10
        reader.stop()
