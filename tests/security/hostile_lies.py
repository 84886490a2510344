"""Lies that are consistent: the same cheap answer, again and again, as a broker gives it that wants its clients busy.

Each exchange is without progress. What is measured is its pace: how many requests a client sends for it. A client that goes round as fast
as the network allows costs a core of its own and one of the broker; `PACE` is far above what back-offs allow and far below such a loop.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafkacore import errors
from kafkacore.errors import Code
from kafkacore.protocol.schema import Struct
from tests.security.hostile_brokers import LATE_S, Attack, Misbehaved
from tests.security.hostile_faces import FACES

PACE = 200
"""Requests per second of one client, all of an exchange together."""
BEGIN = 40
"""Requests that a client may send at once: connections, metadata, and the first tries, which need not wait."""

Fields = Mapping[str, Any]
"""New values of a struct's fields; a callable gets (old value, number of the answer, node that answers)."""


@dataclass(frozen=True)
class Lie:
    """One lie.

    Attributes:
        drives: what meets it: read, group, write, transact.
        answers: per API the structs in its answers, by class name, and what their fields become.
        nodes: how many brokers the cluster seems to have; two are one, behind two ports.
        settings: of the client.
    """

    drives: tuple[str, ...]
    answers: Mapping[str, Mapping[str, Fields]]
    nodes: int = 1
    settings: Mapping[str, Any] = None  # type: ignore[assignment]


def _other(old: Any, count: int, node: int) -> int:
    return 3 - node


def _alternating(old: Any, count: int, node: int) -> int:
    return 1 + count % 2


def _rising(old: Any, count: int, node: int) -> int:
    return count + 10


def _name(old: Any, count: int, node: int) -> str:
    return f"member-{count}"


def _id(old: Any, count: int, node: int) -> bytes:
    return count.to_bytes(16, "big")


def _assignment(partitions: int) -> bytes:
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", partitions) + struct.pack(f">{partitions}i", *range(partitions))
    return struct.pack(">hi", 0, 1) + topic + struct.pack(">i", -1)


def _code(name: str, code: int, **more: Any) -> dict[str, Fields]:
    return {name: {"error_code": int(code), **more}}


_HINT = {"LeaderIdAndEpoch": {"leader_id": 1, "leader_epoch": _rising}}
_MEANDER = {"LeaderIdAndEpoch": {"leader_id": _alternating, "leader_epoch": _rising}}
_EMPTY = {"records": b""}
READ = ("read",)
GROUP = ("group",)
WRITE = ("write",)
TRANSACT = ("transact",)
_COMMITTED = ("OffsetFetchResponsePartition", "OffsetFetchResponsePartitions")
_SOON = {"heartbeat.interval.ms": 100}
MODERN = {"group.protocol": "consumer"}

