"""What coordinators are asked and what their answers mean, without a network: a producer's transaction, and prepared ones of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from transaction_engine import GROUP, OFFSETS, QUEUES, engine_of

from kafkacore import PreparedState, PreparedTransaction, TopicPartition, TwoPhaseClient, errors, protocol
from kafkacore.clock import ManualClock
from kafkacore.errors import Code, KafkaError
from kafkacore.producer import two_phase, txn_requests
from kafkacore.producer.accumulator import NEVER_MS
from kafkacore.producer.transaction_calls import Transaction, checked_group, checked_offsets, late
from kafkacore.producer.transactions import Ask, Kind, Phase, Step, StepKind, doomed
from kafkacore.producer.txn import TransactionManager
from kafkacore.producer.txn_requests import TransactionRequests
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata
from tests.kit.rows import each_row


class FakeLink:
    """In the place of a `CoordinatorLink`: it is ready, and keeps what it is asked."""

    def __init__(self, links: list[FakeLink], client: Any, key: str, **settings: Any) -> None:
        links.append(self)
        self.key, self.settings = key, settings
        self.is_ready, self.failure, self.wake_ms, self.broker_id = True, None, 40, 3
        self.attempts: list[KafkaError] = []
        self.asked: list[Any] = []
        self.lost_by: list[KafkaError] = []
        self.starts = 0

    def ready(self, now_ms: int) -> bool:
        return self.is_ready

    def next_wake_ms(self, now_ms: int) -> int | None:
        return self.wake_ms

    def send(self, api: Any, build: Any, now_ms: int, callback: Any, min_version: Any = None, max_version: Any = None) -> None:
        self.asked.append(SimpleNamespace(api=api, build=build, answer=callback, versions=(min_version, max_version)))

    def lost(self, error: KafkaError) -> None:
        self.lost_by.append(error)

    def start_anew(self, client: Any) -> None:
        self.starts += 1


def response(body: Any, version: int = 0, error: KafkaError | None = None, disconnected: bool = False) -> Any:
    return SimpleNamespace(response=body, version=version, error=error, disconnected=disconnected, latency_ms=1)


class Bench:
    """TransactionRequests between an engine and fake links."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.links: list[FakeLink] = []
        monkeypatch.setattr(txn_requests, "CoordinatorLink", lambda *arguments, **more: FakeLink(self.links, *arguments, **more))
        known = {"transactional_id": "x", "transaction_timeout_ms": 60_000, "transaction_two_phase_commit_enable": False}
        config: Any = SimpleNamespace(**known | {"retry_backoff_ms": 100, "retry_backoff_max_ms": 1_000} | settings)
        self.engine, self.clock, self.closing, self.failed = engine_of(), ManualClock(), False, []
        self.metadata = SimpleNamespace(fatal_count=0, fatal_error=None)
        self.client: Any = SimpleNamespace(finalized_features={}, metadata=self.metadata)
        self.accumulator: Any = SimpleNamespace(has_incomplete=False)
        self.books = TransactionManager(self.engine.gate)
        self.requests = TransactionRequests(
            engine=self.engine, books=self.books, accumulator=self.accumulator, client=self.client, config=config, clock=self.clock,
            fail_queued=self.failed.append, closing=lambda: self.closing,
        )  # fmt: skip

    def step(self) -> int:
        return self.requests.step(self.clock.now_ms())

    def ready(self) -> None:
        self.engine.submit(StepKind.INIT)
        self.step()
        self.links[0].asked[-1].answer(response(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=1)))
        assert (self.engine.at.phase, self.books.producer_id, self.books.epoch) == (Phase.READY, 7, 1)

    def asked(self, ask: Ask) -> Any:
        """What one ask puts on the wire."""
        self.engine.next_ask = lambda *_: ask  # type: ignore[method-assign]
        self.engine.outstanding = None
        self.engine.retry_at_ms = 0
        self.step()
        return self.links[-1 if ask.kind is Kind.OFFSETS else 0].asked[-1]


MANY = {
    TopicPartition("in", 0): OFFSETS[TopicPartition("in", 0)]._replace(offset=5),
    TopicPartition("on", 2): OFFSETS[TopicPartition("in", 0)],
}


