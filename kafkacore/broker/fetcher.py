"""How followers copy their leaders' logs: one long Fetch at a time to every broker that leads something this one holds.

    long lane    Fetch in a session, held back by the leader until there are bytes or replica.fetch.wait.max.ms have passed
    short lane   Fetch without session or wait, for partitions that came after the long one was sent; ListOffsets

Rules:

1. A partition is in at most one request at a time. What an answer says counts only if the leader epoch and the log's end are still those
   it was asked with.
2. A short Fetch makes the leader end the follower's long one at once (see handlers/fetch.py), and no long one is sent before the short one
   is answered: so new partitions join the next long Fetch within two round trips, instead of a wait that began before they existed.
3. The log is truncated where the leader's answer says that it diverges (KIP-320, KIP-595), never by the high watermark.
4. After an error a partition rests, longer with every failure in a row, at most replica.fetch.backoff.ms; a decision of the controller
   about it ends the rest.

No sockets and no clock here: `send` takes requests, `now_ms` tells the time, a timer calls back.

Source: org.apache.kafka.server.AbstractFetcherThread, kafka.server.{ReplicaFetcherThread, ReplicaFetcherManager};
org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from kafkacore.broker.fault_handler import contained, handle
from kafkacore.broker.partition import Partition
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, KafkaError
from kafkacore.net.connection import ExponentialBackoff
from kafkacore.protocol import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionData,
    ReplicaState,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.timer import LoopTimer, TimerTask

logger = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 20
LONG_LANE, SHORT_LANE = "fetch", "fetch-short"
_FETCH, _LIST_OFFSETS = FetchRequest.API_KEY, ListOffsetsRequest.API_KEY
_FIRST_VERSION_WITH_IDS = 13
_FIRST_VERSION_WITH_REPLICA_STATE = 15
_NO_SESSION, _FULL, _SESSIONLESS = 0, 0, -1
_INT32_MAX = 2**31 - 1
_LATEST, _EARLIEST = -1, -2

PartitionKey = tuple[str, int]
WireKey = tuple["str | bytes", int]
"""A partition as a Fetch names it: by topic id, before v13 by topic name."""


class Send(Protocol):
    """`PeerClient.send`."""

    def __call__(
        self, node_id: int, request: Request, version: int, done: Callable[[Response | KafkaError], None], timeout_ms: int, lane: str = ""
    ) -> None: ...


class Asked(NamedTuple):
    """What was asked of one partition; two equal ones need not be told twice in a session."""

    offset: int
    last_epoch: int
    leader_epoch: int
    log_start_offset: int


class Followed:
    """A partition that this broker copies."""

    __slots__ = ("asked", "failures", "leader_epoch", "partition", "resume_at_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.asked: Asked | None = None  # by the request it is in
        self.failures = 0
        self.resume_at_ms = 0

    def ask(self) -> Asked:
        """Takes note of where the log ends."""
        log = self.partition.log
        last_epoch = log.epochs[-1][0] if log.epochs else -1
        return Asked(log.end_offset, last_epoch, self.leader_epoch, log.start_offset)


class _Session:
    """The follower's side of a fetch session with one leader (KIP-227)."""

    __slots__ = ("epoch", "id", "told")

    def __init__(self) -> None:
        self.id = _NO_SESSION
        self.epoch = _FULL
        self.told: dict[WireKey, Asked] = {}

    def plan(self, wanted: dict[WireKey, Asked]) -> tuple[dict[WireKey, Asked], list[WireKey]]:
        """What to name in the next Fetch, and what to forget."""
        told, self.told = self.told, wanted
        if self.epoch == _FULL:
            return wanted, []
        return {key: asked for key, asked in wanted.items() if told.get(key) != asked}, [key for key in told if key not in wanted]

    def answered(self, response: FetchResponse) -> bool:
        """Moves on after an answer; False if the leader refused the session."""
        if response.error_code:
            self.restart(lost=response.error_code == Code.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if response.session_id == _NO_SESSION:
            self.restart(lost=True)
        elif self.epoch == _FULL:
            self.id, self.epoch = response.session_id, 1
        else:
            self.epoch = 1 if self.epoch == _INT32_MAX else self.epoch + 1
        return True

    def restart(self, lost: bool = False) -> None:
        """The next Fetch is a full one; it closes the session unless the leader has lost it."""
        self.epoch = _FULL
        if lost:
            self.id = _NO_SESSION


class LeaderFetcher:
    """Fetches everything from one leader."""

    def __init__(self, leader: int, owner: ReplicaFetchers) -> None:
        self.leader = leader
        self.followed: dict[PartitionKey, Followed] = {}
        self._owner = owner
        self._session = _Session()
        self._long: dict[WireKey, Followed] | None = None  # what the Fetch under way reads
        self._short = 0  # requests under way on the short lane
        self._wake: TimerTask | None = None

    def wake(self) -> None:
        """Sends what there is to send."""
        now_ms = self._owner.clock.now_ms()
        ready: dict[WireKey, Followed] = {}
        resume_at_ms: int | None = None
        for key, each in self.followed.items():
            if each.asked is not None:
                continue
            if each.resume_at_ms <= now_ms:
                ready[self._owner.wire_key(key, each)] = each
            elif resume_at_ms is None or each.resume_at_ms < resume_at_ms:
                resume_at_ms = each.resume_at_ms
        self._set_alarm(None if resume_at_ms is None else resume_at_ms - now_ms)
        if not ready or self._short:
            return
        if self._long is not None:
            self._send_short(ready)
        else:
            self._send_long(ready)

    def _set_alarm(self, delay_ms: int | None) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if delay_ms is not None:
            self._wake = TimerTask(delay_ms, self.wake)
            self._owner.timer.add(self._wake)

    # ---- Fetch

    def _send_long(self, ready: dict[WireKey, Followed]) -> None:
        asked = self._ask(ready)
        session = self._session
        named, forgotten = session.plan(asked)
        config = self._owner.config
        request = self._owner.fetch_request(named, forgotten, session.id, session.epoch, config.replica_fetch_wait_max_ms)
        self._long = ready
        self._owner.send_fetch(self.leader, request, LONG_LANE, lambda outcome: self._long_answered(ready, outcome))

    def _send_short(self, ready: dict[WireKey, Followed]) -> None:
        request = self._owner.fetch_request(self._ask(ready), [], _NO_SESSION, _SESSIONLESS, 0)
        self._short += 1
        self._owner.send_fetch(self.leader, request, SHORT_LANE, lambda outcome: self._short_answered(ready, outcome))

    @staticmethod
    def _ask(ready: Mapping[WireKey, Followed]) -> dict[WireKey, Asked]:
        asked = {}
        for key, each in ready.items():
            each.asked = asked[key] = each.ask()
        return asked

    def _long_answered(self, read: dict[WireKey, Followed], outcome: Response | KafkaError) -> None:
        self._long = None
        if isinstance(outcome, FetchResponse):
            if self._session.answered(outcome):
                if not self._take(read, outcome):
                    # The leader believes that this broker knows what it has just ignored: a high watermark might come late, or never.
                    self._session.restart()
            else:
                logger.debug("broker %d refused the fetch session: error %d", self.leader, outcome.error_code)
                self._release(read)
        else:
            self._session.restart()
            self._rest(read, outcome)
        self.wake()

    def _short_answered(self, read: dict[WireKey, Followed], outcome: Response | KafkaError) -> None:
        self._short -= 1
        if isinstance(outcome, FetchResponse):
            self._take(read, outcome)
        else:
            self._rest(read, outcome)
        self.wake()

    @staticmethod
    def _release(read: Mapping[WireKey, Followed]) -> None:
        for each in read.values():
            each.asked = None

    def _rest(self, read: Mapping[WireKey, Followed], outcome: Response | KafkaError) -> None:
        """No answer came: everything asked for rests."""
        logger.debug("fetching from broker %d failed: %s", self.leader, outcome)
        for each in read.values():
            each.asked = None
            self._failed(each)

    def _failed(self, each: Followed) -> None:
        each.resume_at_ms = self._owner.clock.now_ms() + self._owner.backoff.backoff_ms(each.failures)
        each.failures += 1

    def _take(self, read: Mapping[WireKey, Followed], response: FetchResponse) -> bool:
        """Takes an answer; False if a part of it came too late to count."""
        all_taken = True
        answers: dict[WireKey, PartitionData] = {}
        for topic in response.responses:
            name: str | bytes = topic.topic_id if self._owner.fetch_version >= _FIRST_VERSION_WITH_IDS else topic.topic
            for data in topic.partitions:
                answers[name, data.partition_index] = data
        for key, each in read.items():
            asked, each.asked = each.asked, None
            answer = answers.get(key)
            if answer is None:
                continue
            if asked is None or self.followed.get(each.partition.key) is not each or asked.offset != each.partition.log.end_offset:
                all_taken = False
                continue
            try:
                self._take_partition(each, asked, answer)
            except KafkaError as error:
                logger.warning("%s-%d: what broker %d sent cannot be taken: %s", *each.partition.key, self.leader, error)
                self._failed(each)
            except Exception as error:                        # the other partitions of the answer are taken
                handle(error, "what broker %d sent for partition %s-%d", self.leader, *each.partition.key)
                self._failed(each)
        return all_taken

    def _take_partition(self, each: Followed, asked: Asked, answer: PartitionData) -> None:
        partition = each.partition
        code = answer.error_code
        if code == Code.NONE:
            each.failures = 0
            diverging = answer.diverging_epoch
            if diverging.epoch >= 0 or diverging.end_offset >= 0:
                self._truncate(partition, partition.truncation_offset(diverging.epoch, diverging.end_offset))
            elif partition.append_as_follower(answer.records, answer.high_watermark, answer.log_start_offset, self._owner.clock.wall_ms()):
                self._owner.changed(partition)
        elif code == Code.OFFSET_OUT_OF_RANGE:
            self._look_up(each, asked, _LATEST)
        else:
            logger.debug("%s-%d: broker %d answers %s", *partition.key, self.leader, Code(code).name)
            self._failed(each)

    def _truncate(self, partition: Partition, offset: int) -> None:
        if offset < partition.high_watermark:
            logger.warning(
                "%s-%d: an election lost committed records: the log is truncated to %d, its high watermark was %d",
                *partition.key,
                offset,
                partition.high_watermark,
            )
        partition.truncate(offset)
        self._owner.changed(partition)

    # ---- where the leader's log begins and ends, when this one lies outside

    def _look_up(self, each: Followed, asked: Asked, timestamp: int) -> None:
        topic, index = each.partition.key
        wanted = ListOffsetsPartition(partition_index=index, current_leader_epoch=each.leader_epoch, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=self._owner.node_id,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
            timeout_ms=self._owner.config.replica_socket_timeout_ms,
        )
        each.asked = asked
        self._short += 1
        self._owner.send_list_offsets(self.leader, request, lambda outcome: self._looked_up(each, asked, timestamp, outcome))

    def _looked_up(self, each: Followed, asked: Asked, timestamp: int, outcome: Response | KafkaError) -> None:
        self._short -= 1
        each.asked = None
        partition = each.partition
        if self.followed.get(partition.key) is each and partition.log.end_offset == asked.offset:
            answer = outcome.topics[0].partitions[0] if isinstance(outcome, ListOffsetsResponse) else None
            if answer is None or answer.error_code or answer.offset < 0:
                self._failed(each)
            else:
                try:
                    self._go_on_from(each, asked, timestamp, answer.offset)
                except KafkaError as error:
                    logger.warning("%s-%d: cannot follow broker %d: %s", *partition.key, self.leader, error)
                    self._failed(each)
                except Exception as error:
                    handle(error, "following broker %d in partition %s-%d", self.leader, *partition.key)
                    self._failed(each)
        self.wake()

    def _go_on_from(self, each: Followed, asked: Asked, timestamp: int, offset: int) -> None:
        partition = each.partition
        if timestamp == _EARLIEST:
            if offset > asked.offset:
                logger.info("%s-%d: starts anew at %d, where the leader's log begins", *partition.key, offset)
                partition.restart_at(offset)
                self._owner.changed(partition)
        elif offset < asked.offset:
            self._truncate(partition, offset)
        else:
            self._look_up(each, asked, _EARLIEST)

    def close(self) -> None:
        """Nothing is fetched any more."""
        self.followed.clear()
        self._set_alarm(None)


class ReplicaFetchers:
    """All that one broker copies from others."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        clock: Clock,
        timer: LoopTimer,
        send: Send,
        broker_epoch: Callable[[], int],
        changed: Callable[[Partition], None],
        versions: Mapping[int, tuple[int, int]],
        rng: random.Random | None = None,
    ) -> None:
        """Follows nobody yet.

        Args:
            node_id: this broker.
            config: the replica.fetch settings.
            clock: the time.
            timer: for rests after errors.
            send: takes requests to other brokers.
            broker_epoch: of this broker's registration now.
            changed: told when a partition's log or high watermark moved.
            versions: that the brokers serve, (min, max) by API key.
            rng: the jitter of rests.
        """
        self.node_id = node_id
        self.config = config
        self.clock = clock
        self.timer = timer
        self.changed = changed
        longest_ms = config.replica_fetch_backoff_ms
        self.backoff = ExponentialBackoff(min(FIRST_BACKOFF_MS, longest_ms), longest_ms, rng=rng)
        self.fetch_version = versions[_FETCH][1]
        self._list_offsets_version = versions[_LIST_OFFSETS][1]
        self._send = send
        self._broker_epoch = broker_epoch
        self._leaders: dict[int, LeaderFetcher] = {}
        self._leader_of: dict[PartitionKey, int] = {}

    def follow(self, partition: Partition) -> None:
        """Copies a partition from its leader as it is now; nothing if it has none."""
        key = partition.key
        if partition.leader < 0:
            self.unfollow(key)
            return
        before = self._leader_of.get(key)
        if before == partition.leader:
            known = self._leaders[before].followed[key]
            if known.partition is partition and known.leader_epoch == partition.leader_epoch:
                return
        self.unfollow(key)
        self._leader_of[key] = partition.leader
        fetcher = self._leaders.get(partition.leader)
        if fetcher is None:
            fetcher = self._leaders[partition.leader] = LeaderFetcher(partition.leader, self)
        fetcher.followed[key] = Followed(partition)
        fetcher.wake()

    def unfollow(self, key: PartitionKey) -> None:
        """Copies a partition no more; an answer under way is not taken."""
        leader = self._leader_of.pop(key, None)
        if leader is not None:
            del self._leaders[leader].followed[key]

    def leader_is_back(self, node_id: int) -> None:
        """A broker has registered anew: what rests because it did not answer goes on."""
        fetcher = self._leaders.get(node_id)
        if fetcher is not None:
            for each in fetcher.followed.values():
                each.resume_at_ms = 0
            fetcher.wake()

    def close(self) -> None:
        """The broker stops."""
        for fetcher in self._leaders.values():
            with contained("the end of the fetcher of leader %d", fetcher.leader):
                fetcher.close()
        self._leaders.clear()
        self._leader_of.clear()

    def __len__(self) -> int:
        return len(self._leader_of)

    # ---- requests

    def wire_key(self, key: PartitionKey, each: Followed) -> WireKey:
        """How a Fetch names the partition."""
        return (each.partition.topic.topic_id if self.fetch_version >= _FIRST_VERSION_WITH_IDS else key[0]), key[1]

    def fetch_request(
        self, named: Mapping[WireKey, Asked], forgotten: list[WireKey], session_id: int, session_epoch: int, max_wait_ms: int
    ) -> FetchRequest:
        """A follower's Fetch."""
        topics: dict[str | bytes, list[FetchPartition]] = {}
        for (topic, index), asked in named.items():
            wanted = FetchPartition(
                partition=index,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                last_fetched_epoch=asked.last_epoch,
                log_start_offset=asked.log_start_offset,
                partition_max_bytes=self.config.replica_fetch_max_bytes,
            )
            topics.setdefault(topic, []).append(wanted)
        gone: dict[str | bytes, list[int]] = {}
        for topic, index in forgotten:
            gone.setdefault(topic, []).append(index)
        new_style = self.fetch_version >= _FIRST_VERSION_WITH_REPLICA_STATE
        return FetchRequest(
            replica_id=-1 if new_style else self.node_id,
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=self._broker_epoch()) if new_style else ReplicaState(),
            max_wait_ms=max_wait_ms,
            min_bytes=self.config.replica_fetch_min_bytes,
            max_bytes=self.config.replica_fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[
                FetchTopic(topic_id=topic, partitions=each) if isinstance(topic, bytes) else FetchTopic(topic=topic, partitions=each)
                for topic, each in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic, partitions=each)
                if isinstance(topic, bytes)
                else ForgottenTopic(topic=topic, partitions=each)
                for topic, each in gone.items()
            ],
        )

    def send_fetch(self, leader: int, request: FetchRequest, lane: str, done: Callable[[Response | KafkaError], None]) -> None:
        """Sends a Fetch."""
        self._send(leader, request, self.fetch_version, done, self.config.replica_socket_timeout_ms, lane)

    def send_list_offsets(self, leader: int, request: ListOffsetsRequest, done: Callable[[Response | KafkaError], None]) -> None:
        """Sends a ListOffsets."""
        self._send(leader, request, self._list_offsets_version, done, self.config.replica_socket_timeout_ms, SHORT_LANE)
