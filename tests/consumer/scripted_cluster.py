"""Brokers without sockets for the consumer's tests: requests go through the real codec, answers come when the test says so.

The brokers keep logs of real batches and real fetch sessions (KIP-227), written from the protocol's point of view and not from the
client's, so that a client that misunderstands a session reads wrong data here.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkacore import _codec, errors
from kafkacore import protocol as p
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.records import BatchBuilder, control_batch
from kafkacore.types import Node, TopicPartition

COMMIT, ABORT = 1, 0


@dataclass
class Log:
    """One partition: (base offset, next offset, bytes) of each batch."""

    leader: int = 1
    epoch: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    last_stable: int | None = None
    error: int = 0
    preferred: int = -1
    epoch_ends: dict[int, int] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def elect(self, leader: int | None = None, cut: int | None = None) -> None:
        """Another leader epoch; an unclean election cuts off what lies behind `cut`, a border of batches."""
        if not self.epochs:
            self.epochs = [(self.epoch, self.start)]
        if cut is not None:
            self.batches = [b for b in self.batches if b[0] < cut]
            self.epochs = [e for e in self.epochs if e[1] < cut]
            assert self.end == cut
        self.epoch += 1
        self.leader = leader or self.leader
        self.epochs.append((self.epoch, self.end))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as Kafka's LeaderEpochFileCache.endOffsetFor."""
        if not self.epochs:
            return epoch, self.epoch_ends.get(epoch, self.end)
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        higher = [e for e in self.epochs if e[0] > epoch]
        if epoch < 0 or not higher:
            return -1, -1
        return max((e[0] for e in self.epochs if e[0] <= epoch), default=epoch), higher[0][1]

    def refusal(self, node_id: int, current_leader_epoch: int) -> int:
        """As Kafka's Partition.checkCurrentLeaderEpoch."""
        if self.error:
            return self.error
        if 0 <= current_leader_epoch < self.epoch:
            return errors.Code.FENCED_LEADER_EPOCH
        if current_leader_epoch > self.epoch:
            return errors.Code.UNKNOWN_LEADER_EPOCH
        return 0 if node_id in (self.leader, self.preferred) else errors.Code.NOT_LEADER_OR_FOLLOWER

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, *values: bytes, **options: Any) -> int:
        base = self.end
        builder = BatchBuilder(base_offset=base, leader_epoch=self.epoch, max_bytes=1 << 20, **options)
        for i, value in enumerate(values):
            assert builder.append(value, timestamp_ms=1_000_000 + base + i)
        self.batches.append((base, base + len(values), bytes(builder.build())))
        return base

    def mark(self, kind: int, producer_id: int) -> None:
        base = self.end
        data = control_batch(kind, producer_id=producer_id, producer_epoch=0, base_offset=base, leader_epoch=self.epoch, timestamp_ms=5)
        self.batches.append((base, base + 1, bytes(data)))

    def read(self, offset: int, max_bytes: int, isolation: int) -> bytes:
        limit = self.last_stable if isolation and self.last_stable is not None else self.end
        out = b""
        for base, after, data in self.batches:
            if base >= limit or (out and len(out) + len(data) > max_bytes):
                break
            if after > offset:
                out += data
        return out


@dataclass
class Session:
    epoch: int
    partitions: dict[Any, p.FetchPartition]