OF_GROUP = {"group_id": "g", "producer_id": 7, "producer_epoch": 1}


@each_row(
    ("ask", "api", "versions", "fields"),
    [
        (Ask(Kind.INIT, -1, -1, False), "InitProducerId", (None, 5), {"transaction_timeout_ms": 60_000, "enable2_pc": False}),
        (Ask(Kind.INIT, 0, 4, False), "InitProducerId", (3, 5), {"producer_id": 0, "producer_epoch": 4}),
        (Ask(Kind.GROUP, 7, 1, False, group=GROUP), "AddOffsetsToTxn", (None, None), OF_GROUP),
        (Ask(Kind.DESCRIBE, 7, 1, False), "DescribeTransactions", (None, None), {"transactional_ids": ["x"]}),
        (Ask(Kind.MARKERS, 7, 1, True), "DescribeTransactions", (None, None), {"transactional_ids": ["x"]}),
        (Ask(Kind.END, 7, 1, True, commit=True), "EndTxn", (5, None), {"committed": True, "producer_id": 7, "producer_epoch": 1}),
        (Ask(Kind.END, 7, 1, False), "EndTxn", (None, 4), {"committed": False}),
    ],
    ids=str,
)  # fmt: skip
def test_each_ask_is_a_request(monkeypatch: pytest.MonkeyPatch, ask: Ask, api: str, versions: Any, fields: dict[str, Any]) -> None:
    asked = Bench(monkeypatch).asked(ask)
    body = asked.build(0)
    assert (asked.api.__name__, asked.versions, type(body)) == (f"{api}Request", versions, asked.api)
    named = {"transactional_id": "x"} if api != "DescribeTransactions" else {}
    assert {name: getattr(body, name) for name in fields | named} == fields | named


def test_a_producer_for_two_phases_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Bench(monkeypatch, transaction_two_phase_commit_enable=True).asked(Ask(Kind.INIT, -1, -1, False))
    assert (asked.versions, asked.build(6).enable2_pc) == ((6, None), True)


def test_partitions_and_offsets_go_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    asked = bench.asked(Ask(Kind.PARTITIONS, 7, 1, False, partitions=tuple(QUEUES[:3])))
    body = asked.build(3)
    assert asked.versions == (None, 3)
    assert [(topic.name, list(topic.partitions)) for topic in body.v3_and_below_topics] == [("t", [0, 1, 2])]
    assert (body.v3_and_below_transactional_id, body.v3_and_below_producer_id, body.v3_and_below_producer_epoch) == ("x", 7, 1)
    group = ConsumerGroupMetadata("g", 3, "m", "i")
    for adds, versions in ((False, (None, 4)), (True, (5, None))):
        asked = bench.asked(Ask(Kind.OFFSETS, 7, 1, adds, group=group, offsets=MANY))
        assert asked.versions == versions
    bodies = {version: asked.build(version) for version in (2, 3)}
    named = {version: (it.generation_id, it.member_id, it.group_instance_id) for version, it in bodies.items()}
    assert named == {2: (-1, "", None), 3: (3, "m", "i")}
    for it in bodies.values():
        assert (it.transactional_id, it.group_id, it.producer_id, it.producer_epoch) == ("x", "g", 7, 1)
        found = [(t.name, p.partition_index, p.committed_offset) for t in it.topics for p in t.partitions]
        assert found == [("in", 0, 5), ("on", 2, 5)]
    assert [(link.key, link.settings["kind"]) for link in bench.links] == [("x", 1), ("g", 0)], "one of the group for both"
    bench.asked(Ask(Kind.OFFSETS, 7, 1, True, group=GROUP._replace(group_id="h"), offsets=MANY))
    assert [link.key for link in bench.links] == ["x", "g", "h"]
    bench.requests.interrupted()
    assert [link.starts for link in bench.links] == [1, 0, 1]
    assert bench.engine.outstanding is None
    for nth, link in enumerate(bench.links):
        link.attempts = [errors.NetworkError(f"{nth}-{n}") for n in range(6)]
    assert [str(error) for error in bench.requests.attempts()] == [
        str(e) for e in (*bench.links[0].attempts, *bench.links[2].attempts)[-10:]
    ]


