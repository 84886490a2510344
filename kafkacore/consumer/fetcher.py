"""Fetching: which partitions to ask which broker for, and handing out what came back.

    send_fetches(now)     partitions that changed -> what to fetch from which broker -> one FetchRequest each, if none is in flight there
    NetworkClient.poll    answers arrive: errors are dealt with at once, records are queued unparsed
    collect(max_records)  the queue -> records for the application; the position moves here and nowhere else

Rules:
1. At most one fetch is in flight per broker, at most two answers per partition are held (one being read, one behind it), and answers
   are fetched ahead only while fewer than `fetch.max.bytes` are held in all; once there were as many, not before half of it is free.
   [test_one_fetch_in_flight_per_broker, test_the_next_fetch_is_in_flight_while_the_application_works,
   test_nothing_is_fetched_ahead_once_the_memory_is_used, test_memory_that_is_used_up_is_half_free_before_fetches_run_ahead_again]
2. A fetch behind a held answer asks for the offset where that one ends. Whether it is still wanted is decided when its turn comes: its
   offset must then be the position, otherwise (a seek, a truncation) it is dropped. So is what came under another leader epoch than the
   position has by then: after an unclean election it may be no part of the log, and nothing would ever show that.
   [test_seek_drops_what_was_fetched_and_what_is_on_its_way, test_truncation_is_found_whatever_the_position_comes_from]
3. Where a range is read (`fetch_end`), a fetch asks for about as many bytes as are left of it, by the sizes of the answers so far.
   [test_of_a_range_no_more_is_asked_for_than_it_is_likely_to_take]
4. Nothing here blocks or reads a clock. Answers carry no time, so back-off starts at the next `send_fetches`.
   [test_refusals_are_retried_after_the_back_off_only]
5. The assigned partitions are never walked. What is to be fetched from a broker is in `FetchSession.rows`. A partition of which that
   may have changed is noted as stale with the broker it belonged to, and looked at before the next fetch goes there, however often it
   changed meanwhile; one that may belong to another broker is looked at at once.
   Changes come from `SubscriptionState.touched`, from answers held and handed out, from back-offs that end, and from metadata that differ.
   [test_a_leader_change_of_one_partition_looks_at_that_one, TestBothWays,
   test_changing_all_partitions_one_by_one_looks_at_each_a_few_times]
6. An answer whose turn comes while its partition is paused or has no position is parked until the partition is touched.
   [test_answers_of_paused_partitions_are_not_looked_at_with_every_poll, TestBothWays]
7. What is held, and what has to be looked at, is in `FetchQueue` (compiled: native/fetch_queue.pxi). It has a short cut for the plain
   case of placing a partition, taking in its answer and handing that out; whatever is not plain goes the general way here. Both do the
   same to the same books: tests/consumer/test_fetch_upkeep.py sends one history through both. [TestBothWays]

Source: Kafka's Fetcher, FetchCollector and CompletedFetch; KIP-227 (sessions), KIP-392 (nearest replica), KIP-951 (leader hints).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from kafkacore import errors
from kafkacore._codec import CompletedFetch, FetchedPartitions, FetchQueue, FetchRow, SampledStat
from kafkacore.consumer.refusals import Refusals
from kafkacore.consumer.sessions import MAX_VERSION_BY_NAME, ZERO_TOPIC_ID, FetchLimits, FetchPlan, FetchSession, FetchTarget
from kafkacore.consumer.subscription import FetchState, PartitionState, SubscriptionState
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot, Metadata, PartitionInfo, TopicInfo
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.protocol import FetchRequest, PartitionData
from kafkacore.records import PartitionReader
from kafkacore.types import Node, TopicPartition

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord, RecordColumns

log = logging.getLogger("kafkacore.consumer")

_ANSWERS_HELD_PER_PARTITION = 2
_FETCHING = FetchState.FETCHING     # a look at an enum's class costs more than what is decided with it
_NO_NODE = -1                       # not to be fetched from anywhere so far, or perhaps from another broker than before
_OFFSET_BYTES = 1024                # until an answer has shown better
_TELLING_OFFSETS = 100              # the first batch comes whole: an answer with fewer offsets looks larger than it is (fetch_queue.pxi)
_EMPTY_AT_ONCE = 20                 # answers in a row without anything, of a broker that was to wait for records: they cost it nothing, and
_REST_MS = 10                       # the consumer a core; then there is a pause between two
_FROM_NOW = -1
_SPARE_BYTES = 32_768               # two batches of the default size: one more than needed is cheaper than one more fetch
_REFRESH_AND_RETRY = frozenset(
    {
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.LEADER_NOT_AVAILABLE,
        Code.REPLICA_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)
_RETRY = frozenset({Code.UNKNOWN_LEADER_EPOCH, Code.UNKNOWN_SERVER_ERROR})
_OTHER_SESSION = frozenset({Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH})
_HINTED = frozenset({Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH})


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]


def _leads_elsewhere(before: PartitionInfo, now: PartitionInfo) -> bool:
    return before.leader != now.leader or before.leader_epoch != now.leader_epoch


class FetchMetrics:
    """Counters of a fetcher; they only grow. Per answer: `answer_bytes` in it, records `handed` to the application since the last one."""

    __slots__ = (
        "answer_bytes",
        "answers",
        "bytes",
        "errors",
        "fetches",
        "full_fetches",
        "handed",
        "latency_ms",
        "latency_ms_max",
        "latency_ms_sum",
        "records",
        "stale_answers",
        "throttle_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.fetches = self.answers = self.errors = self.bytes = self.records = 0
        self.latency_ms_sum = self.latency_ms_max = 0
        self.full_fetches = self.stale_answers = 0
        self.latency_ms, self.throttle_ms, self.answer_bytes, self.handed = SampledStat(True), SampledStat(), SampledStat(), SampledStat()

    def answered(self, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        """An answer has come."""
        self.answers += 1
        self.latency_ms_sum += latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)
        self.latency_ms.record(latency_ms, now_ms)
        self.throttle_ms.record(throttle_ms, now_ms)
        self.handed.record(self.records - self.handed.total, now_ms)


class Fetcher:
    """The fetch engine of a consumer.

    Args:
        subscription: what to fetch and where it stands.
        client: the network.
        metadata: leaders, topic ids.
        limits: what every fetch says.
        max_partition_bytes: of one partition in one answer.
        check_crcs: check every batch against its CRC-32C.
        max_decompressed_bytes: the most bytes that one batch may hold uncompressed. A call that has unpacked as many opens no other batch.
        retry_backoff_ms: pause before a partition whose leader refused is asked again.
        preferred_max_age_ms: how long a nearer replica is used before the leader is asked again.

    Attributes:
        refusals: errors that may pass, for `health`.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        client: NetworkClient,
        metadata: Metadata,
        limits: FetchLimits,
        *,
        max_partition_bytes: int,
        check_crcs: bool,
        retry_backoff_ms: int,
        preferred_max_age_ms: int,
        max_decompressed_bytes: int,
    ) -> None:
        self._subscription = subscription
        self._client = client
        self._metadata = metadata
        self._limits = limits
        self._max_partition_bytes = max_partition_bytes
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._read_committed = limits.isolation_level == 1
        self._too_soon_ms = limits.max_wait_ms // 4 if limits.min_bytes else 0
        self._retry_backoff_ms = retry_backoff_ms
        self._preferred_max_age_ms = preferred_max_age_ms
        self.metrics = FetchMetrics()
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: set[int] = set()
        self._queue = FetchQueue(self.metrics, limits.max_bytes, max_partition_bytes, check_crcs, max_decompressed_bytes)
        self._leaderless: dict[PartitionState, None] = {}
        self._snapshot: ClusterSnapshot | None = None
        self._backing_off: list[PartitionState] = []
        self._retries: list[tuple[int, int, PartitionState]] = []
        self._fresh_preferred: list[PartitionState] = []
        self._preferred_ends: list[tuple[int, int, PartitionState]] = []
        self._order = itertools.count()
        self._unready: list[Node] = []
        self._resting: list[FetchSession] = []
        self._not_taken: dict[TopicPartition, int] = {}  # the position that a leader last refused
        self._owed: tuple[PartitionState | None, errors.KafkaError] | None = None
        self.refusals = Refusals(retry_backoff_ms)

    @property
    def queue(self) -> FetchQueue:
        """What is held; always the same object, so that who looks often needs no frame for it."""
        return self._queue

    @property
    def wants_fetch(self) -> bool:
        """Something changed since the last `send_fetches`, so that another may find a partition to ask for."""
        return self._queue.wants_fetch

    @wants_fetch.setter
    def wants_fetch(self, yes: bool) -> None:
        self._queue.wants_fetch = yes

    # -- asking -------------------------------------------------------------------------------------------------------------------

    def send_fetches(self, now_ms: int) -> int:
        """Sends one fetch to each broker that has partitions to be asked for and none in flight.

        Returns:
            How many were sent.
        """
        self._queue.wants_fetch = False
        if self._backing_off or self._fresh_preferred:
            self._start_waits(now_ms)
        self._note_changes(now_ms)
        in_flight = self._in_flight
        stale = self._queue.stale
        if stale:
            snapshot = self._metadata.snapshot
            for node_id in [n for n in stale if n not in in_flight]:
                states, at = stale.pop(node_id), 0
                while (at := self._queue.place_again(states, at, snapshot, now_ms)) < len(states):
                    self._place(states[at], now_ms)
                    at += 1
        if self._leaderless:
            self._metadata.request_update()
        self._unready.clear()
        self._resting.clear()
        sent = 0
        for node_id, session in self._sessions.items():
            if not session.rows.wanted or node_id in in_flight:
                continue
            node = self._metadata.snapshot.nodes.get(node_id)
            if node is None:
                continue
            if session.rests_until_ms:
                if session.rests_until_ms == _FROM_NOW:
                    session.rests_until_ms = now_ms + _REST_MS
                if session.rests_until_ms > now_ms:
                    self._resting.append(session)
                    continue
                session.rests_until_ms = 0
            if self._client.ready(node, now_ms):
                self._send(node, session, now_ms)
                sent += 1
            else:
                self._unready.append(node)
        return sent

    def _start_waits(self, now_ms: int) -> None:
        """Back-offs and uses of nearer replicas begin now."""
        if self.refusals.fresh:
            self.refusals.note(now_ms)
        if self._backing_off:
            until_ms = now_ms + self._retry_backoff_ms
            for state in self._backing_off:
                state.retry_at_ms = until_ms
                heapq.heappush(self._retries, (until_ms, next(self._order), state))
                self._queue.note(state)
            self._backing_off.clear()
        if self._fresh_preferred:
            until_ms = now_ms + self._preferred_max_age_ms
            for state in self._fresh_preferred:
                state.preferred_until_ms = until_ms
                heapq.heappush(self._preferred_ends, (until_ms, next(self._order), state))
                self._queue.note(state, True)
            self._fresh_preferred.clear()

    def _note_changes(self, now_ms: int) -> None:
        """Collects the partitions of which what is to be fetched may have changed."""
        if self._subscription.touched:
            self._take_touched()
        snapshot = self._metadata.snapshot
        if snapshot is not self._snapshot:
            for state in self._subscription.states_that_differ(self._snapshot, snapshot, _leads_elsewhere):
                self._queue.note(state, True)
            self._snapshot = snapshot
        retries = self._retries
        while retries and retries[0][0] <= now_ms:
            self._queue.note(heapq.heappop(retries)[2])
        ends = self._preferred_ends
        while ends and ends[0][0] <= now_ms:
            self._queue.note(heapq.heappop(ends)[2], True)

    def _take_touched(self) -> None:
        """Drops what is held for positions that are no longer wanted, and hands parked answers out again where that is possible now."""
        touched, self._subscription.touched = self._subscription.touched, {}
        self.wants_fetch = True
        for state in self._queue.note_touched(touched):
            for fetch in [f for f in state.held if not self._is_wanted(f)]:
                self.metrics.stale_answers += 1
                self._queue.release(fetch)
            if state in self._queue.parked and state.state is FetchState.FETCHING and not state.paused:
                self._queue.put_first(self._queue.parked.pop(state))

    def _place(self, state: PartitionState, now_ms: int) -> None:
        """Brings a partition's place in the fetch sessions up to date; `FetchQueue.place_again` is its short cut."""
        state.placed_by = None
        target = None
        tp = state.tp
        node_id = before = state.node_id
        snapshot = self._metadata.snapshot
        if state.assigned and state.state is _FETCHING and not state.paused and state.retry_at_ms <= now_ms:
            topic = snapshot.topics.get(tp[0])
            info = None if topic is None else topic.partition(tp[1])
            node_id = self._node_for(state, snapshot, info, now_ms)
            if node_id != _NO_NODE:
                target = self._target(state, topic, info)
        else:
            self._leaderless.pop(state, None)
        if before != node_id:
            state.node_id = node_id
            if before != _NO_NODE:
                self._sessions[before].drop(tp, state)
        if target is not None:
            session = self._sessions.get(node_id)
            if session is None:
                session = self._sessions[node_id] = FetchSession(node_id)
            state.row = session.want(tp, target)
            if state.row.owner not in (None, state):
                session.renew()
            if state.preferred_replica < 0:  # with the leader; once a nearer replica fails, the leader is found in general
                state.placed_by = snapshot
        elif node_id != _NO_NODE and node_id in self._sessions:
            self._sessions[node_id].drop(tp, state)

    def _target(self, state: PartitionState, topic: TopicInfo | None, info: PartitionInfo | None) -> FetchTarget | None:
        """What to ask of a partition that may be fetched; None while enough of it is held or it is no longer wanted."""
        offset = state.offset
        held = state.held
        if held:
            if not self._queue.runs_ahead or len(held) >= _ANSWERS_HELD_PER_PARTITION:
                return None
            last = held[-1]
            if last.error_code or last.leader_epoch != state.leader_epoch or held[0].position != offset:
                return None  # an error, or data that its turn will drop
            offset = last.end_offset
        max_bytes = self._max_partition_bytes
        if state.fetch_end is not None:
            if offset >= state.fetch_end:
                return None
            max_bytes = min(max_bytes, self._bytes_up_to(state.tp.topic, state.fetch_end - offset))
        if state.leader_epoch < 0 and info is not None:
            state.leader_epoch = info.leader_epoch
        topic_id = ZERO_TOPIC_ID if topic is None else topic.topic_id or ZERO_TOPIC_ID
        return FetchTarget(topic_id, offset, max_bytes, state.leader_epoch, state)

    def _bytes_up_to(self, topic: str, offsets: int) -> int:
        """What so many offsets of a topic are likely to take, and a little more."""
        return int(1.1 * offsets * self._queue.offset_bytes.get(topic, _OFFSET_BYTES)) + _SPARE_BYTES

    def _node_for(self, state: PartitionState, snapshot: ClusterSnapshot, info: PartitionInfo | None, now_ms: int) -> int:
        """The nearer replica the leader named, as long as it is known and that is not too long ago, else the leader, else none."""
        nodes = snapshot.nodes
        if state.preferred_replica >= 0:
            if state.preferred_replica in nodes and now_ms < state.preferred_until_ms:
                return state.preferred_replica
            state.preferred_replica = -1
        if info is None or info.leader not in nodes:
            self._leaderless[state] = None
            return _NO_NODE
        self._leaderless.pop(state, None)
        return info.leader

    def _send(self, node: Node, session: FetchSession, now_ms: int) -> None:
        plan = session.plan()
        request = self._client.new_client_request(
            node.id,
            FetchRequest,
            functools.partial(plan.build, limits=self._limits),
            now_ms,
            callback=functools.partial(self._answered, node.id, session, plan),
            max_version=None if plan.by_id else MAX_VERSION_BY_NAME,
            left=PartitionData,
        )
        self._in_flight.add(node.id)
        self.metrics.fetches += 1
        self.metrics.full_fetches += plan.is_full
        self._client.send(request, now_ms)

    # -- answers ------------------------------------------------------------------------------------------------------------------

    def _answered(self, node_id: int, session: FetchSession, plan: FetchPlan, response: ClientResponse) -> None:
        self._in_flight.discard(node_id)
        self._queue.wants_fetch = True
        answer = response.response
        if answer is None:
            session.handle_error()
            self.metrics.errors += 1
            states = self._states_in(plan)
            for state in states:
                if state.preferred_replica >= 0:
                    state.preferred_replica = -1
                    self._queue.note(state, True)
            error = response.error
            if isinstance(error, (errors.UnsupportedVersion, errors.CorruptDataError)):
                self._owed = None, error
                self._backing_off.extend(states)
            return
        now_ms = response.request.sent_ms + response.latency_ms
        self.metrics.answered(response.latency_ms, answer.throttle_time_ms, now_ms)
        problem = session.handle_response(plan, answer, response.version)
        if problem is not None:
            self.metrics.errors += 1
            log.info("broker %d: %s", node_id, problem)
            if answer.error_code == Code.FETCH_SESSION_TOPIC_ID_ERROR:
                self._metadata.request_update()
            if answer.error_code not in _OTHER_SESSION or session.in_vain > 1:
                self._backing_off.extend(self._states_in(plan))
            return
        metrics = self.metrics
        before_bytes, before = metrics.bytes, (metrics.errors, metrics.stale_answers, len(self._backing_off), len(self._fresh_preferred))
        hints: dict[TopicPartition, tuple[int, int]] = {}
        for topic_id, rows, partitions in plan.answered:
            self._take_answers(rows, topic_id, node_id, partitions, hints)
        metrics.answer_bytes.record(metrics.bytes - before_bytes, now_ms)
        if metrics.bytes == before_bytes and response.latency_ms < self._too_soon_ms and not answer.throttle_time_ms:
            if before == (metrics.errors, metrics.stale_answers, len(self._backing_off), len(self._fresh_preferred)):
                session.empty_at_once += 1
                if session.empty_at_once > _EMPTY_AT_ONCE:
                    session.rests_until_ms = _FROM_NOW
        else:
            session.empty_at_once = 0
        if hints:  # KIP-951: a broker that is no longer the leader says who is
            self._metadata.update_leaders(hints, [Node(e.node_id, e.host, e.port, e.rack) for e in answer.node_endpoints])

    def _states_in(self, plan: FetchPlan) -> list[PartitionState]:
        return plan.rows.owners()

    def _take_answers(
        self,
        rows: list[FetchRow],
        topic_id: bytes,
        node_id: int,
        partitions: FetchedPartitions | list[PartitionData],
        hints: dict[TopicPartition, tuple[int, int]],
    ) -> None:
        """Takes in what an answer says of the partitions of a topic; gathers the leaders that it names."""
        at, count = 0, len(rows)
        known_id = self._metadata.snapshot.topic_id(rows[0].tp[0]) if rows else ZERO_TOPIC_ID
        while (at := self._queue.take_answers(rows, partitions, at, topic_id, known_id, node_id)) < count:
            row, data = rows[at], partitions[at]
            at += 1
            self._take_answer(row, topic_id, node_id, data)
            if data.error_code and data.error_code in _HINTED and data.current_leader.leader_id >= 0:
                hints[row.tp] = (data.current_leader.leader_id, data.current_leader.leader_epoch)

    def _take_answer(self, row: FetchRow, topic_id: bytes, node_id: int, data: PartitionData) -> None:
        """Takes in what an answer says of one partition; `FetchQueue.take_answers` is its short cut."""
        state: PartitionState = row.owner
        tp = state.tp
        code = data.error_code
        fetch_offset = row.fetch_offset
        if not state.assigned or row.leader_epoch != state.leader_epoch:
            self.metrics.stale_answers += 1
            return
        if code == 0:
            if topic_id != state.topic_id and topic_id and fetch_offset == state.offset:
                if self._metadata.snapshot.topic_id(tp[0]) not in (topic_id, ZERO_TOPIC_ID):
                    self.metrics.stale_answers += 1  # of a topic that was created again since
                    self._queue.note(state)
                    return
                state.topic_id = topic_id
            state.high_watermark = data.high_watermark
            state.last_stable_offset = data.last_stable_offset
            state.log_start_offset = data.log_start_offset
            preferred = data.preferred_read_replica
            if preferred >= 0 and preferred not in self._metadata.snapshot.nodes:  # the leader would name it again at once
                self._metadata.request_update()
                self._backing_off.append(state)
            elif preferred >= 0:
                if preferred == node_id or state.preferred_replica >= 0:  # leaders name followers, and followers name no broker
                    self._backing_off.append(state)
                state.preferred_replica = preferred
                self._fresh_preferred.append(state)
                state.preferred_until_ms = 0x7FFFFFFFFFFFFFFF
            payload = data.records
            if not payload:
                if data.diverging_epoch.epoch >= 0 and state.state is FetchState.FETCHING and state.offset_epoch >= 0:
                    if self._goes_round(state):
                        return
                    self._subscription.request_validation(state)  # consumers do not ask for it; the leader's word counts all the same
                return
            assert isinstance(payload, memoryview)  # what decoding gives
            aborted = None
            if self._read_committed:
                # brokers may list them in any order
                aborted = sorted(((a.producer_id, a.first_offset) for a in data.aborted_transactions or ()), key=_first_offset)
            reader = PartitionReader(
                payload,
                topic=tp[0],
                partition=tp[1],
                start_offset=fetch_offset,
                check_crcs=self._check_crcs,
                aborted=aborted,
                max_decompressed_bytes=self._max_decompressed_bytes,
            )
            size_bytes = len(payload)
            offsets = reader.end_offset - fetch_offset
            if offsets >= _TELLING_OFFSETS:
                self._queue.offset_bytes[tp[0]] = size_bytes / offsets
            self._queue.hold(CompletedFetch(state, row, node_id, reader, 0, size_bytes))
            self.metrics.bytes += size_bytes
            state.fetched_bytes += size_bytes
            return
        self.metrics.errors += 1
        if code in _REFRESH_AND_RETRY or code in _RETRY:
            self.refusals.fresh[state] = code
            log.debug("%s-%d: broker %d answered %s", tp[0], tp[1], node_id, errors.NAMES.get(code, code))
            if code in _REFRESH_AND_RETRY:
                self._metadata.request_update()
            if state.preferred_replica >= 0:
                state.preferred_replica = -1
                self._queue.note(state, True)
            if code in _HINTED and data.current_leader.leader_id not in (-1, node_id):
                self._goes_round(state)  # to the leader that it names at once
            else:
                self._backing_off.append(state)
            return
        self._queue.hold(CompletedFetch(state, row, node_id, None, code, 0))

    def _goes_round(self, state: PartitionState) -> bool:
        """A broker does not take a position. True when one says so of the same one again: what follows then comes after the back-off. To
        send the consumer to each other costs brokers nothing, and the consumer a core.
        """
        if self._not_taken.pop(state.tp, None) == state.offset:
            self._backing_off.append(state)
            return True
        self._not_taken[state.tp] = state.offset
        return False

    # -- handing out --------------------------------------------------------------------------------------------------------------

    @property
    def waits_for_nodes(self) -> bool:
        """A broker could not be asked because it is not connected yet, or rests: the next event may change that."""
        return bool(self._unready or self._resting)

    @property
    def buffered_bytes(self) -> int:
        """Record bytes fetched and not yet handed out."""
        return self._queue.held_bytes

    @property
    def in_flight(self) -> frozenset[int]:
        """The brokers with a fetch in flight."""
        return frozenset(self._in_flight)

    @property
    def sessions(self) -> dict[int, tuple[int, int]]:
        """Per broker the (id, next epoch) of the fetch session."""
        return {n: (s.session_id, s.epoch) for n, s in self._sessions.items()}

    def begin(self) -> None:
        """What was handed out so far is processed."""
        self._queue.begin()

    def begun(self, state: PartitionState) -> int | None:
        """The position before the records of a partition that were handed out since `begin`; None where none were."""
        return self._queue.begun(state)

    def work_on(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The application works on these partitions from these offsets on: `begun` says so from now on."""
        for tp, offset in offsets.items():
            if (state := self._subscription.partitions.get(tp)) is not None:
                self._queue.work_on(state, offset)

    def collect(self, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records in the order they arrived, at most `max_records`; the positions move behind them.

        Raises:
            errors.CorruptDataError: the data at a position is broken. The position stays, and they are fetched again after the back-off;
                `seek` past it goes on without it.
            errors.DecompressedTooLarge: the batch at a position holds more than the bound. The position stays.
            errors.OffsetOutOfRange: a position is not on the log and there is no reset strategy.
            errors.KafkaError: what else a broker answered for good, for example for lack of authorization.
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = max_records
        self._queue.open_call()
        try:
            while left > 0:
                if self._subscription.touched:
                    self._take_touched()
                if self._owed is None:  # what is owed comes before what is queued
                    left -= self._queue.take(taken, left)
                    if left <= 0 or (taken and not self._queue):
                        break
                if taken and self._queue.is_spent:
                    break
                fetch = self._next_fetch()
                if fetch is None:
                    break
                records = self._queue.read_records(fetch, left)
                count = len(records)
                if count:
                    tp = fetch.state.tp
                    before = taken.setdefault(tp, records)
                    if before is not records:
                        taken[tp] = before + records
                    left -= count
                    self.metrics.records += count
                    self._queue.count_out(fetch.state, count)
                self._queue.advance(fetch, records)
        except errors.KafkaError as error:
            if not taken:
                self._raise_located(error)
            # what is in hand comes first; the next call meets the error again
        except BaseException:
            self.give_back(taken)
            raise
        return taken

    def collect_columns(self) -> list[RecordColumns]:
        """Everything held, as columns: one entry per partition; the positions move behind it. What would unpack to more than a call may
        hold stays for the next.

        Raises:
            errors.KafkaError: as `collect`.
        """
        taken: dict[TopicPartition, RecordColumns] = {}
        try:
            self._take_columns(taken)
            columns = list(taken.values())
        except BaseException:
            self.give_back(taken)
            raise
        return columns

    def _take_columns(self, taken: dict[TopicPartition, RecordColumns]) -> None:
        queue = self._queue
        queue.open_call()
        try:
            while True:
                if self._subscription.touched:
                    self._take_touched()
                if self._owed is None:
                    queue.take_columns(taken)
                if taken and queue.is_spent:
                    break
                fetch = self._next_fetch()
                if fetch is None:
                    break
                if fetch.state.tp in taken:
                    queue.set_aside(fetch)
                    continue
                columns = queue.read_columns(fetch)
                count = len(columns)
                if count:
                    taken[fetch.state.tp] = columns
                    self.metrics.records += count
                    queue.count_out(fetch.state, count)
                queue.advance(fetch, ())
        except errors.KafkaError as error:
            if not taken:
                self._raise_located(error)
        finally:
            queue.put_back()

    def is_ready(self) -> bool:
        """Whether the next `collect` has something to read; it may turn out to hold no records.

        Raises:
            errors.KafkaError: as `collect`, for what brokers answered.
        """
        try:
            return self._next_fetch() is not None
        except errors.KafkaError as error:
            self._raise_located(error)

    def give_back(self, taken: Mapping[TopicPartition, Sequence[ConsumerRecord] | RecordColumns]) -> None:
        """Moves positions back before records that will not reach the application after all: Ctrl+C, an error on the way."""
        for tp, records in taken.items():
            self._subscription.rewind(tp, next(iter(records)).offset)
        self.wants_fetch = True

    def start_anew(self, client: NetworkClient) -> None:
        """Goes on with another network: nothing is in flight, nothing is held, and every broker's session is a new one."""
        self._client = client
        for session in self._sessions.values():
            session.rows.ended = True
        self._sessions.clear()
        self._in_flight.clear()
        self._queue.clear()
        self._leaderless.clear()
        self._snapshot = None
        self._owed = None
        self.refusals.clear()
        self._unready.clear()
        self.wants_fetch = True

    def _raise_located(self, error: errors.KafkaError) -> NoReturn:
        """Raises it; broken bytes get the log offset to continue behind, which the reader of bytes cannot tell as well.

        They are fetched again after the back-off: they may have broken on their way.
        """
        if self._owed is not None and self._owed[1] is error:
            self._owed = None
        current = self._queue.current
        if not isinstance(error, errors.CorruptDataError) or current is None:
            raise error
        tp = current.state.tp
        self._queue.release(current)
        self._backing_off.append(current.state)
        raise errors.CorruptDataError(
            f"the record data at this position is broken ({error.message or error}); seek to a later offset to go on without it",
            topic=tp[0],
            partition=tp[1],
            offset=current.position,
            broker=current.node_id,
            api="Fetch",
        ) from error

    def _next_fetch(self) -> CompletedFetch | None:
        """The fetch whose turn it is, first in the queue, checked to continue its partition's position."""
        if self._subscription.touched:
            self._take_touched()
        current = self._queue.current
        if current is not None:
            state = current.state
            if state.state is _FETCHING and not state.paused and self._is_wanted(current):
                return current
            self._queue.current = None
        if self._owed is not None:
            owner, owed = self._owed
            if owner is None or (owner.assigned and not owner.paused and owed.offset in (None, owner.offset)):
                raise owed
            self._owed = None  # of a position that is not read any more; once it is, it is asked for again
        queue = self._queue
        while (fetch := queue.head()) is not None:
            state = fetch.state
            if not self._is_wanted(fetch):
                self.metrics.stale_answers += 1
                queue.release(fetch)
            elif state.paused or state.state is not _FETCHING:
                queue.park(fetch)
            elif fetch.error_code:
                queue.release(fetch)
                self._take_error(fetch)
            else:
                queue.current = fetch
                return fetch
        return None

    def _is_wanted(self, fetch: CompletedFetch) -> bool:
        state = fetch.state
        if not state.assigned or fetch.leader_epoch != state.leader_epoch:
            return False
        reader = fetch.reader
        if (fetch.fetch_offset if reader is None else reader.next_offset) == state.offset:
            return True
        # behind a held answer that is still wanted itself
        first = state.held[0]
        return first is not fetch and first.position == state.offset

    def _take_error(self, fetch: CompletedFetch) -> None:
        """Acts on an error whose turn has come.

        Where it is raised, position and partition stay, and the partition is asked for again after the back-off. Of an answer that refuses
        many partitions in the same way one error is raised. It is owed until a call has nothing else to hand out.
        """
        state = fetch.state
        tp = state.tp
        if fetch.error_code == Code.OFFSET_OUT_OF_RANGE:
            if state.preferred_replica >= 0:
                state.preferred_replica = -1  # a follower may be behind: ask the leader
                self._goes_round(state)
                return
            if self._subscription.default_reset.name != "none":
                if self._goes_round(state):
                    return
                log.warning("%s-%d: offset %d is out of range, reset to %s", *tp, state.offset, self._subscription.default_reset.name)
                self._subscription.request_reset(tp, self._subscription.default_reset)
                return
        refused = [fetch]
        if fetch.error_code != Code.OFFSET_OUT_OF_RANGE:  # which is about one partition's offset
            for other in [f for f in self._queue if f.error_code == fetch.error_code and f.node_id == fetch.node_id]:
                self._queue.release(other)
                if other.state.assigned:
                    refused.append(other)
        self._backing_off.extend(f.state for f in refused)
        found = [
            errors.from_code(
                f.error_code, topic=f.state.tp[0], partition=f.state.tp[1], offset=f.fetch_offset, broker=f.node_id, api="Fetch"
            )
            for f in refused
        ]
        self._owed = state, errors.joined(found)
        raise self._owed[1]

    def retain(self) -> None:
        """Drops what is held for partitions or positions that are no longer wanted, so that it does not count."""
        self._take_touched()

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until a partition or a broker in back-off may be asked again; None when only the network can bring news."""
        if self._backing_off:
            return 0
        retries = self._retries
        if not retries and not self._unready and not self._resting:
            return None
        while retries and retries[0][0] != retries[0][2].retry_at_ms:
            heapq.heappop(retries)  # it has moved on since
        waits = [self._client.poll_delay_ms(node, now_ms) for node in self._unready]
        waits += [max(0, session.rests_until_ms - now_ms) for session in self._resting]
        if retries:
            waits.append(max(0, retries[0][0] - now_ms))
        return min(waits) if waits else None

    # -- closing ------------------------------------------------------------------------------------------------------------------

    def close_sessions(self, now_ms: int) -> frozenset[int]:
        """Tells every connected broker without a fetch in flight that the session has ended.

        A broker with a fetch in flight would answer only after that one; it drops the session by itself later.

        Returns:
            The brokers that will answer.
        """
        sent: set[int] = set()
        for node_id, session in self._sessions.items():
            plan = session.closing_plan()
            node = self._metadata.snapshot.nodes.get(node_id)
            if plan is None or node is None or node_id in self._in_flight or not self._client.is_ready(node, now_ms):
                continue
            limits = self._limits._replace(max_wait_ms=0, min_bytes=0)

            def build(version: int, plan: FetchPlan = plan, limits: FetchLimits = limits) -> FetchRequest:
                return plan.build(version, limits)

            def answered(_: ClientResponse, node_id: int = node_id) -> None:
                self._in_flight.discard(node_id)

            self._in_flight.add(node_id)
            self._client.send(self._client.new_client_request(node_id, FetchRequest, build, now_ms, callback=answered), now_ms)
            sent.add(node_id)
        return frozenset(sent)
