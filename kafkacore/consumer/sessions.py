"""Incremental fetch sessions (KIP-227): per broker, tell only what changed since the last fetch.

A session is named by (id, epoch). What each pair asks for:

    id 0,  epoch 0    a full fetch that wants a new session          (the first fetch, and after the broker forgot the session)
    id N,  epoch 0    a full fetch that closes N and wants a new one (after an error whose effect on N is not known)
    id N,  epoch E>0  an incremental fetch: changed and added partitions, and the forgotten ones
    id N,  epoch -1   closes N; sent once, on close

The broker answers a full fetch with the new id, or with 0 when it keeps no session: then the next fetch is full again.
From version 13 on topics are named by id. A session whose partitions lose or gain their id is replaced by a new one.

Source: KIP-227, KIP-516; Kafka's FetchSessionHandler, FetchMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkacore.errors import Code
from kafkacore.protocol import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kafkacore.types import TopicPartition

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
ZERO_TOPIC_ID = bytes(16)
MAX_VERSION_BY_NAME = 12
_INT32_MAX = 0x7FFFFFFF


class FetchTarget(NamedTuple):
    """What is asked of one partition; two equal targets need not be told twice."""

    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    leader_epoch: int


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
        targets: every partition that the broker will look at, told in this request or before.
        session_id, epoch: the session it belongs to.
        by_id: topics can be named by id, so versions 13 and up are allowed.
    """

    __slots__ = ("by_id", "epoch", "names", "session_id", "targets", "to_forget", "to_send")

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

    @property
    def is_full(self) -> bool:
        """True for a fetch that names all its partitions."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def build(self, version: int, limits: FetchLimits) -> FetchRequest:
        """The request in one version."""
        topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for tp, target in self.to_send.items():
            topics.setdefault((tp[0], target.topic_id), []).append(
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

    __slots__ = ("by_id", "epoch", "names", "node_id", "session_id", "targets")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session_id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self.targets: dict[TopicPartition, FetchTarget] = {}
        self.names: dict[bytes, str] = {}
        self.by_id = False

    def plan(self, wanted: dict[TopicPartition, FetchTarget]) -> FetchPlan:
        """The next fetch, for exactly the partitions in `wanted`.

        Args:
            wanted: the partitions in the order they are to be served. The session keeps the dict.
        """
        names = {t.topic_id: tp[0] for tp, t in wanted.items()}
        by_id = bool(wanted) and ZERO_TOPIC_ID not in names
        if self.epoch != INITIAL_EPOCH and wanted and by_id != self.by_id:
            self.epoch = INITIAL_EPOCH  # ids appeared or vanished: the session cannot be carried over
        if self.epoch == INITIAL_EPOCH:
            to_send: Mapping[TopicPartition, FetchTarget] = wanted
            to_forget: list[tuple[TopicPartition, bytes]] = []
        else:
            if not wanted:
                by_id = self.by_id
            before = self.targets
            to_send = {tp: target for tp, target in wanted.items() if before.get(tp) != target}
            to_forget = [
                (tp, old.topic_id) for tp, old in before.items() if (new := wanted.get(tp)) is None or new.topic_id != old.topic_id
            ]
        self.targets = wanted
        self.by_id = by_id
        if by_id:
            self.names = {**self.names, **names} if self.epoch != INITIAL_EPOCH else names
        return FetchPlan(wanted, to_send, to_forget, self.session_id, self.epoch, by_id, self.names)

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
        seen = 0
        for topic in response.responses:
            name = plan.names.get(topic.topic_id) if version >= 13 else topic.topic
            if name is None:
                return f"the fetch answer names a topic id that was not asked for: {topic.topic_id.hex()}"
            for data in topic.partitions:
                if TopicPartition(name, data.partition_index) not in plan.targets:
                    return f"the fetch answer names a partition that was not asked for: {name}-{data.partition_index}"
                seen += 1
        if plan.is_full and seen < len(plan.targets):
            return f"the answer to a full fetch leaves out {len(plan.targets) - seen} of {len(plan.targets)} partitions"
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
