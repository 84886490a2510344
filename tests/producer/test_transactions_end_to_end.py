"""Transactions of the producer on the embedded cluster: one broker and three, transaction.version 1 and 2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import transaction_support
from transaction_support import GUARD_S, new_topic, transactional, values_in

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors, protocol
from kafkacore.admin import FeatureUpdate
from kafkacore.clock import JumpingClock
from kafkacore.errors import Code, IllegalStateError, KafkaTimeoutError
from kafkacore.testing import Disconnect, EmbeddedCluster
from kafkacore.types import ConsumerGroupMetadata
from tests.kit.inside import sender_of
from tests.kit.waiting import fresh

pytestmark = pytest.mark.usefixtures("client_face")
FACED = [transaction_support]

CASES = [(1, 2), (3, 1)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]} brokers, version {case[1]}")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    brokers, version = request.param
    with EmbeddedCluster(brokers=brokers, features={"transaction.version": version}) as cluster:
        yield cluster


@pytest.fixture
def single() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def test_committed_records_are_seen_and_aborted_ones_are_not(cluster: Any) -> None:
    topic, servers = new_topic(cluster), cluster.bootstrap_servers
    many = [f"many {number:05}" for number in range(1_000)]
    with transactional(servers) as producer:
        for nth in range(4):
            with producer.transaction():
                for index in range(3):
                    producer.send(topic, f"committed {nth} {index}", partition=index)
            producer.begin_transaction()
            aborted = [producer.send(topic, f"aborted {nth} {index}", partition=index) for index in range(3)]
            producer.flush()
            assert [future.exception() for future in aborted] == [None] * 3
            producer.abort_transaction()
        with producer.transaction():
            producer.send_many(topic, many)
    assert values_in(servers, topic) == sorted(f"committed {nth} {index}" for nth in range(4) for index in range(3)) + many
    assert len(values_in(servers, topic, isolation_level="read_uncommitted")) == 1_024


def test_offsets_are_committed_with_the_records(cluster: Any) -> None:
    topic, servers, group = new_topic(cluster), cluster.bootstrap_servers, fresh("g")
    partition = TopicPartition(topic, 0)
    with transactional(servers) as producer, KafkaConsumer(bootstrap_servers=servers, group_id=group) as consumer:
        consumer.assign([partition])
        with pytest.raises(TypeError, match="offsets must be a mapping"):
            producer.send_offsets_to_transaction([(topic, 0, 7)], group)
        producer.begin_transaction()
        producer.send(topic, "a", partition=1)
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(3, None, "note")}, group)
        producer.abort_transaction()
        assert consumer.committed(partition) is None
        with producer.transaction():
            producer.send(topic, "b", partition=1)
            producer.send_offsets_to_transaction({partition: OffsetAndMetadata(4, None, "note")}, group)
        assert consumer.committed(partition) == OffsetAndMetadata(4, None, "note")
        with producer.transaction():
            producer.send_offsets_to_transaction({partition: 5}, ConsumerGroupMetadata(group))
        assert consumer.committed(partition) == OffsetAndMetadata(5)


def test_a_member_of_an_old_generation_commits_nothing(cluster: Any) -> None:
    topic, servers, group = new_topic(cluster), cluster.bootstrap_servers, fresh("g")
    partition = TopicPartition(topic, 0)
    with transactional(servers) as producer:
        with KafkaConsumer(bootstrap_servers=servers, group_id=group) as consumer:
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(timeout=1)
            stale = consumer.consumer_group_metadata()
        producer.begin_transaction()
        producer.send(topic, "zombie", partition=1)
        with pytest.raises((errors.UnknownMemberId, errors.IllegalGeneration)) as refused:
            producer.send_offsets_to_transaction({partition: 9}, stale)
        assert refused.value.txn_requires_abort
        assert not refused.value.fatal
        with pytest.raises((errors.UnknownMemberId, errors.IllegalGeneration)):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, "next", partition=1)
    assert values_in(servers, topic) == ["next"]


@pytest.mark.parametrize("writes", [False, True])
def test_a_zombie_is_fenced(cluster: Any, writes: bool) -> None:
    topic, servers, name = new_topic(cluster), cluster.bootstrap_servers, fresh("tx")
    zombie = transactional(servers, name)
    zombie.begin_transaction()
    zombie.send(topic, "zombie", partition=0).result(GUARD_S)
    with transactional(servers, name) as heir, heir.transaction():
        heir.send(topic, "heir", partition=0)
    if writes:
        assert zombie.send(topic, "from the grave", partition=0).exception(GUARD_S) is not None
        with pytest.raises(errors.KafkaError):
            zombie.commit_transaction()
    else:
        with pytest.raises(errors.ProducerFenced, match="taken over") as fenced:
            zombie.commit_transaction()
        assert fenced.value.fatal
        for call in (zombie.begin_transaction, lambda: zombie.send(topic, "from the grave", partition=0)):
            with pytest.raises(errors.ProducerFenced):
                call()
    zombie.close()
    assert values_in(servers, topic) == ["heir"]


def test_a_send_that_failed_makes_the_commit_fail(cluster: Any) -> None:
    topic, servers = new_topic(cluster), cluster.bootstrap_servers
    small = fresh("small")
    cluster.create_topic(small, partitions=1, replication_factor=1, configs={"max.message.bytes": "1000"})
    with transactional(servers) as producer:
        producer.begin_transaction()
        producer.send(topic, "good", partition=0)
        bad = producer.send(small, b"x" * 5_000, partition=0)
        with pytest.raises(errors.TransactionAbortable) as failed:
            producer.commit_transaction()
        assert isinstance(failed.value.__cause__, errors.RecordTooLarge)
        assert failed.value.topic == small
        assert isinstance(bad.exception(GUARD_S), errors.RecordTooLarge)
        with pytest.raises(errors.TransactionAbortable, match="abort_transaction"):
            producer.send(topic, "refused", partition=0)
        with pytest.raises(errors.TransactionAbortable):
            producer.commit_transaction()
        producer.abort_transaction()
        for nth in range(3):
            with producer.transaction():
                producer.send(topic, f"after {nth}", partition=0)
                producer.send(small, f"after {nth}", partition=0)
    assert values_in(servers, topic) == ["after 0", "after 1", "after 2"]
    assert values_in(servers, small, 1) == ["after 0", "after 1", "after 2"]


def test_closing_aborts_what_is_open(cluster: Any) -> None:
    topic, servers = new_topic(cluster), cluster.bootstrap_servers
    with transactional(servers) as producer:
        producer.begin_transaction()
        producer.send(topic, "open", partition=0).result(GUARD_S)
    assert values_in(servers, topic) == []  # it would wait for the end of an open transaction


# ---- what needs a cluster of its own -------------------------------------------------------------------------------------------------


def set_version(cluster: EmbeddedCluster, level: int) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.update_features({"transaction.version": FeatureUpdate(level, "upgrade" if level == 2 else "safe_downgrade")}).check()


@pytest.mark.aio_at_length
def test_a_change_of_the_transaction_version_while_running() -> None:
    """The producer goes by what the brokers say last, from transaction to transaction."""
    with EmbeddedCluster(brokers=1, features={"transaction.version": 1}) as cluster:
        topic, servers = new_topic(cluster), cluster.bootstrap_servers
        seen: list[str] = []
        cluster.control("AddPartitionsToTxn", lambda request: seen.append("added"))
        with transactional(servers) as producer:
            for level in (2, 1, 2):
                with producer.transaction():
                    producer.send(topic, f"before {level}", partition=0)
                set_version(cluster, level)
                producer.begin_transaction()
                producer.send(topic, f"across {level}", partition=0).result(GUARD_S)
                cluster.stop_broker(1)  # new connections tell the level
                cluster.start_broker(1)
                producer.commit_transaction()
                seen.clear()
                with producer.transaction():
                    producer.send(topic, f"after {level}", partition=0)
                    producer.send(topic, f"after {level}", partition=1)
                assert bool(seen) is (level == 1)
        expected = [f"{when} {level}" for level in (2, 1, 2) for when in ("before", "across", "after", "after")]
        assert values_in(servers, topic) == sorted(expected)


def test_a_commit_that_timed_out_can_be_called_again(single: Any) -> None:
    topic, servers = new_topic(single), single.bootstrap_servers
    with transactional(servers) as producer:
        producer.begin_transaction()
        producer.send(topic, "kept", partition=0).result(GUARD_S)
        single.pause_broker(1)
        with pytest.raises(KafkaTimeoutError, match="call commit_transaction"):
            producer.commit_transaction(timeout=0.2)
        with pytest.raises(IllegalStateError, match="commit_transaction"):
            producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="commit_transaction"):
            producer.begin_transaction()
        single.resume_broker(1)
        producer.commit_transaction()
        producer.commit_transaction()  # its end is told as often as it is asked for
        with pytest.raises(IllegalStateError, match="committed already"):
            producer.abort_transaction()
    assert values_in(servers, topic) == ["kept"]


def test_init_transactions_that_timed_out_can_be_called_again_and_a_close_does_not_wait_for_it(single: Any) -> None:
    single.pause_broker(1)
    producer, closed = (KafkaProducer(bootstrap_servers=single.bootstrap_servers, transactional_id=name) for name in ("x", "y"))
    for each in (producer, closed):
        with pytest.raises(KafkaTimeoutError, match="init_transactions"):
            each.init_transactions(timeout=0.2)
    closed.close(timeout=None)
    assert sender_of(closed).join(0)
    single.resume_broker(1)
    producer.init_transactions()
    with pytest.raises(IllegalStateError):
        producer.commit_transaction()
    producer.close()


ENDINGS = ["FindCoordinator", "InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn"]


@pytest.mark.aio_at_length
@pytest.mark.parametrize(
    ("version", "fault"),
    [(2, "disconnect"), (1, "drop the answer's connection late"), (2, "not coordinator"), (2, "loading"), (1, "concurrent")],
)
def test_a_coordinator_that_errs_in_each_phase(version: int, fault: str) -> None:
    """Each request of a transaction meets the fault twice; the transaction is committed all the same, once."""
    with EmbeddedCluster(brokers=1, features={"transaction.version": version}) as cluster:
        topic, servers, group = new_topic(cluster), cluster.bootstrap_servers, fresh("g")
        erred: dict[str, int] = dict.fromkeys(ENDINGS, 0)
        for api in ENDINGS:
            cluster.control(api, erring(api, fault, erred))
        with transactional(servers, request_timeout_ms=2_000, delivery_timeout_ms=60_000) as producer:
            for nth in range(2):
                with producer.transaction():
                    producer.send(topic, f"{nth}", partition=0)
                    producer.send_offsets_to_transaction({TopicPartition(topic, 0): nth + 1}, group)
        missing = {api for api, count in erred.items() if not count}
        assert missing <= ({"AddPartitionsToTxn", "AddOffsetsToTxn"} if version == 2 else set()) | (
            {"Produce", "FindCoordinator"} if fault in ("not coordinator", "loading", "concurrent") else set()
        )
        assert values_in(servers, topic) == ["0", "1"]
        with KafkaConsumer(bootstrap_servers=servers, group_id=group) as consumer:
            assert consumer.committed(TopicPartition(topic, 0)) == OffsetAndMetadata(2)


def erring(api: str, fault: str, erred: dict[str, int]) -> Any:
    code = {"not coordinator": Code.NOT_COORDINATOR, "loading": Code.COORDINATOR_LOAD_IN_PROGRESS}.get(fault, Code.CONCURRENT_TRANSACTIONS)

    def refused(request: Any) -> Any:
        if api == "EndTxn":
            return protocol.EndTxnResponse(error_code=code)
        if api == "InitProducerId":
            return protocol.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        if api == "AddOffsetsToTxn":
            return protocol.AddOffsetsToTxnResponse(error_code=code)
        if api == "AddPartitionsToTxn":
            part, topic = protocol.AddPartitionsToTxnPartitionResult, protocol.AddPartitionsToTxnTopicResult
            results = [
                topic(name=each.name, results_by_partition=[part(partition_index=n, partition_error_code=code) for n in each.partitions])
                for each in request.v3_and_below_topics
            ]
            return protocol.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        if api == "TxnOffsetCommit":
            part, topic = protocol.TxnOffsetCommitResponsePartition, protocol.TxnOffsetCommitResponseTopic
            results = [
                topic(name=each.name, partitions=[part(partition_index=one.partition_index, error_code=code) for one in each.partitions])
                for each in request.topics
            ]
            return protocol.TxnOffsetCommitResponse(topics=results)
        return None

    def control(request: Any) -> Any:
        if erred[api] >= 2:
            return None
        late = fault.startswith("drop") and erred[api] % 2
        reply = None if late else Disconnect if fault.startswith(("drop", "disconnect")) else refused(request)
        erred[api] += late or reply is not None
        return reply

    return control


LATE = r"was open for [0-9,]+ ms, and the coordinator aborts it after transaction_timeout_ms \(60,?000\)"


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.aio_at_length)])
def test_a_transaction_that_lasts_too_long_is_aborted_and_the_producer_goes_on(version: int) -> None:
    """By version 1 it ends its producer. The clocks of both sides are moved by hand."""
    clock = JumpingClock()
    with EmbeddedCluster(brokers=1, faults=True, features={"transaction.version": version}) as cluster:
        topic, servers = new_topic(cluster), cluster.bootstrap_servers
        with transactional(servers, clock=clock) as producer:
            producer.begin_transaction()
            producer.send(topic, "late", partition=0).result(GUARD_S)
            clock.sleep(61_000)
            cluster.jump_clock(1, 61_000, asleep=True)
            assert values_in(servers, topic) == []  # returns when the transaction has ended
            with pytest.raises(errors.KafkaError, match=LATE) as failed:
                producer.commit_transaction()
            if version == 1:
                assert isinstance(failed.value, errors.ProducerFenced) and failed.value.fatal
                return
            assert failed.value.txn_requires_abort, failed.value
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send(topic, "in time", partition=0).result(GUARD_S)
            clock.sleep(61_000)
            cluster.jump_clock(1, 61_000, asleep=True)
            with contextlib.suppress(errors.KafkaError):
                producer.send(topic, "later", partition=0).result(GUARD_S)
            with pytest.raises(errors.KafkaError, match=LATE):
                producer.commit_transaction()
            producer.abort_transaction()
            with producer.transaction():
                producer.send(topic, "next", partition=0)
        assert values_in(servers, topic) == ["next"]


def test_a_fenced_producer_whose_time_is_not_over_is_not_called_late() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        topic, servers = new_topic(cluster), cluster.bootstrap_servers
        with transactional(servers) as producer, KafkaAdminClient(bootstrap_servers=servers) as admin:
            producer.begin_transaction()
            producer.send(topic, "x", partition=0).result(GUARD_S)
            admin.fence_producers([producer.config.transactional_id]).check()
            with pytest.raises(errors.ProducerFenced) as fenced:
                producer.commit_transaction()
            assert "aborts it after" not in str(fenced.value)
