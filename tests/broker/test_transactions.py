"""Transactions over the wire: markers, the last stable offset, aborted transactions, restarts, both protocols.

What clients see of them is in tests/producer/test_transactions_end_to_end.py and tests/interop/test_accept_transactions.py.
"""

import dataclasses
from collections import Counter
from types import SimpleNamespace

import pytest
from controlling import create_topic
from group_bench import names_without_likeness
from test_handlers import Bench

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.groups.topic_regex import Regex
from kafkacore.broker.handlers import txn
from kafkacore.broker.server import Broker
from kafkacore.broker.txns import state
from kafkacore.broker.txns.state import MAX_EPOCH
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.records import read_batches
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.inside import contexts_of
from tests.kit.wire import Wire, produce_request

TXN = "txn"
PRODUCE = {0: 11, 1: 11, 2: 12}
END = {0: 4, 1: 4, 2: 5}


class TxnWire:
    """A transactional producer and a reader, request by request.

    Args:
        version: the transaction.version it speaks.
    """

    def __init__(self, address, version=2):
        self.wire = Wire(address)
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences = Counter()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.wire.sock.close()

    def find(self):
        found = self.wire.ask(p.FindCoordinatorRequest(key_type=1, coordinator_keys=[TXN]), 6)
        assert found.coordinators[0].error_code == 0

    def init(self, timeout_ms=60_000):
        self.find()
        got = self.wire.ask(p.InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=timeout_ms), 5)
        if got.error_code == 0:
            self.producer_id, self.epoch, self.sequences = got.producer_id, got.producer_epoch, Counter()
        return got.error_code

    def add(self, *partitions, topic="t"):
        topics = [p.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))]
        got = self.wire.ask(
            p.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=TXN,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            ),
            3,
        )
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in got.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }

    def send(self, *values, partition=0, epoch=None, sequence=None, transactional_id=TXN):
        """One batch of the transaction; the protocol of version 1 adds the partition first."""
        if self.version < 2 and epoch is None:
            assert set(self.add(partition).values()) == {0}
        records = batch(
            values,
            producer_id=self.producer_id,
            epoch=self.epoch if epoch is None else epoch,
            sequence=self.sequences[partition] if sequence is None else sequence,
            is_transactional=True,
        )
        request = produce_request(records, partition=partition)._replace(transactional_id=transactional_id)
        got = self.wire.ask(request, PRODUCE[self.version]).responses[0].partition_responses[0]
        if got.error_code == 0:
            self.sequences[partition] += len(values)
        return got.error_code

    def end(self, commit=True, epoch=None):
        got = self.wire.ask(
            p.EndTxnRequest(
                transactional_id=TXN,
                producer_id=self.producer_id,
                producer_epoch=self.epoch if epoch is None else epoch,
                committed=commit,
            ),
            END[self.version],
        )
        if got.error_code == 0 and self.version >= 2 and epoch is None:
            if (got.producer_id, got.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = got.producer_id, got.producer_epoch
        return got.error_code

    def fetch(self, offset=0, committed=True, partition=0, max_bytes=1 << 20):
        part = p.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = p.FetchRequest(
            max_wait_ms=0, min_bytes=0, isolation_level=int(committed), topics=[p.FetchTopic(topic="t", partitions=[part])]
        )
        return self.wire.ask(request, 12).responses[0].partitions[0]

    def latest(self, committed):
        part = p.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = p.ListOffsetsRequest(
            replica_id=-1, isolation_level=int(committed), topics=[p.ListOffsetsTopic(name="t", partitions=[part])]
        )
        return self.wire.ask(request, 7).topics[0].partitions[0].offset

    def describe(self):
        return self.wire.ask(p.DescribeTransactionsRequest(transactional_ids=[TXN]), 0).transaction_states[0]


def kinds(data):
    """(values, or the control type) of each batch."""
    return [
        batch.control_type if batch.is_control else [record.value for record in batch.records()]
        for batch in read_batches(data, check_crcs=True)
    ]


@pytest.fixture(params=[0, 1, 2])
def version(request):
    return request.param


@pytest.fixture
def cluster(version):
    config = {"transaction.state.log.num.partitions": 3}
    with EmbeddedCluster(features={"transaction.version": version}, config=config) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


@pytest.fixture
def client(cluster, version):
    with TxnWire(cluster.bootstrap_servers, version) as client:
        assert client.init() == 0
        yield client


def test_an_aborted_transaction_is_listed(client):
    client.send(b"a")
    hidden = client.fetch()
    assert (hidden.high_watermark, hidden.last_stable_offset, bytes(hidden.records)) == (1, 0, b"")
    assert kinds(client.fetch(committed=False).records) == [[b"a"]]
    assert (client.latest(True), client.latest(False)) == (0, 1)
    first = client.producer_id
    assert client.end(commit=False) == 0
    client.send(b"b")
    assert client.end() == 0
    seen = client.fetch()
    assert kinds(seen.records) == [[b"a"], 0, [b"b"], 1]
    assert seen.aborted_transactions == [p.AbortedTransaction(producer_id=first, first_offset=0)]
    assert client.fetch(2).aborted_transactions == []
    client.send(b"c")
    assert client.end(commit=False) == 0
    assert len(client.fetch(0).aborted_transactions) == 2
    assert len(client.fetch(0, max_bytes=1).aborted_transactions) == 1  # the other one lies behind what was read


def test_what_is_refused(client, version):
    """A batch after the end of its transaction would open a hanging one (KIP-890)."""
    assert client.send(b"a", epoch=client.epoch, transactional_id=None) == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.send(b"a", epoch=client.epoch) == (0 if version == 2 else Code.TRANSACTION_ABORTABLE)  # it was not added
    client.send(b"a")
    epoch, sequence = client.epoch, client.sequences[0]
    client.end(commit=False)
    late = client.send(b"late", epoch=epoch, sequence=sequence)
    assert late == (Code.INVALID_PRODUCER_EPOCH if version == 2 else Code.TRANSACTION_ABORTABLE)  # Produce v11 knows it
    assert client.latest(True) == client.latest(False)
    assert client.add(0, 9) == {("t", 0): Code.OPERATION_NOT_ATTEMPTED, ("t", 9): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert client.describe().transaction_state == "CompleteAbort"


def test_what_brokers_and_administrators_ask(client):
    client.send(b"a")
    one = p.AddPartitionsToTxnTransaction(
        transactional_id=TXN,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        verify_only=True,
        topics=[p.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
    )
    other = one._replace(transactional_id="nobody", verify_only=False)
    first, second = client.wire.ask(p.AddPartitionsToTxnRequest(transactions=[one, other]), 5).results_by_transaction
    assert [each.partition_error_code for each in first.topic_results[0].results_by_partition] == [0, Code.TRANSACTION_ABORTABLE]
    assert [each.partition_error_code for each in second.topic_results[0].results_by_partition] == [Code.INVALID_PRODUCER_ID_MAPPING] * 2
    assert client.wire.ask(p.AddPartitionsToTxnRequest(transactions=[]), 4).results_by_transaction == []
    empty = [one._replace(transactional_id=""), other._replace(transactional_id="", topics=other.topics)]
    for wanted in empty:
        (refused,) = client.wire.ask(p.AddPartitionsToTxnRequest(transactions=[wanted]), 4).results_by_transaction
        assert {each.partition_error_code for each in refused.topic_results[0].results_by_partition} == {Code.INVALID_REQUEST}
    for request, version in (
        (p.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=-1), 5),
        (p.EndTxnRequest(transactional_id="", producer_id=client.producer_id, producer_epoch=client.epoch, committed=True), 4),
    ):
        assert client.wire.ask(request, version).error_code == Code.INVALID_REQUEST
    described = client.wire.ask(p.DescribeTransactionsRequest(transactional_ids=[""]), 0)
    assert [each.error_code for each in described.transaction_states] == [Code.INVALID_REQUEST]
    for timeout_ms, code in ((0, Code.INVALID_TRANSACTION_TIMEOUT), (1, 0), (900_000, 0), (900_001, Code.INVALID_TRANSACTION_TIMEOUT)):
        request = p.InitProducerIdRequest(transactional_id="of another", transaction_timeout_ms=timeout_ms)
        answer = client.wire.ask(request, 5)
        assert answer.error_code == code and (not code or (answer.producer_id, answer.producer_epoch) == (-1, -1))
    topics = [p.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])]
    marker = p.WritableTxnMarker(
        producer_id=client.producer_id, producer_epoch=client.epoch, transaction_result=False, topics=topics, coordinator_epoch=0
    )
    for epoch, code in ((client.epoch, 0), (client.epoch - 1, Code.INVALID_PRODUCER_EPOCH)):
        written = p.WriteTxnMarkersRequest(markers=[marker._replace(producer_epoch=epoch)])
        found = client.wire.ask(written, 1).markers[0].topics[0].partitions
        assert [each.error_code for each in found] == [code, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.latest(True) == 2  # a hanging transaction is ended so


def test_offsets_in_a_transaction_of_groups_and_topics_that_are_not_there():
    bench = Bench()
    request = p.AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g")
    assert bench.ask(request, 4).error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.cluster.topics.keys() == {"__consumer_offsets"}  # made by asking
    assert bench.ask(request, 4).error_code == Code.NOT_COORDINATOR
    bench.topic("t", 2)

    def commit(version, *topics, group_id="g"):
        wanted = [
            p.TxnOffsetCommitRequestTopic(
                name=name, partitions=[p.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in indexes]
            )
            for name, *indexes in topics
        ]
        answer = bench.ask(
            p.TxnOffsetCommitRequest(transactional_id="x", group_id=group_id, producer_id=1, producer_epoch=0, topics=wanted), version
        )
        return {topic.name: [(each.partition_index, each.error_code) for each in topic.partitions] for topic in answer.topics}

    unknown, runtime = Code.UNKNOWN_TOPIC_OR_PARTITION, bench.state.groups.runtime
    assert commit(5, ("u", 0, 1), ("t", 2)) == {"u": [(0, unknown), (1, unknown)], "t": [(2, unknown)]}
    assert commit(5, ("t", 0, 1, 7)) == {"t": [(7, unknown), (0, Code.COORDINATOR_NOT_AVAILABLE), (1, Code.COORDINATOR_NOT_AVAILABLE)]}
    assert commit(5, ("t", 0), group_id="") == {"t": [(0, Code.INVALID_GROUP_ID)]}
    runtime.serves = lambda partition: False
    runtime.write_transactional = lambda at, pid, epoch, operation, done, *more: done(errors.CoordinatorLoadInProgress())
    codes = [commit(version, ("t", 1))["t"][0][1] for version in (1, 2)]
    assert codes == [Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS]


def test_a_list_that_failed_and_one_that_matches():
    bench, found = Bench(), [state.Transaction(name, nth, state=state.TransactionState.EMPTY) for nth, name in enumerate(("a1", "b", "a2"))]
    outcomes = [errors.CoordinatorLoadInProgress(), found, found]
    bench.state.transactions.coordinator.list = lambda wanted, done: done(outcomes.pop(0))

    def ask(pattern):
        answer = bench.ask(p.ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        return answer.error_code, [tuple(each) for each in answer.transaction_states]

    assert ask(None) == (Code.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert ask(None) == (0, [("a1", 0, "Empty"), ("b", 1, "Empty"), ("a2", 2, "Empty")])
    assert ask("a.") == (0, [("a1", 0, "Empty"), ("a2", 2, "Empty")])


def test_a_pattern_that_takes_long_is_matched_in_steps():
    ids = ["".join(names_without_likeness(8)), "b", *names_without_likeness(4)]
    slow = "(a|b|.)*a(a|b|.){200}"
    pattern, costs = Regex(slow), []
    steps = txn._matching(pattern, [SimpleNamespace(transactional_id=each) for each in ids])
    while True:
        before = pattern.cost
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        costs.append(pattern.cost - before)
    assert [each.transactional_id for each in found] == [each for each in ids if Regex(slow).matches(each)]
    assert len(costs) > 10
    assert max(costs) < 2 * txn.MATCHING_STEP_COST


def test_what_administrators_see(client):
    wire = client.wire
    client.send(b"a", b"b")
    described = client.describe()
    assert (described.transaction_state, described.producer_id, described.transaction_timeout_ms) == ("Ongoing", client.producer_id, 60_000)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0])]
    ask = p.DescribeProducersRequest(topics=[p.DescribeProducersTopicRequest(name="t", partition_indexes=[0, 7])])
    found, missing = wire.ask(ask, 0).topics[0].partitions
    assert missing.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    producer = found.active_producers[0]
    assert (producer.producer_id, producer.last_sequence, producer.current_txn_start_offset) == (client.producer_id, 1, 0)
    for version, request, expected in [
        (0, p.ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"]), [TXN]),
        (0, p.ListTransactionsRequest(state_filters=["Empty"]), []),
        (0, p.ListTransactionsRequest(state_filters=["Nonsense"]), []),
        (0, p.ListTransactionsRequest(producer_id_filters=[client.producer_id + 1]), []),
        (1, p.ListTransactionsRequest(duration_filter=100_000), []),
        (2, p.ListTransactionsRequest(transactional_id_pattern="t.n"), [TXN]),
        (2, p.ListTransactionsRequest(transactional_id_pattern="t"), []),
    ]:
        answer = wire.ask(request, version)
        assert [each.transactional_id for each in answer.transaction_states] == expected
        assert answer.unknown_state_filters == [label for label in request.state_filters if label == "Nonsense"]
    assert wire.ask(p.ListTransactionsRequest(transactional_id_pattern="("), 2).error_code == Code.INVALID_REGULAR_EXPRESSION
    unknown = wire.ask(p.DescribeTransactionsRequest(transactional_ids=["nobody", ""]), 0).transaction_states
    assert [each.error_code for each in unknown] == [Code.TRANSACTIONAL_ID_NOT_FOUND, Code.INVALID_REQUEST]
    client.end()
    assert client.describe().transaction_state == "CompleteCommit"


# ---- time and restarts


class ClockedBroker:
    """A broker whose clock is moved by hand."""

    def __init__(self, **config):
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.broker = Broker(BrokerConfig(transaction_state_log_num_partitions=3, **config), clock=self.clock)

    def __enter__(self):
        self.broker.start()
        self.broker.call(lambda: create_topic(self.broker.state.controller, "t", 2))
        return self

    def __exit__(self, *exc):
        self.broker.stop()

    def move(self, ms):
        def step():
            self.clock.advance(ms)
            self.broker.state.timer.advance_clock()

        self.broker.call(step)


def test_an_open_transaction_survives_a_restart_times_out_and_its_id_expires():
    hour = 3_600_000
    with ClockedBroker(transactional_id_expiration_ms=10 * hour, connections_max_idle_ms=-1) as stage:
        with TxnWire(stage.broker.address) as client:
            client.init(timeout_ms=5000)
            client.send(b"a")
        stage.broker.stop()
        stage.clock.advance(3000)
        stage.broker.start()
        with TxnWire(stage.broker.address) as client:
            client.find()
            assert client.describe().transaction_state == "Ongoing"
            stage.move(2002)
            assert client.describe().transaction_state == "CompleteAbort"
            assert client.latest(True) == 2
            stage.move(9 * hour)
            assert client.describe().error_code == 0
            stage.move(2 * hour)
            assert client.describe().error_code == Code.TRANSACTIONAL_ID_NOT_FOUND
            assert client.send(b"a") == Code.INVALID_PRODUCER_ID_MAPPING


def use_up_epochs(stage, client):
    """The client's next epoch is the last; who asks the controller for a producer id is put on the list returned."""
    state = stage.broker.state
    held = []

    def use_up():
        shard = contexts_of(state.transactions.runtime)[state.transactions.coordinator.partition_for(TXN)].shard
        shard.transactions[TXN] = dataclasses.replace(shard.transactions[TXN], producer_epoch=MAX_EPOCH - 1)
        state.producer_ids.take = held.append

    stage.broker.call(use_up)
    client.epoch = MAX_EPOCH - 1
    return held


def test_a_timed_out_transaction_waits_for_the_producer_id_it_needs():
    """Its epochs are used up, and the controller takes its time to give another id."""
    with ClockedBroker() as stage, TxnWire(stage.broker.address) as client:
        client.init(timeout_ms=5000)
        held = use_up_epochs(stage, client)
        assert client.send(b"a") == 0
        stage.move(5002)
        assert client.describe().transaction_state == "Ongoing"
        assert len(held) == 1
        stage.broker.call(lambda: held.pop()(77))
        described = client.describe()
        assert (described.transaction_state, described.producer_id, described.producer_epoch) == ("CompleteAbort", 77, 0)
        assert client.latest(True) == 2


def test_a_timeout_that_failed_late_leaves_the_next_transaction_its_own():
    """The producer ended its transaction while the coordinator was waiting for the producer id it wanted to abort it with."""
    with ClockedBroker() as stage, TxnWire(stage.broker.address) as client:
        client.init(timeout_ms=5000)
        held = use_up_epochs(stage, client)
        assert client.send(b"a") == 0
        stage.move(5002)
        stage.broker.call(lambda: stage.broker.state.transactions.coordinator._spare_ids.append(77))
        assert (client.end(), client.producer_id, client.send(b"b")) == (0, 77, 0)
        stage.broker.call(lambda: held.pop()(errors.NetworkError("no controller")))
        stage.move(5002)
        assert client.describe().transaction_state == "CompleteAbort"


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_survives_its_coordinator(committed):
    """The decision is in the log, the markers are not: the coordinator that loads it completes the transaction."""
    with ClockedBroker() as stage:
        with TxnWire(stage.broker.address) as client:
            client.init()
            client.send(b"a")
            sender = stage.broker.state.transactions.sender
            stage.broker.call(lambda: setattr(sender, "send", lambda *_: None))  # the broker dies before it sends one
            client.end(commit=committed)
            assert client.describe().transaction_state == ("PrepareCommit" if committed else "PrepareAbort")
            assert client.init() == Code.CONCURRENT_TRANSACTIONS
            assert client.latest(True) == 0
        stage.broker.stop()
        del sender.send
        stage.broker.start()
        with TxnWire(stage.broker.address) as client:
            client.find()
            assert client.describe().transaction_state == ("CompleteCommit" if committed else "CompleteAbort")
            assert client.latest(True) == 2
            assert kinds(client.fetch().records)[-1] == int(committed)
            assert client.init() == 0


def test_transactions_on_disk_survive_a_restart(tmp_path):
    """One open, one aborted, one committed; then another life of the cluster, in which the open one is committed."""
    config = {"transaction.state.log.num.partitions": 3}
    with EmbeddedCluster(data_dir=tmp_path, config=config) as cluster:
        cluster.create_topic("t", partitions=2)
        with TxnWire(cluster.bootstrap_servers) as client:
            client.init()
            for commit in (False, True):
                client.send(b"%d" % commit)
                client.end(commit)
            client.send(b"open")
            who = client.producer_id, client.epoch, client.sequences
    with EmbeddedCluster(data_dir=tmp_path, config=config) as cluster, TxnWire(cluster.bootstrap_servers) as client:
        client.find()
        client.producer_id, client.epoch, client.sequences = who
        seen = client.fetch()
        assert kinds(seen.records) == [[b"0"], 0, [b"1"], 1]
        assert [each.first_offset for each in seen.aborted_transactions] == [0]
        assert (seen.last_stable_offset, seen.high_watermark) == (4, 5)
        assert client.send(b"more") == 0
        assert client.end() == 0
        assert kinds(client.fetch(4).records) == [[b"open"], [b"more"], 1]
