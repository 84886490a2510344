"""Fetch.

Source: kafka.server.KafkaApis.handleFetchRequest, kafka.server.ReplicaManager.fetchMessages.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.broker.authorizer import CLUSTER_ACTION, READ, TOPIC
from kafkacore.broker.delayed import DelayedFetch, DelayedSessionFetch
from kafkacore.broker.handlers.access import TOPIC_REFUSED, check_topic, may, may_cluster
from kafkacore.broker.handlers.common import FIRST_VERSION_WITH_TOPIC_IDS, STALE_LEADER, code_of, current_leader, endpoints, topic_name
from kafkacore.broker.log import Log, messages
from kafkacore.broker.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from kafkacore.broker.sessions import FINAL_EPOCH, NO_SESSION, FetchContext, FetchKey, FetchSession, TopicKey
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.broker.throttling import name_of
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

STEP_PARTITIONS = 200
"""A fetch of more partitions is read in steps of so many."""
NO_REPLICA = -1
# A client that tells its rack may be sent to a follower, and so may read from one (KIP-392).
FIRST_VERSION_FROM_FOLLOWERS = 11
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_MAX_BYTES = 3
FIRST_VERSION_WITH_BATCHES = 4
"""Before it came message sets of magic 0 and 1, to which a broker that plays an older Kafka converts what it has."""


class _Reader(NamedTuple):
    """Who fetches.

    Attributes:
        replica_id: the follower; -1 for a consumer.
        replica_epoch: the incarnation of the follower's broker; -1 if it does not say.
        rack: of a consumer; empty if it does not say.
        isolation_level: of a consumer.
        leader_only: only the leader may answer.
        is_follower: a broker copies, rather than a consumer reads.
    """

    replica_id: int
    replica_epoch: int
    rack: str
    isolation_level: int
    leader_only: bool
    is_follower: bool

    @classmethod
    def of(cls, request: FetchRequest, version: int) -> _Reader:
        told = version >= FIRST_VERSION_WITH_REPLICA_STATE
        if (request.replica_state.replica_id if told else request.replica_id) < 0 and not request.rack_id:
            reader = _CONSUMERS.get((request.isolation_level, version < FIRST_VERSION_FROM_FOLLOWERS))
            if reader is not None:
                return reader
        replica_id = max(request.replica_state.replica_id if told else request.replica_id, NO_REPLICA)
        replica_epoch = request.replica_state.replica_epoch if told else -1
        leader_only = replica_id >= 0 or version < FIRST_VERSION_FROM_FOLLOWERS
        return cls(replica_id, replica_epoch, request.rack_id, request.isolation_level, leader_only, replica_id >= 0)

    def find(self, state: BrokerState, topic: TopicKey, wanted: FetchPartition) -> Partition:
        """The partition a fetch names, if this broker may serve it to this reader."""
        known = state.cluster.topics_by_id.get(topic) if isinstance(topic, bytes) else None
        name = topic_name(state, topic) if known is None else known.name
        partition = state.replicas.partitions.get((name, wanted.partition)) or state.replicas.partition(name, wanted.partition)
        if name is not topic and partition.topic.topic_id != topic:
            raise errors.InconsistentTopicId("the topic was created again under its name")
        known_epoch = wanted.current_leader_epoch
        if known_epoch < -1:
            known_epoch = -1
        if self.leader_only:
            if known_epoch not in (-1, partition.leader_epoch) or partition.leader != partition.node_id:
                partition.check_leader(known_epoch)
        elif known_epoch not in (-1, partition.leader_epoch):
            partition.check_epoch(known_epoch)
        if self.is_follower and self.replica_id not in partition.remotes:
            if known_epoch < 0:
                raise errors.NotLeaderOrFollower(f"broker {self.replica_id} is none of the replicas {list(partition.replicas)}")
            # The epochs agree, so one of the two does not know of a reassignment yet: it is to ask again.
            raise errors.UnknownLeaderEpoch(f"broker {self.replica_id} is none of the replicas {list(partition.replicas)}")
        return partition

    def upper_offset(self, partition: Partition) -> int:
        """How far this reader may read."""
        return partition.log.end_offset if self.is_follower else partition.upper_offset(self.isolation_level)


_CONSUMERS = {
    (isolation_level, leader_only): _Reader(NO_REPLICA, -1, "", isolation_level, leader_only, False)
    for isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)
    for leader_only in (False, True)
}
"""The readers nearly all are: consumers that do not say where they are."""
_NO_DIVERGENCE = FetchEpochEndOffset()
NOT_LOOKED_AT = (
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
    Code.INCONSISTENT_TOPIC_ID,
    Code.TOPIC_AUTHORIZATION_FAILED,
)


def _divergence(partition: Partition, wanted: FetchPartition) -> FetchEpochEndOffset | None:
    """Where the log of a fetcher that names its last epoch stops being this one; None if it does not (KIP-595).

    Raises:
        OffsetOutOfRange: the log does not know the epoch, or begins after the fetch offset.

    Source: kafka.cluster.Partition.readRecords.
    """
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0:
        raise errors.OffsetOutOfRange(f"the log knows no epoch {wanted.last_fetched_epoch}", offset=wanted.fetch_offset)
    if wanted.fetch_offset < partition.log.start_offset:
        # Whether the epochs diverge or not: a follower that truncated first would only find this out one fetch later.
        raise errors.OffsetOutOfRange(f"the log begins at offset {partition.log.start_offset}", offset=wanted.fetch_offset)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return FetchEpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


class _WaitingPartition:
    """A partition of a fetch that waits."""

    __slots__ = ("reader", "segment_base", "state", "topic", "wanted")

    def __init__(
        self, state: BrokerState, topic: TopicKey, wanted: FetchPartition, reader: _Reader, segment_base: int | None = None
    ) -> None:
        self.state = state
        self.topic = topic
        self.wanted = wanted
        self.reader = reader
        self.segment_base = segment_base  # of the segment that holds the fetch offset; the first look sets it

    def bytes_available(self) -> int | None:
        try:
            wanted = self.wanted
            partition = self.reader.find(self.state, self.topic, wanted)
            if wanted.last_fetched_epoch >= 0 and _divergence(partition, wanted) is not None:
                return None
            offset, log = wanted.fetch_offset, partition.log
            if not log.start_offset <= offset <= log.end_offset:
                return None
            if self.reader.is_follower and self.state.throttled_replication.leader_waits(partition, self.reader.replica_id):
                return 0
            upper_offset = self.reader.upper_offset(partition)
            if self.segment_base is None:
                self.segment_base = log.segment_base(offset)
            if offset >= upper_offset:
                return 0
            if self.segment_base < log.segment_base(upper_offset):
                return None  # a new segment began behind what is fetched: Kafka reads no further than to the end of a segment
            return min(log.bytes_between(offset, upper_offset), self.wanted.partition_max_bytes)
        except KafkaError:  # also one of the disk: it is for this reader, not for the request that changed the partition
            return None


class _Reading:
    """One Fetch request: what it reads, now or after a wait."""

    def __init__(self, state: BrokerState, call: Call, request: FetchRequest, context: FetchContext) -> None:
        self.state = state
        self.version = call.version
        self.listener = call.listener
        self.request = request
        self.context = context
        self.reader = _Reader.of(request, call.version)
        self.max_bytes = min(request.max_bytes, state.config.fetch_max_bytes)
        if state.quotas.fetch and not self.reader.is_follower:
            # An answer of more would be throttled however long the client waited: it would never get one.
            most = state.quotas.fetch.most_at_once(name_of(call.principal), call.client_id or "")
            self.max_bytes = int(min(self.max_bytes, most))
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.leaders: set[int] = set()
        self.read_bytes = 0
        self.changes = 0  # of partitions, when it began to read
        self.authorizer = state.authorizer
        self.is_refused = self.reader.is_follower and not may_cluster(state, call, CLUSTER_ACTION)
        self._call = call
        self._allowed: TopicKey | None = None  # the last topic that the client may read
        self.at_once = False  # something was found that is not to wait: an error, a divergence, a better replica
        if context.session is not None:
            who = None if self.authorizer is None else (call.principal, call.client_host, self.authorizer.changes)
            context.session.read_by((self.reader, self.max_bytes < 0, who))

    @property
    def is_long(self) -> bool:
        """Whether other connections are to be served in between."""
        return self.context.partition_count > STEP_PARTITIONS

    def read(self, first: bool) -> list[tuple[TopicKey, PartitionData]]:
        """Reads every partition, in the session's order, until max_bytes are found; the first batch found comes whole (KIP-74).

        Args:
            first: the request has just come, and tells where a follower is; not so after a wait.
        """
        self._begin()
        answers: list[tuple[TopicKey, PartitionData]] = []
        self._read_some(self.context.partitions, first, answers)
        return answers

    def read_in_steps(self, first: bool) -> Generator[None, None, list[tuple[TopicKey, PartitionData]]]:
        """`read`, which yields between its steps."""
        self._begin()
        answers: list[tuple[TopicKey, PartitionData]] = []
        partitions = self.context.partitions
        for start in range(0, len(partitions), STEP_PARTITIONS):
            yield
            self._read_some(partitions[start : start + STEP_PARTITIONS], first, answers)
        return answers

    def answer_later(self, call: Call) -> None:
        """The wait has ended."""
        if self.is_long and call.slice is not None:
            call.slice(call, self._answer_in_steps())
        else:
            call.answer(lambda: self.response(self.read(first=False)))

    def _answer_in_steps(self) -> Generator[None, None, FetchResponse]:
        answers = yield from self.read_in_steps(first=False)
        return self.response(answers)

    def _begin(self) -> None:
        self.leaders.clear()
        self.changes = self.state.replicas.changes
        self.read_bytes = 0
        self.at_once = False
        self._allowed = None

    def _read_some(
        self, partitions: list[tuple[tuple[TopicKey, int], FetchPartition]], first: bool, answers: list[tuple[TopicKey, PartitionData]]
    ) -> None:
        for (topic, index), wanted in partitions:
            try:
                answer = self._read_partition(topic, wanted, first)
            except KafkaError as error:
                self.at_once = True
                code = self.state.played.code(code_of(error))
                leader = LeaderIdAndEpoch()
                if code in STALE_LEADER and self.version >= 12:
                    leader = current_leader(self.state, topic, index)
                    if self.version >= 16 and not self.reader.is_follower:
                        self.leaders.add(leader.leader_id)
                answer = PartitionData(
                    partition_index=index,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=[] if code in NOT_LOOKED_AT else None,  # as Kafka has it
                    current_leader=leader,
                    records=b"",
                )
            answers.append((topic, answer))

    def _read_partition(self, topic: TopicKey, wanted: FetchPartition, first: bool) -> PartitionData:
        reader = self.reader
        if wanted.partition_max_bytes < 0 or self.max_bytes < 0 or reader.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise errors.InvalidRequest(
                f"isolation level {reader.isolation_level}, limits {self.max_bytes} and {wanted.partition_max_bytes} bytes"
            )
        if self.authorizer is not None and topic is not self._allowed:
            self._check_access(topic)
        partition = reader.find(self.state, topic, wanted)
        log = partition.log
        records: list[Any] = []
        stable_offset = partition.last_stable_offset
        aborted: list[AbortedTransaction] | None = [] if reader.isolation_level == READ_COMMITTED and not reader.is_follower else None
        preferred = NO_REPLICA
        diverging = _divergence(partition, wanted) if wanted.last_fetched_epoch >= 0 else None
        if diverging is not None:
            self.at_once = True
        elif reader.rack:
            preferred = preferred_read_replica(self.state, partition, reader.rack, wanted.fetch_offset)
        if preferred >= 0:
            self.at_once = True
        elif diverging is None:
            limit = min(wanted.partition_max_bytes, self.max_bytes - self.read_bytes)
            at_least_one = self.read_bytes == 0
            end_offset = log.end_offset
            throttled = self.state.throttled_replication
            is_held = reader.is_follower and throttled.leader_waits(partition, reader.replica_id)
            if (limit > 0 or at_least_one) and not is_held:
                if reader.is_follower:
                    upper_offset = end_offset
                else:
                    upper_offset = stable_offset if reader.isolation_level == READ_COMMITTED else partition.high_watermark
                records = log.read(wanted.fetch_offset, limit if limit > 0 else 0, upper_offset, at_least_one)
                if self.version < FIRST_VERSION_WITH_BATCHES:
                    records = self._older(log, records, wanted, limit, upper_offset)
                nbytes = 0
                for view in records:
                    nbytes += view.nbytes
                self.read_bytes += nbytes
                if aborted is not None and records and log.has_aborted(wanted.fetch_offset):
                    upper_offset = min(upper_offset, log.offset_after(wanted.fetch_offset, nbytes))
                    aborted += [
                        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                        for entry in log.aborted_transactions(wanted.fetch_offset, upper_offset)
                    ]
            if reader.is_follower and first:
                self.state.replicas.follower_fetched(
                    partition, reader.replica_id, wanted.fetch_offset, wanted.log_start_offset, end_offset, reader.replica_epoch
                )
        answer = PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=stable_offset if not reader.is_follower else partition.last_stable_offset,
            log_start_offset=log.start_offset,
            diverging_epoch=diverging or _NO_DIVERGENCE,
            aborted_transactions=aborted,
            preferred_read_replica=preferred,
            records=(records[0] if len(records) == 1 else records) or b"",
        )
        if self.context.session is not None and diverging is None and not records:
            self._may_leave_out(self.context.session, partition, topic, wanted, answer)
        return answer

    def _count_throttled(self, answers: list[tuple[TopicKey, PartitionData]]) -> None:
        for topic, answer in answers:
            known = self.state.cluster.topics_by_id.get(topic) if isinstance(topic, bytes) else self.state.cluster.topics.get(topic)
            partition = None if known is None else self.state.replicas.partitions.get((known.name, answer.partition_index))
            if partition is not None:
                self.state.throttled_replication.sent(partition, answer.records)

    def _check_access(self, topic: TopicKey) -> None:
        """A consumer may READ the topic; a broker copies everything, with CLUSTER_ACTION on the cluster."""
        name = topic_name(self.state, topic)
        if self.is_refused:
            raise errors.TopicAuthorization(TOPIC_REFUSED, topic=name)
        if not self.reader.is_follower:
            check_topic(self.state, self._call, READ, name)
        self._allowed = topic

    def _older(self, log: Log, pieces: list[Any], wanted: FetchPartition, limit: int, upper_offset: int) -> list[Any]:
        """What was read, as message sets. Where nothing of it is for old readers, who could not go on behind it, the next that is."""
        found: list[Any] = []
        offset = wanted.fetch_offset
        while pieces:
            found, offset = messages.older(pieces, messages.magic_of_fetch(self.version), offset)
            if found or offset >= upper_offset:
                break
            pieces = log.read(offset, max(limit, 0), upper_offset, True)
        if self.version >= FIRST_VERSION_WITH_MAX_BYTES or sum(each.nbytes for each in found) <= wanted.partition_max_bytes:
            return found
        # Before KIP-74 the limit was strict: a message that is larger came cut off, and the reader had to ask for more.
        return [memoryview(b"".join(found))[: wanted.partition_max_bytes]]

    def _may_leave_out(
        self, session: FetchSession, partition: Partition, topic: TopicKey, wanted: FetchPartition, answer: PartitionData
    ) -> None:
        """The session leaves a partition out of its fetches where each of them would find the same, and change nothing about a follower."""
        reader, log, replica = self.reader, partition.log, None
        if not reader.upper_offset(partition) <= wanted.fetch_offset <= log.end_offset:
            return  # max_bytes were used up before: it was not read
        if reader.rack and self.state.config.replica_selector_class is not None:
            return  # which replica is best changes without a change of the partition
        if reader.is_follower:
            if reader.replica_id not in partition.isr or partition.high_watermark < log.end_offset:
                return  # its next fetch may be what lets it into the ISR, or the high watermark rise
            replica = partition.remotes[reader.replica_id]
            if replica.log_end_offset != wanted.fetch_offset:
                return  # it waited through an election: its next fetch shows how far it is
        session.leave_out((topic, wanted.partition), wanted, answer, log.segment_base(wanted.fetch_offset), replica)

    def response(self, answers: list[tuple[TopicKey, PartitionData]]) -> FetchResponse:
        """The answers grouped by topic, less what an incremental session knows already."""
        if self.reader.is_follower and self.state.throttled_replication.leader.is_active:
            self._count_throttled(answers)
        topics: dict[TopicKey, list[PartitionData]] = {}
        for topic, answer in self.context.filter(answers):
            topics.setdefault(topic, []).append(answer)
        return FetchResponse(
            session_id=self.context.session_id,
            responses=[
                FetchableTopicResponse(topic_id=topic, partitions=partitions)
                if isinstance(topic, bytes)
                else FetchableTopicResponse(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
            node_endpoints=endpoints(self.state, self.listener, self.leaders),
        )


def fetch(
    state: BrokerState, call: Call, request: FetchRequest
) -> FetchResponse | Outcome | Generator[None, None, FetchResponse | Outcome]:
    """Fetch v0-18 (message sets up to v3, topic ids from v13), with incremental sessions, min_bytes and max_wait. Brokers copy with it: a
    follower may read all there is, and where it reads on tells how far it is. Consumers (v11+) are sent to a replica in their rack, if
    replica.selector.class says so, and may read from any replica. cluster_id is not compared. Who may read is looked at again when a wait
    has ended, and by a session when ACLs have changed; a topic that is refused is answered at once."""
    is_sessionless = request.session_epoch == FINAL_EPOCH and request.session_id == NO_SESSION and not state.quotas.fetch
    if is_sessionless and len(request.topics) == 1 and call.version >= FIRST_VERSION_WITH_BATCHES:
        response = _fetch_one(state, call, request)
        if response is not None:
            return response
    context = state.sessions.context(request, call.version, call.now_ms)
    if isinstance(context, Code):
        return FetchResponse(error_code=context, session_id=0, responses=[])
    reading = _Reading(state, call, request, context)
    if reading.is_long and call.slice is not None:
        return _fetch_in_steps(state, call, reading)
    return _answer(state, call, reading, reading.read(first=True))


def _fetch_in_steps(state: BrokerState, call: Call, reading: _Reading) -> Generator[None, None, FetchResponse | Outcome]:
    answers = yield from reading.read_in_steps(first=True)
    return _answer(state, call, reading, answers)


def _answer(
    state: BrokerState, call: Call, reading: _Reading, answers: list[tuple[TopicKey, PartitionData]]
) -> FetchResponse | Outcome:
    """Answers with what was read, or waits for more."""
    request, context, reader = reading.request, reading.context, reading.reader
    if reader.is_follower and not reading.is_refused:
        # Its long Fetch waits on another connection while it has more to ask for: with the answer it can ask for all together.
        waiting_fetch = state.follower_fetches.pop(reader.replica_id, None)
        if waiting_fetch is not None:
            waiting_fetch.force_complete()
    if request.max_wait_ms <= 0 or context.is_empty or reading.at_once or reading.read_bytes >= reading.min_bytes:
        return reading.response(answers)

    operation: DelayedFetch | DelayedSessionFetch
    keys: Sequence[Hashable]
    if context.session is not None:
        operation, keys = _session_wait(state, call, reading, context.session), (context.session,)
    else:
        partitions = context.partitions
        try:
            names = {topic: topic_name(state, topic) for topic in {topic for (topic, _), _ in partitions}}
        except errors.UnknownTopicId:                         # deleted since it was read: the next fetch is answered so
            return reading.response(answers)
        keys = [key if (name := names[key[0]]) is key[0] else (name, key[1]) for key, _ in partitions]
        operation = _wait(state, call, reading, answers)
    call.operation = operation
    if reader.is_follower:
        state.follower_fetches[reader.replica_id] = operation
    state.fetches.try_complete_else_watch(operation, keys)
    return Outcome.LATER


def _wait(state: BrokerState, call: Call, reading: _Reading, answers: list[tuple[TopicKey, PartitionData]]) -> DelayedFetch:
    """A wait that looks at the partitions when one of them changes. If none does, the answer is what was read before."""

    def waiting() -> list[_WaitingPartition]:
        return [_WaitingPartition(state, topic, wanted, reading.reader) for (topic, _), wanted in reading.context.partitions]

    def answer() -> None:
        if operation.found_nothing:
            call.answer(lambda: reading.response(answers))
        else:
            reading.answer_later(call)

    # With a larger min_bytes the wait must know in which segment it began.
    found_nothing = reading.min_bytes <= 1 and reading.changes == state.replicas.changes
    operation = DelayedFetch(reading.request.max_wait_ms, reading.min_bytes, waiting, answer, found_nothing)
    return operation


def _session_wait(state: BrokerState, call: Call, reading: _Reading, session: FetchSession) -> DelayedSessionFetch:
    def status(key: FetchKey) -> _WaitingPartition | None:
        cached = session.partitions.get(key)
        if cached is None:
            return None
        return _WaitingPartition(state, key[0], cached.request, reading.reader, None if key in dirty_before else cached.segment_base)

    dirty_before = frozenset(session.dirty)
    return DelayedSessionFetch(
        reading.request.max_wait_ms,
        reading.min_bytes,
        session,
        status,
        lambda: reading.answer_later(call),
        state.fetches.check_and_complete,
    )


def _fetch_one(state: BrokerState, call: Call, request: FetchRequest) -> FetchResponse | None:
    """What most fetches of consumers without sessions are, in one step: one partition led here, with enough to read. None: it is not that.

    It does what `_Reading` does, with none of its errors: whatever is odd is left to that.
    """
    asked, version = request.topics[0], call.version
    if len(asked.partitions) != 1 or request.rack_id or request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return None
    if (request.replica_state.replica_id if version >= FIRST_VERSION_WITH_REPLICA_STATE else request.replica_id) >= 0:
        return None
    wanted = asked.partitions[0]
    name = asked.topic
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        known = state.cluster.topics_by_id.get(asked.topic_id)
        if known is None:
            return None
        name = known.name
    if state.authorizer is not None and not may(state, call, READ, TOPIC, name):
        return None
    partition = state.replicas.partitions.get((name, wanted.partition))
    if partition is None or partition.leader != partition.node_id or wanted.last_fetched_epoch >= 0:
        return None
    if wanted.current_leader_epoch >= 0 and wanted.current_leader_epoch != partition.leader_epoch:
        return None
    if version >= FIRST_VERSION_WITH_TOPIC_IDS and partition.topic.topic_id != asked.topic_id:
        return None
    log, offset = partition.log, wanted.fetch_offset
    max_bytes = min(request.max_bytes, state.config.fetch_max_bytes)
    limit = min(wanted.partition_max_bytes, max_bytes)
    stable_offset = partition.last_stable_offset
    committed = request.isolation_level == READ_COMMITTED
    upper_offset = stable_offset if committed else partition.high_watermark
    if limit <= 0 or not log.start_offset <= offset < upper_offset or (committed and log.has_aborted(offset)):
        return None
    try:
        records = log.read(offset, limit, upper_offset, True)
    except KafkaError:
        return None
    if len(records) != 1 or records[0].nbytes < min(request.min_bytes, max_bytes):
        return None
    answer = PartitionData(
        partition_index=wanted.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=[] if committed else None,
        records=records[0],
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[answer])])


def preferred_read_replica(state: BrokerState, partition: Partition, rack: str, offset: int) -> int:
    """Who should serve a consumer rather than this leader: an in-sync replica in its rack; -1 without such a replica or question.

    Source: KIP-392; kafka.server.ReplicaManager.findPreferredReadReplica, org.apache.kafka.common.replica.RackAwareReplicaSelector.
    """
    if not rack or state.config.replica_selector_class is None or not partition.is_leader or state.config.broker_rack == rack:
        return NO_REPLICA
    nodes = state.cluster.nodes
    near = [
        (replica.log_end_offset, replica.last_caught_up_ms, node)
        for node, replica in partition.remotes.items()
        if node in partition.isr
        and replica.log_start_offset <= offset <= replica.log_end_offset
        and node in nodes
        and nodes[node].rack == rack
    ]
    return max(near)[2] if near else NO_REPLICA