LIES: dict[str, Lie] = {
    "preferred replicas that name each other": Lie(
        READ, {"Fetch": {"PartitionData": {"preferred_read_replica": _other, **_EMPTY}}}, 2, {"client.rack": "r"}
    ),
    "a nearer replica that is behind": Lie(
        READ,
        {
            "Fetch": {
                "PartitionData": {
                    "preferred_read_replica": lambda old, count, node: 2 if node == 1 else -1,
                    "error_code": lambda old, count, node: 0 if node == 1 else int(Code.OFFSET_OUT_OF_RANGE),
                    **_EMPTY,
                }
            }
        },
        2,
        {"client.rack": "r"},
    ),
    "fetch: not the leader, which is this one, with a rising epoch": Lie(
        READ, {"Fetch": {**_code("PartitionData", Code.NOT_LEADER_OR_FOLLOWER, **_EMPTY), **_HINT}}
    ),
    "fetch: not the leader, which is the other one, with a rising epoch": Lie(
        READ, {"Fetch": {**_code("PartitionData", Code.NOT_LEADER_OR_FOLLOWER, **_EMPTY), **_MEANDER}}, 2
    ),
    "fetch: the epoch is fenced, and metadata have a higher one each time": Lie(
        READ,
        {
            "Fetch": _code("PartitionData", Code.FENCED_LEADER_EPOCH, **_EMPTY),
            "Metadata": {"MetadataResponsePartition": {"leader_epoch": _rising}},
        },
    ),
    "fetch: nothing, at once, and much behind it": Lie(
        READ, {"Fetch": {"PartitionData": {**_EMPTY, "high_watermark": 1 << 40, "last_stable_offset": 1 << 40}}}
    ),
    "fetch: out of range": Lie(READ, _fetch := {"Fetch": _code("PartitionData", Code.OFFSET_OUT_OF_RANGE, **_EMPTY)}),
    "fetch: out of range, and the log begins far behind": Lie(
        READ, {**_fetch, "ListOffsets": {"ListOffsetsPartitionResponse": {"offset": 1 << 40}}}
    ),
    "fetch: the session is not known": Lie(READ, {"Fetch": _code("FetchResponse", Code.FETCH_SESSION_ID_NOT_FOUND, responses=[])}),
    "fetch: the log diverges at its begin": Lie(
        READ, {"Fetch": {"PartitionData": _EMPTY, "FetchEpochEndOffset": {"epoch": 0, "end_offset": 0}}}
    ),
    "fetch: another topic each time": Lie(
        READ,
        {"Fetch": _code("PartitionData", Code.UNKNOWN_TOPIC_ID, **_EMPTY), "Metadata": {"MetadataResponseTopic": {"topic_id": _id}}},
    ),
    "list offsets: not the leader, with a rising epoch": Lie(
        READ,
        {
            "ListOffsets": _code("ListOffsetsPartitionResponse", Code.NOT_LEADER_OR_FOLLOWER),
            "Metadata": {"MetadataResponsePartition": {"leader_epoch": _rising}},
        },
    ),
    "metadata: no leader": Lie(
        (*READ, *WRITE), {"Metadata": {"MetadataResponsePartition": {"leader_id": -1, "error_code": int(Code.LEADER_NOT_AVAILABLE)}}}
    ),
    "metadata: the leader is another one each time": Lie(
        (*READ, *WRITE),
        {
            "Metadata": {"MetadataResponsePartition": {"leader_id": _alternating, "leader_epoch": _rising}},
            "Fetch": _code("PartitionData", Code.NOT_LEADER_OR_FOLLOWER, **_EMPTY),
            "Produce": _code("PartitionProduceResponse", Code.NOT_LEADER_OR_FOLLOWER),
        },
        2,
    ),
    "no version of the API is spoken": Lie(READ, {"ApiVersions": _code("ApiVersionsResponse", Code.UNSUPPORTED_VERSION, api_keys=[])}),
    "every answer throttles for ever": Lie((*READ, *WRITE, *GROUP), {"*": {"*": {"throttle_time_ms": 2**31 - 1}}}),
    "produce: not the leader, which is this one, with a rising epoch": Lie(
        WRITE, {"Produce": {**_code("PartitionProduceResponse", Code.NOT_LEADER_OR_FOLLOWER), **_HINT}}
    ),
    "produce: not the leader, which is the other one, with a rising epoch": Lie(
        WRITE, {"Produce": {**_code("PartitionProduceResponse", Code.NOT_LEADER_OR_FOLLOWER), **_MEANDER}}, 2
    ),
    "produce: the producer is not known": Lie(WRITE, {"Produce": _code("PartitionProduceResponse", Code.UNKNOWN_PRODUCER_ID)}),
    "produce: the batch is too large": Lie(WRITE, {"Produce": _code("PartitionProduceResponse", Code.MESSAGE_TOO_LARGE)}),
    "coordinators that name each other": Lie(
        GROUP,
        {
            "FindCoordinator": {"Coordinator": {"node_id": _alternating}},
            "JoinGroup": _code("JoinGroupResponse", Code.NOT_COORDINATOR),
            "OffsetFetch": _code("OffsetFetchResponseGroup", Code.NOT_COORDINATOR),
        },
        2,
    ),
    "coordinators that name each other, consumer protocol": Lie(
        GROUP,
        {
            "FindCoordinator": {"Coordinator": {"node_id": _alternating}},
            "ConsumerGroupHeartbeat": _code("ConsumerGroupHeartbeatResponse", Code.NOT_COORDINATOR),
        },
        2,
        MODERN,
    ),
    "join: another member id each time": Lie(GROUP, {"JoinGroup": _code("JoinGroupResponse", Code.MEMBER_ID_REQUIRED, member_id=_name)}),
    "join: the member is not known": Lie(GROUP, {"JoinGroup": _code("JoinGroupResponse", Code.UNKNOWN_MEMBER_ID)}),
    "sync: the group rebalances": Lie(GROUP, {"SyncGroup": _code("SyncGroupResponse", Code.REBALANCE_IN_PROGRESS)}),
    "sync: 100,000 partitions of a topic that has three": Lie(
        GROUP, {"SyncGroup": {"SyncGroupResponse": {"assignment": _assignment(100_000)}}}
    ),
    "heartbeat: the group rebalances": Lie(GROUP, {"Heartbeat": _code("HeartbeatResponse", Code.REBALANCE_IN_PROGRESS)}, 1, _SOON),
    "heartbeat: the member is not known": Lie(GROUP, {"Heartbeat": _code("HeartbeatResponse", Code.UNKNOWN_MEMBER_ID)}, 1, _SOON),
    "committed offsets beyond the log": Lie(
        GROUP, {"OffsetFetch": {each: {"committed_offset": 1 << 40} for each in _COMMITTED}}
    ),
    "committed offsets that are not stable": Lie(
        GROUP, {"OffsetFetch": {each: {"error_code": int(Code.UNSTABLE_OFFSET_COMMIT)} for each in _COMMITTED}}
    ),
    "consumer protocol: heartbeats without a pause": Lie(
        GROUP, {"ConsumerGroupHeartbeat": {"ConsumerGroupHeartbeatResponse": {"heartbeat_interval_ms": 0}}}, 1, MODERN
    ),
    "consumer protocol: the member is fenced": Lie(
        GROUP, {"ConsumerGroupHeartbeat": _code("ConsumerGroupHeartbeatResponse", Code.FENCED_MEMBER_EPOCH)}, 1, MODERN
    ),
    "transactions: the last one goes on": Lie(
        TRANSACT, {"InitProducerId": _code("InitProducerIdResponse", Code.CONCURRENT_TRANSACTIONS)}
    ),
    "transactions: coordinators that name each other": Lie(
        TRANSACT,
        {
            "FindCoordinator": {"Coordinator": {"node_id": _alternating}},
            "InitProducerId": _code("InitProducerIdResponse", Code.NOT_COORDINATOR),
        },
        2,
    ),
    "transactions: the end does not end": Lie(TRANSACT, {"EndTxn": _code("EndTxnResponse", Code.CONCURRENT_TRANSACTIONS)}),
    "transactions: produce is not verified": Lie(TRANSACT, {"Produce": _code("PartitionProduceResponse", Code.CONCURRENT_TRANSACTIONS)}),
}  # fmt: skip


