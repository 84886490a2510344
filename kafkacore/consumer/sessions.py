"""Incremental fetch sessions (KIP-227): per broker, send only what changed since the last fetch.

A session is named by (id, epoch). What each pair asks for:

    id 0,  epoch 0    a full fetch that wants a new session          (the first fetch, and after the broker forgot the session)
    id N,  epoch 0    a full fetch that closes N and wants a new one (after an error whose effect on N is not known)
    id N,  epoch E>0  an incremental fetch: changed and added partitions, and the forgotten ones
    id N,  epoch -1   closes N; sent once, on close

`want` and `drop` say what is to be fetched from now on, `plan` makes the next fetch of it (`FetchRows`, compiled, keeps the books).
Partitions are kept in the order in which they were added or changed last: a partition that returned data asks for a new offset, so it is
served last by the next full fetch. In a session the broker keeps that order (KIP-74, KIP-227). An incremental fetch costs what changed,
not what is assigned.

The broker answers a full fetch with the new id, or with 0 when it keeps no session: then the next fetch is full again.
An incremental answer leaves out partitions of which there is nothing new, so a partition that was taken away and has come back since the
last fetch needs a new session: where its log ends was said before.
From version 13 on topics are named by id. A session whose partitions lose or gain their id is replaced by a new one.

Source: KIP-227, KIP-516; Kafka's FetchSessionHandler, FetchMetadata.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacore import _codec
from kafkacore._codec import FetchedPartitions, FetchRow, FetchRows, FetchTarget
from kafkacore.errors import Code
from kafkacore.protocol import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData
from kafkacore.types import TopicPartition

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
ZERO_TOPIC_ID = bytes(16)
MAX_VERSION_BY_NAME = 12
_INT32_MAX = 0x7FFFFFFF
_codec._bind_fetched(PartitionData)
_codec._bind_fetch_rows(FetchPartition)

__all__ = ["FetchLimits", "FetchPlan", "FetchRow", "FetchRows", "FetchSession", "FetchTarget"]


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
        rows: every partition that the broker will look at, named in this request or before; they change with the session's next plan.
        topics: per topic of the request its name, its id, and the rows of its partitions.
        to_forget: the partitions that the broker shall look at no longer, with their topic ids.
        session_id, epoch: the session it belongs to.
        by_id: topics can be named by id, so versions 13 and up are allowed.
        is_full: it names all its partitions.
        answered: after `FetchSession.handle_response`, per topic of the answer its id, rows, and in their order what the answer says.
    """

    __slots__ = ("answered", "by_id", "epoch", "is_full", "names", "rows", "session_id", "to_forget", "topics")

    def __init__(
        self,
        rows: FetchRows,
        topics: list[tuple[str, bytes, list[FetchRow]]],
        to_forget: list[tuple[TopicPartition, bytes]],
        session_id: int,
        epoch: int,
        by_id: bool,
        names: dict[bytes, str],
    ) -> None:
        self.rows = rows
        self.topics = topics
        self.to_forget = to_forget
        self.session_id = session_id
        self.epoch = epoch
        self.is_full = epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        self.by_id = by_id
        self.names = names
        self.answered: list[tuple[bytes, list[FetchRow], FetchedPartitions | list[PartitionData]]] = []

    def build(self, version: int, limits: FetchLimits) -> FetchRequest:
        """The request in one version. Its partitions are rows, which change with the session's next plan."""
        forgotten: dict[tuple[str, bytes], list[int]] = {}
        for tp, topic_id in self.to_forget:
            if version <= MAX_VERSION_BY_NAME and self.rows.is_sent(tp):
                continue  # created again under its old name: brokers add first and forget last, so it would be lost
            forgotten.setdefault((tp[0], topic_id), []).append(tp[1])
        return FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=limits.isolation_level,
            session_id=self.session_id if version >= 7 else NO_SESSION_ID,
            session_epoch=self.epoch if version >= 7 else -1,
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=rows) for name, topic_id, rows in self.topics],  # type: ignore[arg-type]
            forgotten_topics_data=[ForgottenTopic(topic=n, topic_id=i, partitions=p) for (n, i), p in forgotten.items()],
            rack_id=limits.rack_id if version >= 11 else "",
        )


