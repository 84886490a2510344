"""Questions create no topic, subscriptions only when they are asked to: on Apache Kafka."""

from __future__ import annotations

import itertools

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, errors

_serial = itertools.count(1)
GUARD_S = 90


@pytest.mark.kafka_alone("tests/consumer")
@pytest.mark.parametrize("allowed", [None, False, True])
def test_what_creates_a_topic(bootstrap_servers: str, allowed: bool | None) -> None:
    asked, wanted = (f"{kind}-{allowed}-{next(_serial)}".lower() for kind in ("asked", "wanted"))
    given = {} if allowed is None else {"allow_auto_create_topics": allowed}
    with (
        KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin,
        KafkaConsumer(bootstrap_servers=bootstrap_servers, retry_backoff_ms=20, **given) as consumer,
    ):
        with pytest.raises(errors.UnknownTopicOrPartition):
            consumer.partitions_for(asked)
        consumer.subscribe([wanted])
        for _ in range(GUARD_S if allowed else 5):
            consumer.poll(0.2 if not allowed else 1)
            if consumer.assignment():
                break
        with pytest.raises((errors.UnknownTopicOrPartition, errors.KafkaTimeoutError)):
            consumer.end_offsets([(asked, 0)], timeout=0.5)
        topics = admin.list_topics()
        assert asked not in topics and (wanted in topics) == (allowed is True)
        admin.delete_topics([name for name in (asked, wanted) if name in topics]).check()