_groups = itertools.count()


class Liar:
    """Bends a proxy's answers by one lie."""

    def __init__(self, lie: Lie, ports: list[int]) -> None:
        self._lie = lie
        self._ports = ports
        self._count = itertools.count()
        self.told = 0

    def __call__(self, api: str, response: Any, node: int) -> list[Any]:
        """An answer as it is told; behind it with less of the lie, for versions that have not all of its fields."""
        count = next(self._count)
        bent = [self._doubled(api, response) if self._lie.nodes == 2 else response]
        for name in (api, "*"):
            for struct_name, fields in self._lie.answers.get(name, {}).items():
                bent.insert(0, self._bent(bent[0], struct_name, fields, count, node))
        if len(bent) > 1 and bent[0] != bent[-1]:
            self.told += 1
        return bent

    def _bent(self, value: Any, name: str, fields: Fields, count: int, node: int) -> Any:
        if isinstance(value, list):
            return [self._bent(each, name, fields, count, node) for each in value]
        if not isinstance(value, Struct):
            return value
        changed = {field: self._bent(getattr(value, field), name, fields, count, node) for field in value.FIELDS}
        if name in (type(value).__name__, "*"):
            for field, new in fields.items():
                if field in changed:
                    changed[field] = new(changed[field], count, node) if callable(new) else new
        return value._replace(**changed)

    def _doubled(self, api: str, response: Any) -> Any:
        """The one broker is two."""
        if api == "Metadata" and response.brokers:
            first = response.brokers[0]
            topics = [
                topic._replace(partitions=[each._replace(replica_nodes=[1, 2], isr_nodes=[1, 2]) for each in topic.partitions])
                for topic in response.topics
            ]
            return response._replace(brokers=[first, first._replace(node_id=2, port=self._ports[1])], topics=topics)
        if api == "FindCoordinator":
            port = {1: self._ports[0], 2: self._ports[1]}
            here = [each._replace(host="127.0.0.1", port=port.get(each.node_id, each.port)) for each in response.coordinators]
            return response._replace(coordinators=here)
        return response