class FetchSession:
    """The consumer's side of the session with one broker.

    Args:
        node_id: the broker.

    Attributes:
        rows: what is to be fetched, and what of that was sent.
        in_vain: how many answers in a row were of no use.
        empty_at_once: how many in a row had nothing and came at once.
        rests_until_ms: the broker is not asked before; 0 when it does not rest, -1 when a rest begins.
    """

    __slots__ = ("_renewed", "by_id", "empty_at_once", "epoch", "in_vain", "names", "node_id", "rests_until_ms", "rows", "session_id")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session_id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self.rows = FetchRows(node_id)
        self.names: dict[bytes, str] = {}
        self.by_id = False
        self.in_vain = self.empty_at_once = self.rests_until_ms = 0
        self._renewed = False

    def want(self, tp: TopicPartition, target: FetchTarget) -> FetchRow:
        """Fetches a partition from now on, as `target` says. Returns its row."""
        return self.rows.want(tp, *target)

    def drop(self, tp: TopicPartition, owner: object = None) -> None:
        """Fetches a partition no longer, unless it has another owner by now."""
        self.rows.drop(tp, owner)

    def renew(self) -> None:
        """The next fetch begins a new session: a partition of this one has come back, and what was said of it is lost."""
        self._renewed = True

    def plan(self) -> FetchPlan:
        """The next fetch. None may be in flight: an answer is read by what was sent last."""
        rows = self.rows
        by_id = not rows.nameless if rows.wanted else self.by_id
        if by_id != self.by_id:
            self.epoch = INITIAL_EPOCH  # ids appeared or vanished: the session cannot be carried over
            self.by_id = by_id
        if self._renewed:
            self._renewed = False
            self.epoch = INITIAL_EPOCH
        to_forget: list[tuple[TopicPartition, bytes]] = []
        if self.epoch == INITIAL_EPOCH:
            topics = rows.send_all()
            self.names = {}
        else:
            topics, to_forget = rows.send_changes()
        if by_id:
            for name, topic_id, _ in topics:
                self.names[topic_id] = name
        return FetchPlan(rows, topics, to_forget, self.session_id, self.epoch, by_id, self.names)

    def handle_response(self, plan: FetchPlan, response: FetchResponse, version: int) -> str | None:
        """Moves the session on after an answer.

        Returns:
            None when the partitions in the answer may be used, else what is wrong with it.
        """
        self.in_vain += 1
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
        self.in_vain = 0
        if response.session_id == NO_SESSION_ID:
            self._forget()
        elif plan.is_full:
            self.session_id = response.session_id
            self.epoch = 1
        else:
            self.epoch = 1 if self.epoch == _INT32_MAX else self.epoch + 1
        return None

    def _mismatch(self, plan: FetchPlan, response: FetchResponse, version: int) -> str | None:
        count = 0
        for topic in response.responses:
            topic_id = topic.topic_id if version >= 13 else b""
            name = plan.names.get(topic_id) if topic_id else topic.topic
            if name is None:
                return f"the fetch answer names a topic id that was not asked for: {topic_id.hex()}"
            partitions = topic.partitions
            try:
                found = plan.rows.find(name, partitions)
            except LookupError as missing:
                return f"the fetch answer names a partition that was not asked for: {name}-{missing.args[0]}"
            plan.answered.append((topic_id, found, partitions))
            count += len(found)
        sent = plan.rows.sent_count
        if plan.is_full and count < sent:
            return f"the answer to a full fetch leaves out {sent - count} of {sent} partitions"
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
        plan = FetchPlan(FetchRows(self.node_id), [], [], self.session_id, FINAL_EPOCH, True, {})
        self._forget()
        return plan
