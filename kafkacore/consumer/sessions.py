"""Incremental fetch sessions (KIP-227): per broker, tell only what changed since the last fetch.

A session is named by (id, epoch). What each pair asks for:

    id 0,  epoch 0    a full fetch that wants a new session          (the first fetch, and after the broker forgot the session)
    id N,  epoch 0    a full fetch that closes N and wants a new one (after an error whose effect on N is not known)
    id N,  epoch E>0  an incremental fetch: changed and added partitions, and the forgotten ones
    id N,  epoch -1   closes N; sent once, on close

`want` and `drop` say what is to be fetched from now on, `plan` makes the next fetch of it. Partitions are kept in the order in which they
were added or changed last: a partition that returned data asks for a new offset, so it is served last by the next full fetch. In a session
the broker keeps that order (KIP-74, KIP-227). An incremental fetch costs what changed, not what is assigned.

The broker answers a full fetch with the new id, or with 0 when it keeps no session: then the next fetch is full again.
From version 13 on topics are named by id. A session whose partitions lose or gain their id is replaced by a new one.

Source: KIP-227, KIP-516; Kafka's FetchSessionHandler, FetchMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkacore.errors import Code
from kafkacore.protocol import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData
from kafkacore.types import TopicPartition

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
ZERO_TOPIC_ID = bytes(16)
MAX_VERSION_BY_NAME = 12
_INT32_MAX = 0x7FFFFFFF


class FetchTarget(NamedTuple):
    """What is asked of one partition; two equal targets need not be told twice.

    `owner` is whoever takes the answer. Another owner of the same partition has to ask for itself.
    """

    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    owner: Any = None


class FetchLimits(NamedTuple):
    """The part of a fetch that is the same for every broker."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    rack_id: str