@dataclass(frozen=True)
class Pace:
    """What an exchange cost.

    Attributes:
        requests: sent, by API.
        seconds: so long.
        told: lies.
        failures: errors that the client gave, by type.
    """

    requests: Counter[str]
    seconds: float
    told: int
    failures: Counter[str]

    @property
    def rate(self) -> float:
        """Requests per second, without those of the begin."""
        return max(0, self.requests.total() - BEGIN) / self.seconds

    def __str__(self) -> str:
        asked = ", ".join(f"{name} {count}" for name, count in self.requests.most_common(4))
        failed = ", ".join(f"{name} {count}" for name, count in self.failures.most_common(3))
        return f"{self.rate:.0f} requests/s, {self.told} lies: {asked}; {failed or 'no error'}"


def measured(attack: Attack, name: str, drive: str, face: str = "kafkacore", seconds: float = 1.0) -> Pace:
    """Plays a lie on a client.

    Raises:
        Misbehaved: what came out of the client is no error of its family, or a call hangs.
    """
    lie = LIES[name]
    proxy = attack.proxy
    liar = Liar(lie, proxy.ports)
    failures: Counter[str] = Counter()
    use: Callable[..., None] = FACES[face][drive]
    settings = {**(lie.settings or {})}
    if drive == "group":
        settings["group.id"] = f"g{next(_groups)}"  # the members of the last lie may be in its group still
    proxy.asked.clear()
    proxy.bend, proxy.broken = liar, None
    begun = time.monotonic()
    try:
        use(f"127.0.0.1:{proxy.port}", seconds, settings, lambda error: failures.update([type(error).__name__]))
    except errors.InternalError as error:
        raise Misbehaved(f"{name}, {face} {drive}: {error!r}") from error
    except Exception as error:
        raise Misbehaved(f"{name}, {face} {drive}: {type(error).__name__}: {error}") from error
    finally:
        proxy.bend = None
    took = time.monotonic() - begun
    if proxy.broken is not None and face != "legacy":  # which speaks older versions, where the lie is smaller
        raise Misbehaved(f"{name}: no such answer: {proxy.broken}") from proxy.broken
    if took > seconds + LATE_S:
        raise Misbehaved(f"{name}, {face} {drive}: took {took:.1f} s")
    return Pace(Counter(proxy.asked), took, liar.told, failures)


def cases(face: str) -> list[tuple[str, str]]:
    """The lies that a face meets, and what it does then."""
    return [
        (name, drive)
        for name, lie in LIES.items()
        for drive in lie.drives
        if drive in FACES[face] and (face in ("kafkacore", "aio") or not lie.settings)
    ]