def test_a_coordinator_that_cannot_be_reached_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.engine.submit(StepKind.INIT)
    [link] = bench.links
    link.is_ready = False
    assert bench.step() == 40
    link.wake_ms = None
    assert bench.step() == NEVER_MS
    assert link.settings | {"kind": 1, "retry_backoff_ms": 100, "retry_backoff_max_ms": 1_000} == link.settings
    link.failure = errors.CoordinatorNotAvailable()
    assert (bench.step(), link.failure, bench.engine.outstanding) == (0, None, None)
    assert bench.step() == 100, "the pause of the engine"
    bench.clock.advance(60)
    assert bench.step() == 40
    bench.clock.advance(40)
    link.is_ready = True
    assert (bench.step(), len(link.asked), bench.step()) == (NEVER_MS, 1, NEVER_MS)
    link.asked[0].answer(response(protocol.InitProducerIdResponse(error_code=Code.NOT_COORDINATOR)))
    assert [error.code for error in link.lost_by] == [Code.NOT_COORDINATOR]
    assert [error.code for error in bench.requests.attempts()] == [Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR]


def test_an_authentication_that_failed_since_the_call_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.links[0].is_ready = False
    bench.metadata.fatal_count, bench.metadata.fatal_error = 4, errors.AuthenticationFailedError("of an earlier call")
    first = bench.engine.submit(StepKind.INIT)
    assert (bench.step(), first.delivery.finished) == (40, False)
    bench.metadata.fatal_count += 1
    assert (bench.step(), bench.engine.at.phase) == (0, Phase.UNINITIALIZED)
    assert isinstance(first.delivery.error, errors.AuthenticationFailedError)
    again = bench.engine.submit(StepKind.INIT)
    assert (bench.step(), again.delivery.finished) == (40, False)


def outcome(monkeypatch: pytest.MonkeyPatch, ask: Ask, answer: Any) -> Any:
    bench = Bench(monkeypatch)
    asked, found = bench.asked(ask), []
    bench.engine.answered = lambda ask, outcome, now_ms: found.append(outcome) or False  # type: ignore[method-assign]
    asked.answer(answer)
    return found[0]


def offsets_answer(*codes: int) -> Any:
    return protocol.TxnOffsetCommitResponse(
        topics=[
            protocol.TxnOffsetCommitResponseTopic(
                name=tp.topic, partitions=[protocol.TxnOffsetCommitResponsePartition(partition_index=tp.partition, error_code=code)]
            )
            for tp, code in zip(MANY, codes, strict=False)
        ]
    )


def described(state: str, code: int = 0) -> Any:
    topics = [
        protocol.DescribeTransactionsTopicData(topic="t", partitions=[0, 1]),
        protocol.DescribeTransactionsTopicData(topic="u", partitions=[4]),
    ]
    state_of = protocol.DescribeTransactionsTransactionState(
        error_code=code, transactional_id="x", transaction_state=state, transaction_timeout_ms=60_000, transaction_start_time_ms=1_000,
        producer_id=7, producer_epoch=3, topics=topics,
    )  # fmt: skip
    return protocol.DescribeTransactionsResponse(transaction_states=[state_of])


def test_what_an_answer_says(monkeypatch: pytest.MonkeyPatch) -> None:
    end, offsets = Ask(Kind.END, 7, 1, True), Ask(Kind.OFFSETS, 7, 1, True, group=GROUP, offsets=MANY)
    for version, ids in ((4, (-1, -1)), (5, (7, 2))):
        found = outcome(monkeypatch, end, response(protocol.EndTxnResponse(producer_id=7, producer_epoch=2), version))
        assert (found.error, found.producer_id, found.epoch) == (None, *ids)
    assert outcome(monkeypatch, offsets, response(offsets_answer(0, 0))) == (None, -1, -1, (), None)
    found = outcome(monkeypatch, offsets, response(offsets_answer(0, Code.COORDINATOR_LOAD_IN_PROGRESS), 3))
    assert found.stored == (TopicPartition("in", 0),)
    error = found.error
    assert (error.code, error.topic, error.partition, error.broker, error.api) == (14, "on", 2, 3, "TxnOffsetCommit v3")
    found = outcome(monkeypatch, offsets, response(offsets_answer(0))).error
    assert (type(found), found.topic, found.partition) == (errors.DisconnectError, "on", 2)
    found = outcome(monkeypatch, Ask(Kind.DESCRIBE, 7, 1, True), response(described("Ongoing")))
    where = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 4))
    assert found == (None, 7, 3, (), ("Ongoing", 1_000, 60_000, where))