class ScriptedCluster:
    """Metadata, network client and brokers in one, as far as the consumer looks.

    Args:
        logs: by partition.
        fetch_version: what the brokers speak.
        topic_ids: False for a cluster older than 2.8.
        sessions: False for brokers that keep none.
        whole: True for answers that are decoded to the end, False for those that are left as the request says.
    """

    def __init__(
        self,
        logs: dict[tuple[str, int], Log],
        *,
        fetch_version: int = 17,
        topic_ids: bool = True,
        sessions: bool = True,
        whole: bool = False,
    ) -> None:
        self.whole = whole
        self.logs = {TopicPartition(*tp): log for tp, log in logs.items()}
        self.versions = {p.FetchRequest: fetch_version, p.ListOffsetsRequest: 9, p.OffsetForLeaderEpochRequest: 4}
        self.topic_ids = topic_ids
        self.keep_sessions = sessions
        self.sessions: dict[int, dict[int, Session]] = {}
        self.session_ids = itertools.count(100)
        self.requests: list[tuple[int, int, Any]] = []
        self.pending: deque[tuple[Any, Any, int]] = deque()
        self.unready: set[int] = set()
        self.update_requests = 0
        self.hints: dict[TopicPartition, Any] = {}
        self.version = 0
        self.fatal_error = None
        self.answer: Callable[[int, int, Any], Any] | None = None
        self.refresh()

    # metadata

    def topic_id(self, name: str) -> bytes:
        return name.encode().ljust(16, b"\1") if self.topic_ids else bytes(16)

    def refresh(self) -> None:
        topics: dict[str, list[PartitionInfo]] = {}
        for tp, log in sorted(self.logs.items()):
            topics.setdefault(tp.topic, []).append(PartitionInfo(tp.partition, log.leader, log.epoch))
        nodes = {n: Node(n, "broker", 9090 + n) for n in range(4)}
        self.version += 1
        self.snapshot = ClusterSnapshot(nodes, topics={t: TopicInfo(t, self.topic_id(t), parts) for t, parts in topics.items()})

    def request_update(self, **_: Any) -> int:
        self.update_requests += 1
        return self.version

    def add_topic(self, name: str, now_ms: int) -> bool:
        return False

    def update_leaders(self, hints: Any, nodes: Any = ()) -> None:
        self.hints.update(hints)

    # network client

    def ready(self, node: Node, now_ms: int) -> bool:
        return node.id not in self.unready

    is_ready = ready

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return 50

    def new_client_request(self, node_id: int, api: Any, build: Any, now_ms: int, **options: Any) -> Any:
        return node_id, api, build, options

    def send(self, request: Any, now_ms: int) -> None:
        node_id, api, build, options = request
        version = min(self.versions[api], options.get("max_version") or 99)
        try:
            message = build(version)
        except errors.UnsupportedVersion as error:  # as NetworkClient.send: the answer comes with the next poll
            self.pending.append((request, error, version))
            return
        message = api.decode(version, b"".join(message.encode(version)))
        self.requests.append((node_id, version, message))
        self.pending.append((request, message, version))

    def deliver(self, count: int | None = None, lost: bool = False) -> int:
        """Answers requests in order; returns how many. `lost`: the connection breaks before the answer."""
        done = 0
        while self.pending and (count is None or done < count):
            (node_id, _, _, options), message, version = self.pending.popleft()
            if isinstance(message, errors.KafkaError):
                options["callback"](Reply(None, message, version))
                done += 1
                continue
            reply = self.handle(node_id, version, message)
            response = None if lost else self.decoded(type(reply), version, b"".join(reply.encode(version)), options.get("left"))
            error = errors.DisconnectError("gone") if lost else None
            options["callback"](Reply(response, error, version))
            done += 1
        return done

    def decoded(self, kind: Any, version: int, wire: bytes, left: type | None) -> Any:
        """The answer as the network client decodes it."""
        if left is None or self.whole:
            return kind.decode(version, wire)
        assert left is p.PartitionData
        return _codec.decode_fetch(kind.plan(version), wire)

    # brokers

    def handle(self, node_id: int, version: int, request: Any) -> Any:
        if self.answer is not None:
            reply = self.answer(node_id, version, request)
            if reply is not None:
                return reply
        if isinstance(request, p.FetchRequest):
            return self.fetch(node_id, version, request)
        if isinstance(request, p.ListOffsetsRequest):
            return self.list_offsets(node_id, request)
        return self.epoch_ends(node_id, request)

    def key(self, topic: Any, version: int) -> Any:
        return topic.topic_id if version >= 13 else topic.topic

    def fetch(self, node_id: int, version: int, request: p.FetchRequest) -> p.FetchResponse:
        mine = self.sessions.setdefault(node_id, {})
        reported = {(self.key(t, version), q.partition): q for t in request.topics for q in t.partitions}
        new_id = 0
        if request.session_epoch in (0, -1):
            mine.pop(request.session_id, None)
            wanted = reported
            if request.session_epoch == 0 and self.keep_sessions:
                new_id = next(self.session_ids)
                mine[new_id] = Session(1, dict(reported))
        else:
            session = mine.get(request.session_id)
            if session is None:
                return p.FetchResponse(error_code=errors.Code.FETCH_SESSION_ID_NOT_FOUND, responses=[])
            if session.epoch != request.session_epoch:
                return p.FetchResponse(error_code=errors.Code.INVALID_FETCH_SESSION_EPOCH, responses=[])
            session.epoch += 1
            new_id = request.session_id
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    session.partitions.pop((self.key(topic, version), index), None)
            session.partitions.update(reported)
            wanted = session.partitions
        full = request.session_epoch in (0, -1)
        topics: dict[Any, list[p.PartitionData]] = {}
        names = {self.topic_id(tp.topic): tp.topic for tp in self.logs}
        for (topic, index), query in wanted.items():
            name = names[topic] if version >= 13 else topic
            data = self.read(TopicPartition(name, index), node_id, query, request)
            if full or data.error_code or data.records:
                topics.setdefault(topic, []).append(data)
        return p.FetchResponse(
            session_id=new_id,
            responses=[
                p.FetchableTopicResponse(topic="" if version >= 13 else t, topic_id=t if version >= 13 else bytes(16), partitions=parts)
                for t, parts in topics.items()
            ],
            node_endpoints=[p.NodeEndpoint(node_id=3, host="broker", port=9093)] if version >= 16 else [],
        )

    def read(self, tp: TopicPartition, node_id: int, query: p.FetchPartition, request: p.FetchRequest) -> p.PartitionData:
        log = self.logs[tp]
        code = log.refusal(node_id, query.current_leader_epoch)
        if not code and not log.start <= query.fetch_offset <= log.end:
            code = errors.Code.OFFSET_OUT_OF_RANGE
        records = b"" if code else log.read(query.fetch_offset, query.partition_max_bytes, request.isolation_level)
        preferred = log.preferred if node_id == log.leader else -1
        return p.PartitionData(
            partition_index=tp.partition,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.end if log.last_stable is None else log.last_stable,
            log_start_offset=log.start,
            aborted_transactions=[p.AbortedTransaction(producer_id=i, first_offset=o) for i, o in log.aborted],
            preferred_read_replica=preferred,
            records=b"" if preferred >= 0 else records,
            **({"current_leader": p.LeaderIdAndEpoch(leader_id=3, leader_epoch=log.epoch + 1)} if code == 6 else {}),
        )

    def list_offsets(self, node_id: int, request: p.ListOffsetsRequest) -> p.ListOffsetsResponse:
        def answer(name: str, query: p.ListOffsetsPartition) -> p.ListOffsetsPartitionResponse:
            log = self.logs[TopicPartition(name, query.partition_index)]
            code = log.refusal(node_id, query.current_leader_epoch)
            end = log.last_stable if request.isolation_level and log.last_stable is not None else log.end
            offset = {-1: end, -2: log.start}.get(query.timestamp)
            if offset is None:
                offset = query.timestamp - 1_000_000 if query.timestamp < 1_000_000 + log.end else -1
            return p.ListOffsetsPartitionResponse(
                partition_index=query.partition_index,
                error_code=code,
                offset=-1 if code else offset,
                leader_epoch=-1 if code else log.epoch,
            )

        return p.ListOffsetsResponse(
            topics=[p.ListOffsetsTopicResponse(name=t.name, partitions=[answer(t.name, q) for q in t.partitions]) for t in request.topics]
        )

    def epoch_ends(self, node_id: int, request: p.OffsetForLeaderEpochRequest) -> p.OffsetForLeaderEpochResponse:
        def answer(name: str, query: Any) -> Any:
            log = self.logs[TopicPartition(name, query.partition)]
            code = log.refusal(node_id, query.current_leader_epoch)
            epoch, end = (-1, -1) if code else log.epoch_end(query.leader_epoch)
            return p.EpochEndOffset(partition=query.partition, error_code=code, leader_epoch=epoch, end_offset=end)

        return p.OffsetForLeaderEpochResponse(
            topics=[
                p.OffsetForLeaderTopicResult(topic=t.topic, partitions=[answer(t.topic, q) for q in t.partitions]) for t in request.topics
            ]
        )


class Sent(NamedTuple):
    """What a reply says of its request."""

    sent_ms: int = 1000


SENT = Sent()


@dataclass
class Reply:
    response: Any
    error: errors.KafkaError | None
    version: int
    latency_ms: int = 1
    request: Sent = SENT
