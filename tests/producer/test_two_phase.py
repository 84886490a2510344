"""Transactions that are prepared by one client and ended by another: the rules alone, and on the embedded cluster."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import transaction_support
from transaction_support import GUARD_S, new_topic, transactional, values_in

from kafkacore import (
    KafkaConsumer,
    OffsetAndMetadata,
    PreparedState,
    PreparedTransaction,
    TopicPartition,
    TwoPhaseClient,
    errors,
    protocol,
)
from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.broker.faults import Disconnect
from kafkacore.clock import JumpingClock
from kafkacore.errors import Code, IllegalStateError, UsageError
from kafkacore.producer.transactions import Described, Phase, Standing
from kafkacore.producer.two_phase import LAST_EPOCH, STATES, Ending, Seen, state_of
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row
from tests.kit.waiting import fresh, until

FACED = [transaction_support]

CASES = [(1, 2), (3, 1)]
PREPARED = PreparedTransaction("x", 7, 3, 1_000, 60_000, 2, (TopicPartition("t", 0),))
OPEN = Seen("Ongoing", 7, 3, 1_000)


# ---- the data ------------------------------------------------------------------------------------------------------------------------


def test_it_is_plain_data() -> None:
    assert PreparedTransaction.from_json(PREPARED.to_json()) == pickle.loads(pickle.dumps(PREPARED)) == PREPARED
    assert isinstance(PreparedTransaction.from_json(PREPARED.to_json()).partitions[0], TopicPartition)
    assert PreparedTransaction.from_json(b'{"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}').expires_at_ms is None
    assert PREPARED.expires_at_ms == 61_000
    assert len({PREPARED, PreparedTransaction.from_json(PREPARED.to_json())}) == 1


BITS = {"producer_id": 63, "producer_epoch": 15, "started_at_ms": 63, "timeout_ms": 31, "transaction_version": 15}


def test_numbers_have_the_bits_of_their_fields() -> None:
    for least in (True, False):
        numbers = {name: -1 if least else 2**bits - 1 for name, bits in BITS.items()}
        found = PreparedTransaction.from_json(odd(**numbers, partitions=[["t", 0], ["u", 2**31 - 1]]))
        assert {name: getattr(found, name) for name in BITS} == numbers
        assert found.partitions == (("t", 0), ("u", 2**31 - 1))


@each_row("version", [1, 2])
def test_it_is_what_the_coordinator_has_said(version: int) -> None:
    standing = Standing(Phase.PREPARED, version == 2, set(), 7, 3, prepared=Described("Ongoing", 1_000, 60_000, PREPARED.partitions))
    assert PreparedTransaction.of("x", standing) == replace(PREPARED, transaction_version=version)
    with pytest.raises(IllegalStateError, match="ended by another thread"):
        PreparedTransaction.of("x", standing._replace(prepared=None))


def odd(**fields: Any) -> str:
    """A prepared transaction with something that is wrong."""
    return json.dumps({"transactional_id": "x", "producer_id": 1, "producer_epoch": 0} | fields)


@each_row(
    ("text", "said"),
    [
        ("", "it is not JSON text: ''"),
        ("[" * 100_000, "it is not JSON text: '[[["),
        (b"\xff", "it is not JSON text: b'\\xff'"),
        (5, "it is not JSON text: 5"),
        ("[]", "it is not a JSON object: []"),
        ("null", "it is not a JSON object: None"),
        ("{}", "transactional_id, producer_id, producer_epoch are missing"),
        ('{"transactional_id": "x", "producer_epoch": 0}', "producer_id is missing"),
        (odd(epoch=1), "it has no field epoch"),
        *((odd(partitions=partitions), "pairs of a topic and a number") for partitions in (5, [3], ["t1"], [["t", -1]], [["t", 2**31]])),
        *((odd(producer_id=wrong), "producer_id of a prepared transaction cannot be") for wrong in ("1", 1.5, 2**63)),
        *((odd(producer_epoch=wrong), "producer_epoch of a prepared transaction cannot be") for wrong in (40_000, True)),
        *((odd(transactional_id=wrong), "a prepared transaction has a transactional id") for wrong in ("", 3)),
        (odd(partitions=[[3, 0]]), "pairs of a topic and a number"),
        *((odd(**{name: wrong}), f"{name} of a prepared transaction cannot be") for name, bits in BITS.items() for wrong in (-2, 2**bits)),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_no_prepared_transaction_is_refused_in_our_words(text: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        PreparedTransaction.from_json(text)
    assert said in str(caught.value)
    assert not any(word in str(caught.value) for word in ("__init__", "argument", "unpack", "iterable", "object has no"))
    assert len(str(caught.value)) < 250


# ---- what the coordinator's answer says ----------------------------------------------------------------------------------------------


@each_row(
    ("seen", "state"),
    [
        (OPEN, PreparedState.OPEN),
        (OPEN._replace(state="PrepareCommit", epoch=4), PreparedState.COMMITTED),
        (OPEN._replace(state="CompleteCommit", epoch=4), PreparedState.COMMITTED),
        (OPEN._replace(state="PrepareAbort", epoch=4), PreparedState.ABORTED),
        (OPEN._replace(state="CompleteAbort", epoch=4), PreparedState.ABORTED),
        (OPEN._replace(state="PrepareEpochFence"), PreparedState.ABORTED),
        (OPEN._replace(state="Empty", epoch=5, started_at_ms=-1), PreparedState.UNKNOWN),
        (OPEN._replace(started_at_ms=1_001), PreparedState.UNKNOWN),
        (OPEN._replace(state="CompleteCommit", started_at_ms=1_001), PreparedState.UNKNOWN),
        (OPEN._replace(producer_id=8), PreparedState.UNKNOWN),
        (OPEN._replace(state="CompleteCommit", producer_id=8, epoch=0), PreparedState.UNKNOWN),
        (OPEN._replace(state="Dead"), PreparedState.UNKNOWN),
    ],
    ids=str,
)
def test_the_states(seen: Seen, state: PreparedState) -> None:
    assert state_of(PREPARED, seen) is state


@each_row("name", STATES)
def test_a_producer_id_that_is_used_up_is_replaced_with_the_end(name: str) -> None:
    assert LAST_EPOCH == 32_766
    last = PreparedTransaction("x", 7, LAST_EPOCH, 1_000, 60_000)
    assert state_of(last, Seen(name, 8, 0, 1_000)) is (STATES[name] if name.startswith("Complete") else PreparedState.UNKNOWN)
    assert state_of(last, Seen(name, 8, 1, 1_000)) is PreparedState.UNKNOWN


def ending(commit: bool | None, wall_ms: int = 2_000, prepared: PreparedTransaction = PREPARED) -> Ending:
    return Ending(prepared, commit, wall_ms)


@each_row("commit", [True, False])
def test_what_waits_is_ended(commit: bool) -> None:
    it = ending(commit)
    assert not it.asks_end, "first it is looked at: another transaction may have its epoch"
    it.seen(OPEN)
    assert it.asks_end
    assert not it.done
    it.sent_end = True
    it.ended()
    assert it.result() == (PREPARED, False, None)


@each_row("code", [Code.INVALID_TXN_STATE, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING])
def test_an_end_that_is_refused_is_looked_at_again_once(code: int) -> None:
    for seen, wanted in (
        (OPEN._replace(state="CompleteCommit", epoch=4), None),
        (OPEN._replace(state="CompleteAbort", epoch=4), errors.PreparedTransactionAborted),
        (OPEN, errors.for_code(code)),
    ):
        it = ending(True)
        it.seen(OPEN)
        assert it.refused(errors.from_code(code))
        assert not it.asks_end
        it.seen(seen)
        assert type(it.error) is (wanted or type(None))
        assert it.done


@each_row("code", [Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.CONCURRENT_TRANSACTIONS, Code.NETWORK_EXCEPTION])
def test_after_a_transient_error_it_is_looked_at_again(code: int) -> None:
    it = ending(True)
    for _ in range(20):
        assert it.refused(errors.from_code(code))
        it.seen(OPEN)
        assert it.asks_end
        assert it.refused(errors.from_code(code))
    assert not it.done
    assert len(it.attempts) == 10


def test_other_errors_end_the_call() -> None:
    it = ending(True)
    it.seen(OPEN)
    assert not it.refused(errors.from_code(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert it.error.code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@each_row(
    ("version", "wall_ms", "epoch", "timed_out"),
    [(2, 61_000, 4, True), (2, 60_999, 4, False), (1, 61_000, 4, True), (1, 61_000, 3, False), (2, 61_000, 3, True)],
)
def test_it_says_whose_abort_it_was(version: int, wall_ms: int, epoch: int, timed_out: bool) -> None:
    it = ending(True, wall_ms, PreparedTransaction("x", 7, 3, 1_000, 60_000, version, (TopicPartition("t", 4),)))
    it.seen(OPEN._replace(state="CompleteAbort", epoch=epoch))
    assert isinstance(it.error, errors.PreparedTransactionAborted)
    assert it.error.timed_out is timed_out
    assert ("transaction_timeout_ms of 60000" in str(it.error)) is timed_out
    assert "t-4" in str(it.error)
    assert "again" in str(it.error)


def test_what_cannot_be_found_out_says_what_is_there_now() -> None:
    for_it = ending(True)
    for_it.forgotten()
    assert "(the coordinator has forgotten it)" in str(for_it.error)
    for_it = ending(False)
    for_it.seen(OPEN._replace(started_at_ms=2, epoch=5))
    assert isinstance(for_it.error, errors.PreparedTransactionUnknown)
    assert "(it is Ongoing with epoch 5 now)" in str(for_it.error)
    look = ending(None)
    look.seen(OPEN._replace(state="CompleteAbort"))
    assert (look.state, look.error, look.asks_end) == (PreparedState.ABORTED, None, False)


# ---- on clusters ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]} brokers, version {case[1]}")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    brokers, version = request.param
    with EmbeddedCluster(brokers=brokers, features={"transaction.version": version}) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: EmbeddedCluster, client_face: str) -> Iterator[TwoPhaseClient]:
    with TwoPhaseClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10) as client:
        yield client


def prepared_by(cluster: EmbeddedCluster, topic: str, *values: str, **settings: Any) -> PreparedTransaction:
    """A transaction of a producer that is closed."""
    with transactional(cluster.bootstrap_servers, **settings) as producer:
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value, partition=0)
        return producer.prepare_transaction()


def test_another_client_commits_one_and_aborts_one(cluster: EmbeddedCluster, client: TwoPhaseClient) -> None:
    topic = new_topic(cluster)
    prepared = prepared_by(cluster, topic, "a", "b")
    assert prepared.partitions == (TopicPartition(topic, 0),)
    assert client.states([prepared]) == [PreparedState.OPEN], "closing its producer does not end it"
    assert client.commit(prepared)
    assert values_in(cluster.bootstrap_servers, topic) == ["a", "b"]
    assert not client.commit(prepared), "it was committed already"
    assert client.states([prepared]) == [PreparedState.COMMITTED]
    with pytest.raises(errors.PreparedTransactionCommitted, match="committed and cannot be aborted"):
        client.abort(prepared)
    prepared = prepared_by(cluster, topic, "c")
    assert client.abort(prepared)
    assert values_in(cluster.bootstrap_servers, topic) == ["a", "b"]
    assert not client.abort(prepared), "it was aborted already"
    with pytest.raises(errors.PreparedTransactionAborted, match="another process aborted it") as lost:
        client.commit(prepared)
    assert not lost.value.timed_out


def test_offsets_of_a_group_wait_for_the_end(cluster: EmbeddedCluster, client: TwoPhaseClient) -> None:
    topic, group = new_topic(cluster), fresh("g")
    where = TopicPartition(topic, 0)
    with (
        transactional(cluster.bootstrap_servers) as producer,
        KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group) as consumer,
    ):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({where: 5}, group)
        prepared = producer.prepare_transaction()
        assert [each.topic for each in prepared.partitions] == ["__consumer_offsets"]
        assert client.commit(prepared)
        producer.commit_transaction()
        assert consumer.committed(where) == OffsetAndMetadata(5)


def test_what_has_no_end(cluster: EmbeddedCluster, client: TwoPhaseClient) -> None:
    """Nothing written; what another producer with the transactional id has ended; what the coordinator never heard of."""
    topic = new_topic(cluster)
    with transactional(cluster.bootstrap_servers) as producer:
        producer.begin_transaction()
        prepared = producer.prepare_transaction()
    assert prepared.expires_at_ms is None
    assert not client.commit(prepared)
    assert not client.abort(prepared)
    assert client.states([prepared]) == [PreparedState.NOTHING]
    prepared = prepared_by(cluster, topic, "lost")
    with transactional(cluster.bootstrap_servers, prepared.transactional_id):
        with pytest.raises(errors.PreparedTransactionUnknown, match="Empty with epoch"):
            client.commit(prepared)
    assert values_in(cluster.bootstrap_servers, topic) == []
    with pytest.raises(errors.PreparedTransactionUnknown, match="forgotten"):
        client.commit(PreparedTransaction(fresh("never"), 1, 0, 1_000, 1_000))


def test_the_block_leaves_a_prepared_transaction_open(cluster: EmbeddedCluster, client: TwoPhaseClient) -> None:
    topic = new_topic(cluster)
    with transactional(cluster.bootstrap_servers) as producer:
        with producer.transaction():
            producer.send(topic, "a", partition=0)
            first = producer.prepare_transaction()
        assert client.states([first]) == [PreparedState.OPEN]
        producer.commit_transaction()
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, "b", partition=0)
            second = producer.prepare_transaction()
            raise ZeroDivisionError
    assert client.states([first, second])[1] is PreparedState.OPEN
    assert client.commit(second)
    assert values_in(cluster.bootstrap_servers, topic) == ["a", "b"]


def test_the_producer_goes_on_after_an_end_by_another_client(cluster: EmbeddedCluster, client: TwoPhaseClient) -> None:
    """And a late end of its first transaction does not touch the next one."""
    topic = new_topic(cluster)
    with transactional(cluster.bootstrap_servers) as producer:
        producer.begin_transaction()
        producer.send(topic, "first", partition=0)
        first = producer.prepare_transaction()
        with pytest.raises(IllegalStateError, match="prepared"):
            producer.send(topic, "too late", partition=0)
        with pytest.raises(IllegalStateError, match="prepared"):
            producer.begin_transaction()
        assert client.commit(first)
        producer.commit_transaction()  # it learns how it ended
        producer.begin_transaction()
        producer.send(topic, "second", partition=0)
        second = producer.prepare_transaction()
        assert client.states([first, second]) == [PreparedState.UNKNOWN, PreparedState.OPEN]
        for end in (client.commit, client.abort):
            with pytest.raises(errors.PreparedTransactionUnknown, match="used again"):
                end(first)
        assert client.states([second]) == [PreparedState.OPEN]
        assert client.abort(second)
        with pytest.raises(errors.KafkaError) as lost:
            producer.commit_transaction()
        assert lost.value.txn_requires_abort
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, "third", partition=0)
        third = producer.prepare_transaction()
        assert client.commit(third)
        with pytest.raises(errors.PreparedTransactionCommitted):
            producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, "fourth", partition=0)
    assert values_in(cluster.bootstrap_servers, topic) == ["first", "fourth", "third"]


def test_many_at_once_and_one_that_fails(cluster: EmbeddedCluster, client: TwoPhaseClient) -> None:
    topic = new_topic(cluster)
    prepared = [prepared_by(cluster, topic, str(nth)) for nth in range(12)]
    assert client.abort(prepared[5])
    busy = [protocol.EndTxnResponse(error_code=Code.CONCURRENT_TRANSACTIONS)] * 2
    last = prepared[-1].transactional_id
    cluster.control("EndTxn", lambda request: busy.pop() if busy and request.transactional_id == last else None)
    done = client.commit_all(prepared)
    cluster.control("EndTxn", None)
    assert not busy
    assert [each.prepared for each in done] == prepared
    assert [nth for nth, each in enumerate(done) if each.error is not None] == [5]
    assert not any(each.already for each in done)
    assert [each.already for each in client.commit_all(prepared)] == [nth != 5 for nth in range(12)]
    assert client.abort_all([prepared[5]]) == [(prepared[5], True, None)]
    assert values_in(cluster.bootstrap_servers, topic) == sorted(str(nth) for nth in range(12) if nth != 5)


# ---- what needs a cluster of its own -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_that_errs(version: int) -> None:
    """Both requests meet each fault twice; the transaction is committed all the same, and this call has done it."""
    with (
        EmbeddedCluster(brokers=1, features={"transaction.version": version}) as cluster,
        TwoPhaseClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=1) as client,
    ):
        for fault in ("request lost", "answer lost", "left out", "not coordinator", "concurrent", "loading"):
            topic = new_topic(cluster)
            prepared = prepared_by(cluster, topic, fault)
            left = dict.fromkeys(("DescribeTransactions", "EndTxn"), 2)
            for api in left:
                cluster.control(api, erring(api, fault, left))
            assert client.commit(prepared, timeout=GUARD_S)
            assert left == {"DescribeTransactions": 0, "EndTxn": {"answer lost": 1, "left out": 2}.get(fault, 0)}
            for api in left:
                cluster.control(api, None)
            assert not client.commit(prepared)
            assert values_in(cluster.bootstrap_servers, topic) == [fault]


def erring(api: str, fault: str, left: dict[str, int]) -> Callable[[Any], Any]:
    codes = {
        "not coordinator": Code.NOT_COORDINATOR,
        "concurrent": Code.CONCURRENT_TRANSACTIONS,
        "loading": Code.COORDINATOR_LOAD_IN_PROGRESS,
    }

    def control(request: Any) -> Any:
        if not left[api] or (api, fault) == ("EndTxn", "left out"):
            return None
        left[api] -= 1
        if fault == "left out":
            return protocol.DescribeTransactionsResponse(transaction_states=[])
        if fault in ("request lost", "answer lost"):
            return Disconnect(handle=fault == "answer lost")
        if api == "EndTxn":
            return protocol.EndTxnResponse(error_code=codes[fault])
        state = protocol.DescribeTransactionsTransactionState(
            error_code=codes[fault], transactional_id=request.transactional_ids[0], transaction_state="", transaction_timeout_ms=0,
            transaction_start_time_ms=0, producer_id=0, producer_epoch=0, topics=[],
        )  # fmt: skip
        return protocol.DescribeTransactionsResponse(transaction_states=[state])

    return control


def test_a_call_that_timed_out_says_what_to_do() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        topic = new_topic(cluster)
        prepared = prepared_by(cluster, topic, "kept")
        with TwoPhaseClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            cluster.pause_broker(1)
            with pytest.raises(errors.KafkaTimeoutError, match="make the same call again"):
                client.commit(prepared, timeout=0.1)
            cluster.resume_broker(1)
            client.commit(prepared)
            client.close()
            with pytest.raises(errors.ClosedError):
                client.commit(prepared)
        assert values_in(cluster.bootstrap_servers, topic) == ["kept"]


@pytest.mark.parametrize("version", [1, 2])
def test_the_coordinators_broker_dies_in_between(version: int) -> None:
    with EmbeddedCluster(brokers=3, features={"transaction.version": version}) as cluster:
        topic = new_topic(cluster)
        with TwoPhaseClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=20) as client:
            prepared = prepared_by(cluster, topic, "kept")
            where = "__transaction_state", partition_for(prepared.transactional_id, cluster.topics()["__transaction_state"])
            for expected in (True, False):
                assert client.states([prepared])
                dying = cluster.leader(*where)
                assert dying is not None
                cluster.kill_broker(dying)
                assert client.commit(prepared, timeout=GUARD_S) is expected
                cluster.start_broker(dying)
        assert values_in(cluster.bootstrap_servers, topic) == ["kept"]


@pytest.mark.parametrize("version", [1, 2])
def test_the_time_of_the_transaction_passes_in_between(version: int) -> None:
    """The broker's clock and the client's are moved by hand; far enough from the end that the machine may be busy."""
    clock = JumpingClock()
    with EmbeddedCluster(brokers=1, faults=True, features={"transaction.version": version}) as cluster:
        topic = new_topic(cluster)
        prepared = prepared_by(cluster, topic, "lost", transaction_timeout_ms=600_000)
        with TwoPhaseClient(bootstrap_servers=cluster.bootstrap_servers, clock=clock) as client:
            cluster.jump_clock(1, 400_000, asleep=True)
            clock.sleep(400_000)
            assert client.states([prepared]) == [PreparedState.OPEN]
            cluster.jump_clock(1, 201_000, asleep=True)
            clock.sleep(201_000)
            until(lambda: client.states([prepared]) != [PreparedState.OPEN], "its time is over")
            with pytest.raises(errors.PreparedTransactionAborted, match="longer than its transaction_timeout_ms of 600000") as lost:
                client.commit(prepared)
            assert lost.value.timed_out
            assert topic in str(lost.value)
            assert not client.abort(prepared)
        assert values_in(cluster.bootstrap_servers, topic) == []
