"""A member's process is killed right before or after a request of the group: others take over, and no record is skipped.

The hook is the test's own: the process replaces `CoordinatorLink.send` and kills itself there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading

import pytest

from kafkacore.consumer import KafkaConsumer
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.clusters import embedded
from tests.kit.waiting import fresh

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")]

PARTITIONS = 3
EACH = 20
GUARD_S = 60
SESSION_MS = 700

VICTIM = """
    import json, os, signal, sys
    from kafkacore.consumer import KafkaConsumer
    from kafkacore.net.coordinator import CoordinatorLink

    topic, settings, api, nth, when = json.loads(sys.argv[1])
    left = nth

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    well = CoordinatorLink.send

    def send(self, kind, build, now_ms, answered, **options):
        global left
        here = kind.__name__ == api + "Request"
        leaves = api == "leave" and getattr(build(1), "member_epoch", 0) < 0
        left -= here or leaves
        if not (here or leaves) or left:
            return well(self, kind, build, now_ms, answered, **options)
        if when == "before":
            die()

        def late(response):
            if when == "answered":
                die()
            answered(response)

        well(self, kind, build, now_ms, late, **options)
        if when == "sent":
            for _ in range(3):  # the request is written
                self._client.poll(0, now_ms)
            die()

    CoordinatorLink.send = send
    consumer = KafkaConsumer(auto_offset_reset="earliest", enable_auto_commit=False, **settings)
    consumer.subscribe([topic])
    for _ in range(6):
        for _ in range(1_000):
            if found := consumer.poll(0.1, max_records=5):
                break
        for records in found.values():
            for r in records:
                print(json.dumps([r.partition, r.offset]), flush=True)
        consumer.commit()
    consumer.close()
"""


cluster = embedded(
    brokers=1,
    config={
        "group_consumer_heartbeat_interval_ms": 50,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_min_session_timeout_ms": SESSION_MS,
    },
)


def settings_of(cluster: EmbeddedCluster, topic: str, protocol: str) -> dict[str, object]:
    own = {"heartbeat_interval_ms": 50, "session_timeout_ms": SESSION_MS} if protocol == "classic" else {}
    given = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": topic, "group_protocol": protocol, "max_poll_interval_ms": 3_000}
    return {**given, **own}


def produce(cluster: EmbeddedCluster, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many(topic, [b"x"] * (PARTITIONS * EACH), partitions=[i % PARTITIONS for i in range(PARTITIONS * EACH)])


CLASSIC = [("JoinGroup", 2), ("SyncGroup", 1), ("OffsetCommit", 2), ("LeaveGroup", 1)]
CONSUMER = [("ConsumerGroupHeartbeat", 1), ("ConsumerGroupHeartbeat", 2), ("OffsetCommit", 2), ("leave", 1)]


@pytest.mark.parametrize("when", ["before", "sent", "answered"])
@pytest.mark.parametrize(
    ("protocol", "api", "nth"), [*(("classic", api, nth) for api, nth in CLASSIC), *(("consumer", api, nth) for api, nth in CONSUMER)]
)
def test_another_member_takes_over(cluster: EmbeddedCluster, protocol: str, api: str, nth: int, when: str) -> None:
    topic = fresh()
    cluster.create_topic(topic, partitions=PARTITIONS)
    produce(cluster, topic)
    settings = settings_of(cluster, topic, protocol)
    arguments = json.dumps([topic, settings, api, nth, when])
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(VICTIM), arguments], stdout=subprocess.PIPE, text=True) as victim:
        guard = threading.Timer(GUARD_S, victim.kill)
        guard.start()
        said, _ = victim.communicate()
        guard.cancel()
    assert victim.returncode == -9, "it was killed where it should be"
    processed = {tuple(json.loads(line)) for line in said.splitlines()}
    assert bool(processed) == (api in ("OffsetCommit", "LeaveGroup", "leave"))
    produce(cluster, topic)
    with KafkaConsumer(auto_offset_reset="earliest", enable_auto_commit=False, **settings) as survivor:
        tps = [TopicPartition(topic, i) for i in range(PARTITIONS)]
        committed = {tp.partition: 0 if at is None else at.offset for tp, at in survivor.committed(tps).items()}
        survivor.subscribe([topic])
        read: dict[int, list[int]] = {i: [] for i in range(PARTITIONS)}
        for _ in range(GUARD_S * 10):
            for records in survivor.poll(0.1).values():
                for r in records:
                    read[r.partition].append(r.offset)
            if all(offsets and offsets[-1] == 2 * EACH - 1 for offsets in read.values()):
                break
        survivor.commit()
        assert survivor.assignment() == set(tps)
    assert read == {i: list(range(committed[i], 2 * EACH)) for i in read}, "it goes on where the last commit is"
    last = sum(committed.values())
    assert all((i, offset) in processed for i in committed for offset in range(committed[i])), "nothing is skipped"
    if api == "OffsetCommit":
        assert last in {"before": [5], "sent": [5, 10], "answered": [10]}[when]