class FetchPlan:
    """One fetch ready to be built in whatever version is negotiated.

    Attributes:
        targets: every partition that the broker will look at, told in this request or before; they change with the session's next plan.
        session_id, epoch: the session it belongs to.
        by_id: topics can be named by id, so versions 13 and up are allowed.
        answered: after `FetchSession.handle_response`, per topic of the answer its id, targets, and in their order what the answer says.
    """

    __slots__ = ("answered", "by_id", "epoch", "names", "session_id", "targets", "to_forget", "to_send")

    def __init__(
        self,
        targets: dict[TopicPartition, FetchTarget],
        to_send: Mapping[TopicPartition, FetchTarget],
        to_forget: list[tuple[TopicPartition, bytes]],
        session_id: int,
        epoch: int,
        by_id: bool,
        names: dict[bytes, str],
    ) -> None:
        self.targets = targets
        self.to_send = to_send
        self.to_forget = to_forget
        self.session_id = session_id
        self.epoch = epoch
        self.by_id = by_id
        self.names = names
        self.answered: list[tuple[bytes, list[FetchTarget], list[PartitionData]]] = []

    @property
    def is_full(self) -> bool:
        """True for a fetch that names all its partitions."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def build(self, version: int, limits: FetchLimits) -> FetchRequest:
        """The request in one version."""
        topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
        name, topic_id, partitions = "", b"", []  # of the topic before: partitions mostly come topic by topic
        for tp, target in self.to_send.items():
            if tp[0] is not name or target.topic_id is not topic_id:
                name, topic_id = tp[0], target.topic_id
                partitions = topics.setdefault((name, topic_id), [])
            partitions.append(
                FetchPartition(
                    partition=tp[1],
                    current_leader_epoch=target.leader_epoch,
                    fetch_offset=target.fetch_offset,
                    partition_max_bytes=target.max_bytes,
                )
            )
        forgotten: dict[tuple[str, bytes], list[int]] = {}
        for tp, topic_id in self.to_forget:
            if version <= MAX_VERSION_BY_NAME and tp in self.targets:
                continue  # created anew under its old name: brokers add first and forget last, so it would be gone
            forgotten.setdefault((tp[0], topic_id), []).append(tp[1])
        return FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=limits.isolation_level,
            session_id=self.session_id if version >= 7 else NO_SESSION_ID,
            session_epoch=self.epoch if version >= 7 else -1,
            topics=[FetchTopic(topic=n, topic_id=i, partitions=p) for (n, i), p in topics.items()],
            forgotten_topics_data=[ForgottenTopic(topic=n, topic_id=i, partitions=p) for (n, i), p in forgotten.items()],
            rack_id=limits.rack_id if version >= 11 else "",
        )


class FetchSession:
    """The consumer's side of the session with one broker.

    Args:
        node_id: the broker.
    """

    __slots__ = ("_changed", "_nameless", "by_id", "epoch", "names", "node_id", "session_id", "targets", "told")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session_id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self.targets: dict[TopicPartition, FetchTarget] = {}
        """What is to be fetched."""
        self.told: dict[TopicPartition, FetchTarget] = {}
        """What the broker looks at, once it has the last plan."""
        self.names: dict[bytes, str] = {}
        self.by_id = False
        self._changed: dict[TopicPartition, None] = {}  # where the two may differ
        self._nameless = 0  # targets without a topic id

    def want(self, tp: TopicPartition, target: FetchTarget) -> None:
        """Fetches a partition from now on, as `target` says."""
        targets = self.targets
        before = targets.get(tp)
        topic_id = target.topic_id
        if before is None:
            self._nameless += topic_id == ZERO_TOPIC_ID
        else:
            if before == target:
                return
            del targets[tp]  # its new place is the end
            if before.topic_id is not topic_id:
                self._nameless += (topic_id == ZERO_TOPIC_ID) - (before.topic_id == ZERO_TOPIC_ID)
        targets[tp] = target
        self._changed[tp] = None

    def drop(self, tp: TopicPartition, owner: object = None) -> None:
        """Fetches a partition no longer, unless it has another owner by now."""
        target = self.targets.get(tp)
        if target is not None and target.owner is owner:
            del self.targets[tp]
            self._changed[tp] = None
            self._nameless -= target.topic_id == ZERO_TOPIC_ID

    def plan(self) -> FetchPlan:
        """The next fetch. None may be in flight: an answer is read by what was told last."""
        targets = self.targets
        by_id = not self._nameless if targets else self.by_id
        if by_id != self.by_id:
            self.epoch = INITIAL_EPOCH  # ids appeared or vanished: the session cannot be carried over
            self.by_id = by_id
        to_forget: list[tuple[TopicPartition, bytes]] = []
        if self.epoch == INITIAL_EPOCH:
            self.told = dict(targets)
            to_send: dict[TopicPartition, FetchTarget] = self.told
            self.names = {t.topic_id: tp[0] for tp, t in targets.items()} if by_id else {}
        else:
            told = self.told
            to_send = {}
            for tp in self._changed:
                old, new = told.get(tp), targets.get(tp)
                if old is not None and (new is None or new.topic_id != old.topic_id):
                    to_forget.append((tp, old.topic_id))
                if new is None:
                    told.pop(tp, None)
                elif new != old:
                    to_send[tp] = told[tp] = new
                    if by_id:
                        self.names[new.topic_id] = tp[0]
        self._changed = {}
        return FetchPlan(self.told, to_send, to_forget, self.session_id, self.epoch, by_id, self.names)

    def handle_response(self, plan: FetchPlan, response: FetchResponse, version: int) -> str | None:
        """Moves the session on after an answer.

        Returns:
            None when the partitions in the answer may be used, else what is wrong with it.
        """
        code = response.error_code
        if code != 0:
            if code == Code.FETCH_SESSION_ID_NOT_FOUND:
                self._forget()
            else:
                self.epoch = INITIAL_EPOCH
            return f"the broker refused the fetch session: error {code}"
        problem = self._mismatch(plan, response, version)
        if problem is not None:
            self.epoch = INITIAL_EPOCH
            return problem
        if response.session_id == NO_SESSION_ID:
            self._forget()
        elif plan.is_full:
            self.session_id = response.session_id
            self.epoch = 1
        else:
            self.epoch = 1 if self.epoch == _INT32_MAX else self.epoch + 1
        return None

    def _mismatch(self, plan: FetchPlan, response: FetchResponse, version: int) -> str | None:
        targets: dict[Any, FetchTarget] = plan.targets  # by plain tuples: the same hash, cheaper to make
        count = 0
        for topic in response.responses:
            topic_id = topic.topic_id if version >= 13 else b""
            name = plan.names.get(topic_id) if topic_id else topic.topic
            if name is None:
                return f"the fetch answer names a topic id that was not asked for: {topic_id.hex()}"
            partitions = topic.partitions
            try:
                found = [targets[name, data.partition_index] for data in partitions]
            except KeyError as missing:
                return f"the fetch answer names a partition that was not asked for: {name}-{missing.args[0][1]}"
            plan.answered.append((topic_id, found, partitions))
            count += len(found)
        if plan.is_full and count < len(targets):
            return f"the answer to a full fetch leaves out {len(targets) - count} of {len(targets)} partitions"
        return None

    def handle_error(self) -> None:
        """No answer came (a disconnect, a time-out): whether the broker counted the fetch is not known, so start over."""
        self.epoch = INITIAL_EPOCH

    def _forget(self) -> None:
        self.session_id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH

    def closing_plan(self) -> FetchPlan | None:
        """The fetch that closes the session, or None when the broker holds none."""
        if self.session_id == NO_SESSION_ID:
            return None
        plan = FetchPlan({}, {}, [], self.session_id, FINAL_EPOCH, True, {})
        self._forget()
        return plan