@each_row(
    ("ask", "body", "code"),
    [
        (Ask(Kind.END, 7, 1, True), protocol.EndTxnResponse(error_code=Code.NOT_COORDINATOR), Code.NOT_COORDINATOR),
        (Ask(Kind.INIT, 7, 1, True), protocol.InitProducerIdResponse(error_code=Code.NOT_COORDINATOR), Code.NOT_COORDINATOR),
        (Ask(Kind.DESCRIBE, 7, 1, True), described("", Code.NOT_COORDINATOR), Code.NOT_COORDINATOR),
        (Ask(Kind.MARKERS, 7, 1, True), described("PrepareCommit"), Code.CONCURRENT_TRANSACTIONS),
        (Ask(Kind.MARKERS, 7, 1, True), described("PrepareAbort"), Code.CONCURRENT_TRANSACTIONS),
        (Ask(Kind.MARKERS, 7, 1, True), described("CompleteCommit"), None),
    ],
    ids=str,
)
def test_the_error_of_an_answer_says_whose_and_where(monkeypatch: pytest.MonkeyPatch, ask: Ask, body: Any, code: int | None) -> None:
    error = outcome(monkeypatch, ask, response(body, 2)).error
    if code is None:
        assert error is None
        return
    assert (error.code, error.broker, error.api) == (code, 3, f"{ask.kind.value} v2")
    assert "transactional id x" in str(error)


@each_row(
    ("error", "disconnected", "kept"),
    [
        (None, True, False),
        (errors.AuthenticationFailedError("no"), True, True),
        (errors.RequestTimedOut("late"), True, True),
        (errors.UnsupportedVersion("old"), False, True),
        (errors.CorruptDataError("noise"), True, False),
    ],
)
def test_an_answer_that_was_lost(monkeypatch: pytest.MonkeyPatch, error: KafkaError | None, disconnected: bool, kept: bool) -> None:
    found = outcome(monkeypatch, Ask(Kind.GROUP, 7, 1, False, group=GROUP), response(None, 1, error, disconnected)).error
    assert (found is error) is kept
    if not kept:
        assert (type(found), found.broker, found.api, found.__cause__) == (errors.DisconnectError, 3, "AddOffsetsToTxn", error)


def test_an_answer_of_no_use_is_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.engine.submit(StepKind.INIT)
    bench.step()
    bench.links[0].asked[0].answer(response(object()))
    [error] = bench.engine.attempts
    assert (type(error), error.broker) == (errors.DisconnectError, 3)
    assert error.message.startswith("the answer to InitProducerId is of no use: AttributeError")


def test_a_call_that_is_late_names_what_it_met() -> None:
    met = errors.NotCoordinator()
    sender: Any = SimpleNamespace(transactional=SimpleNamespace(attempts=lambda: [met]))
    error = late(sender, Step(StepKind.COMMIT, None), 0.5)
    assert error.message.startswith("commit_transaction() did not end within 0.5 s: the transaction may still be committed")
    assert error.attempts == (met,)


def test_an_error_of_an_old_transaction_names_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.ready()
    bench.clock.advance(5)
    bench.requests.begin(5)
    for age_ms, code, is_dated in ((60_000, 47, False), (60_001, 47, True), (60_001, Code.RECORD_LIST_TOO_LARGE, False)):
        bench.clock.advance(5 + age_ms - bench.clock.now_ms())
        failed: list[Any] = []
        bench.engine.batch_failed = lambda *found, failed=failed: failed.append(found)  # type: ignore[method-assign]
        bench.requests.batch_failed(errors.from_code(code), True)
        assert ("60,001 ms, and the coordinator aborts it after transaction_timeout_ms (60,000)" in str(failed[0][0])) is is_dated
        assert failed[0][1] is True


def test_a_producer_that_closes_ends_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    assert bench.requests.ended
    step = bench.engine.submit(StepKind.INIT)
    assert not bench.requests.ended
    bench.links[0].is_ready = False
    bench.step()
    bench.closing = True
    bench.step()
    assert isinstance(step.delivery.error, errors.ClosedError)
    bench = Bench(monkeypatch)
    bench.ready()
    bench.client.finalized_features["transaction.version"] = 2
    assert bench.requests.adds_by_writing
    bench.requests.begin(0)
    bench.engine.at.added.add(QUEUES[0])
    bench.closing, bench.accumulator.has_incomplete = True, True
    bench.step()
    assert [type(error) for error in bench.failed] == [errors.TransactionAborted]
    assert bench.engine.gate.busy and not bench.requests.ended
    bench.accumulator.has_incomplete = False
    bench.step()
    assert bench.links[0].asked[-1].build(5).committed is False


def test_the_error_of_a_doomed_transaction_says_where() -> None:
    cause = errors.RecordTooLarge("large", topic="t", partition=4, broker=2, api="Produce v9")
    found = doomed("it failed", cause)
    assert (found.topic, found.partition, found.broker, found.api, found.attempts, found.__cause__) == (
        "t",
        4,
        2,
        "Produce v9",
        (cause,),
        cause,
    )
    assert "it failed (MESSAGE_TOO_LARGE: large)" in str(found)
    assert "it failed (MESSAGE_TOO_LARGE)" in str(doomed("it failed", errors.RecordTooLarge()))
    found = doomed("it failed", odd := ValueError("odd"))
    assert "it failed (ValueError: odd): call abort_transaction()" in str(found) and found.__cause__ is odd


# ---- the end of prepared transactions ------------------------------------------------------------------------------------------------


class Two:
    """A TwoPhaseClient over fake links."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.links: list[FakeLink] = []
        self.clock, self.waits, self.times_ms = ManualClock(), [], []
        self.answers: list[Any] = []
        monkeypatch.setattr(two_phase, "CoordinatorLink", lambda *arguments, **more: FakeLink(self.links, *arguments, **more))
        monkeypatch.setattr(two_phase, "CallerDriver", self.driver)
        self.client = TwoPhaseClient(
            bootstrap_servers="nowhere:1", clock=self.clock, retry_backoff_ms=100, retry_backoff_max_ms=300, **settings
        )

    def driver(self, config: Any, what: str, *, renewed: Any, exclusive: bool = True, clock: Any = None) -> Any:
        assert (exclusive, clock) == (False, self.clock)
        self.renewed = renewed
        self.client = None
        self.attempts = lambda: ()
        return self

    def __enter__(self) -> Two:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, step: Any, done: Any, timeout_ms: int) -> bool:
        """Makes steps until all answers were taken; a look or an end that has none stays unanswered."""
        self.times_ms.append(timeout_ms)
        for _ in range(60):
            if done():
                return True
            wait_ms = step(self.clock.now_ms())
            self.waits.append(wait_ms)
            for link in self.links:
                for asked in [each for each in link.asked if not hasattr(each, "done")]:
                    asked.done = True
                    if self.answers:
                        asked.answer(self.answers.pop(0))
                        asked.answer(response(None, 9, errors.InternalError("a second answer")))
            self.clock.advance(wait_ms or 0)
        return False


def prepared_as(name: str = "x", version: int = 2) -> PreparedTransaction:
    return PreparedTransaction(name, 7, 3, 1_000, 60_000, version)


@each_row(("version", "versions"), [(2, (5, None)), (1, (None, 4))])
@each_row("commit", [True, False])
def test_a_prepared_transaction_is_looked_at_and_ended(monkeypatch: pytest.MonkeyPatch, commit: bool, version: int, versions: Any) -> None:
    two = Two(monkeypatch, default_api_timeout_ms=9_000, request_timeout_ms=1_000)
    two.answers = [response(described("Ongoing")), response(protocol.EndTxnResponse())]
    assert (two.client.commit if commit else two.client.abort)(prepared_as(version=version), 1.5)
    [link] = two.links
    look, end = link.asked
    assert (look.api, look.versions, look.build(0).transactional_ids) == (protocol.DescribeTransactionsRequest, (None, None), ["x"])
    body = end.build(0)
    assert (end.api, end.versions) == (protocol.EndTxnRequest, versions)
    assert (body.transactional_id, body.producer_id, body.producer_epoch, body.committed) == ("x", 7, 3, commit)
    assert (link.key, link.settings["kind"], link.settings["retry_backoff_ms"], link.settings["retry_backoff_max_ms"]) == ("x", 1, 100, 300)
    two.answers = [response(described("CompleteCommit" if commit else "CompleteAbort"))]
    assert not (two.client.commit if commit else two.client.abort)(prepared_as(version=version))
    assert (len(two.links), two.times_ms) == (1, [1_500, 9_000])


def test_an_end_is_asked_for_again_after_pauses_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    moved, busy = (response(described("", code)) for code in (Code.NOT_COORDINATOR, Code.CONCURRENT_TRANSACTIONS))
    none = response(protocol.DescribeTransactionsResponse(transaction_states=[]), 1)
    lost = response(None, 1, errors.DisconnectError("cut"))
    silent = response(None, 1)
    two.answers = [moved, busy, none, lost, silent, response(described("Ongoing")), response(protocol.EndTxnResponse(error_code=51)), *[
        response(described("Ongoing")), response(protocol.EndTxnResponse())]]  # fmt: skip
    assert two.client.commit(prepared_as())
    assert [wait for wait in two.waits if wait] == [100, 200, 300, 300, 300, 300]
    [link] = two.links
    assert [error.code for error in link.lost_by] == [Code.NOT_COORDINATOR]
    assert len(link.asked) == 9


def test_a_call_that_ends_too_early_names_what_it_met(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    two.answers = [response(described("", Code.COORDINATOR_LOAD_IN_PROGRESS), 2)]
    with pytest.raises(errors.KafkaTimeoutError, match="its commit is not known after 10 ms") as late:
        two.client.commit(prepared_as(), 0.01)
    [met] = late.value.attempts
    assert (met.code, met.broker, met.api) == (Code.COORDINATOR_LOAD_IN_PROGRESS, 3, "DescribeTransactions v2")
    two.links[0].is_ready = False
    for call, said in ((two.client.abort, "its abort"), (two.client.states, "its state")):
        with pytest.raises(errors.KafkaTimeoutError, match=said):
            call([prepared_as()] if call == two.client.states else prepared_as(), 0.01)  # type: ignore[operator]
    two.links[0].failure = errors.TransactionalIdAuthorization("not you")
    with pytest.raises(errors.TransactionalIdAuthorization):
        two.client.states([prepared_as()])
    assert two.links[0].failure is None
    two.renewed(None)
    two.answers = [response(described("Ongoing"))]
    assert two.client.states([prepared_as()]) == [PreparedState.OPEN]
    assert len(two.links) == 2


def test_several_are_ended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    many = [prepared_as("x"), prepared_as("y")]
    two.answers = [response(described("Ongoing"))] * 2 + [response(protocol.EndTxnResponse())] * 2
    assert two.client.abort_all(many) == [(each, False, None) for each in many]
    assert [link.key for link in two.links] == ["x", "y"]
    refused = response(protocol.EndTxnResponse(error_code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), 4)
    two.answers = [response(described("Ongoing"))] * 2 + [refused, response(protocol.EndTxnResponse())]
    first, second = two.client.commit_all(many)
    assert (first.error.api, first.error.broker, first.already, second) == ("EndTxn v4", 3, False, (many[1], False, None))
    two.answers = [response(described("Ongoing")), response(described("CompleteAbort"))]
    assert two.client.states(many) == [PreparedState.OPEN, PreparedState.ABORTED]


def test_coordinators_of_many_ids_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_phase, "KEPT_LINKS", 1)
    two = Two(monkeypatch)
    for names, links in (("x", 1), ("x", 1), ("xy", 2), ("x", 3)):
        two.answers = [response(described("Ongoing"))] * len(names)
        two.client.states([prepared_as(name) for name in names])
        assert len(two.links) == links


# ---- the calls of an application ---------------------------------------------------------------------------------------------------------


@each_row(
    ("group", "error", "said"),
    [
        ("", errors.UsageError, "the group id is empty"),
        (ConsumerGroupMetadata("g", 1, ""), errors.UsageError, "has generation 1 but no member id"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_groups_that_cannot_be_named_are_refused(group: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        checked_group(group)


def test_groups_and_offsets_may_be_given_short() -> None:
    assert checked_group("g") == ConsumerGroupMetadata("g")
    for group in (ConsumerGroupMetadata("g", 0, ""), ConsumerGroupMetadata("g", 1, "m"), ConsumerGroupMetadata("g", -1, "")):
        assert checked_group(group) is group
    found = checked_offsets({("t", 0): 0, TopicPartition("t", 1): OffsetAndMetadata(5, None, "note")})
    assert found == {TopicPartition("t", 0): OffsetAndMetadata(0), TopicPartition("t", 1): OffsetAndMetadata(5, None, "note")}
    assert all(isinstance(tp, TopicPartition) for tp in found)
    with pytest.raises(errors.UsageError, match="offset -1 of t-4 is negative"):
        checked_offsets({("t", 4): -1})
    with pytest.raises(TypeError, match="must be a mapping"):
        checked_offsets([("t", 4)])  # type: ignore[arg-type]


class Producer:
    """What a block calls; the phase of its transaction is set by hand."""

    def __init__(self, phase: Phase = Phase.READY) -> None:
        self.config: Any = SimpleNamespace(max_block_ms=9_000)
        self.calls: list[Any] = []
        self.failing: dict[str, BaseException] = {}
        self.go(phase)

    def go(self, phase: Phase) -> None:
        self.at = SimpleNamespace(phase=phase)

    def call(self, name: str, phase: Phase, *more: Any) -> None:
        self.calls.append((name, *more))
        if name in self.failing:
            raise self.failing[name]
        self.go(phase)

    def begin_transaction(self) -> None:
        self.call("begin", Phase.OPEN)

    def commit_transaction(self) -> None:
        self.call("commit", Phase.READY)

    def abort_transaction(self, timeout: float | None = None) -> None:
        self.call("abort", Phase.READY, timeout)


@each_row(
    ("raised", "phase", "calls"),
    [
        (None, Phase.OPEN, ["begin", "commit"]),
        (None, Phase.PREPARED, ["begin"]),
        (ValueError(), Phase.OPEN, ["begin", ("abort", 9.0)]),
        (ValueError(), Phase.ABORTABLE, ["begin", ("abort", 9.0)]),
        (ValueError(), Phase.ABORTING, ["begin", ("abort", 9.0)]),
        (ValueError(), Phase.FATAL, ["begin"]),
        (ValueError(), Phase.PREPARED, ["begin"]),
        (KeyboardInterrupt(), Phase.OPEN, ["begin", ("abort", 5.0)]),
    ],
)
def test_the_end_of_a_block(raised: BaseException | None, phase: Phase, calls: list[Any]) -> None:
    producer = Producer()
    block = Transaction(producer, producer)  # type: ignore[arg-type]
    try:
        with block as inside:
            assert inside is producer
            producer.go(phase)
            if raised is not None:
                raise raised
    except (ValueError, KeyboardInterrupt) as error:
        assert error is raised
    assert producer.calls == [each if isinstance(each, tuple) else (each,) for each in calls]


@each_row(("error", "aborts"), [(errors.TransactionAbortable("no"), True), (errors.ProducerFenced("no"), False)])
def test_a_commit_that_fails_at_the_end_of_a_block(error: KafkaError, aborts: bool) -> None:
    producer = Producer()
    producer.failing = {"commit": error, "abort": errors.KafkaTimeoutError("late")}
    with pytest.raises(type(error)), Transaction(producer, producer):  # type: ignore[arg-type]
        pass
    assert producer.calls == [("begin",), ("commit",), *[("abort", 9.0)] * aborts]


@each_row(
    ("before", "after", "aborts"), [(Phase.READY, Phase.OPEN, True), (Phase.READY, Phase.READY, False), (Phase.OPEN, Phase.OPEN, False)]
)
def test_ctrl_c_behind_the_begin_of_a_block(before: Phase, after: Phase, aborts: bool) -> None:
    producer = Producer(before)

    def begin() -> None:
        producer.go(after)
        raise KeyboardInterrupt

    producer.begin_transaction = begin  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), Transaction(producer, producer):  # type: ignore[arg-type]
        pass
    assert producer.calls == [("abort", 5.0)] * aborts
