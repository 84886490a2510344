"""How followers copy their leaders' logs: one long Fetch at a time to every broker that leads something this one holds.

    long lane    Fetch in a session, held back by the leader until there are bytes or replica.fetch.wait.max.ms have passed
    short lane   Fetch without session or wait, for partitions that came after the long one was sent; ListOffsets

Rules:

1. A partition is in at most one request at a time. What an answer says counts only if the leader epoch and the log's end are still those
   it was asked with. [test_partitions_that_come_later_join_the_next_long_fetch_when_their_short_one_is_answered,
   test_an_answer_counts_for_the_epoch_and_the_end_of_the_log_that_were_asked_with]
2. A short Fetch makes the leader end the follower's long one at once (see handlers/fetch.py), and no long one is sent before the short one
   is answered: so new partitions join the next long Fetch within two round trips, instead of a wait that began before they existed.
   [test_partitions_that_come_later_join_the_next_long_fetch_when_their_short_one_is_answered]
3. The log is truncated where the leader's answer says that it diverges (KIP-320, KIP-595), never by the high watermark.
   [test_a_log_is_truncated_where_its_leader_says_that_it_diverges]
4. After an error a partition rests, longer with every failure in a row, at most replica.fetch.backoff.ms; a decision of the controller
   about it ends the rest. [test_a_partition_that_fails_rests_longer_each_time_while_its_neighbour_is_copied]
5. A partition whose replica is throttled (`ReplicationQuotas`) rests until the rate is back.
   [test_a_throttled_partition_rests_and_its_neighbour_goes_on]
6. A partition stays in the long Fetch, as a *member* of its session, until an answer names it, its log changes by itself (`changed`) or it
   goes. The next Fetch names those alone, so a round trip costs what has changed and not what is followed.
   [test_a_leaders_session_holds_what_a_full_fetch_would_name, test_a_round_trip_looks_at_what_was_answered_and_nothing_else]

No sockets and no clock here: `send` takes requests, `now_ms` tells the time, a timer calls back.

Source: org.apache.kafka.server.AbstractFetcherThread, kafka.server.{ReplicaFetcherThread, ReplicaFetcherManager};
org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from kafkacore.broker.fault_handler import contained, handle
from kafkacore.broker.partition import Partition
from kafkacore.broker.replication_quota import ReplicationQuotas
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.config_values import INT32_MAX
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
    """What was asked of one partition; two equal ones need not be sent twice in a session."""

    offset: int
    last_epoch: int
    leader_epoch: int
    log_start_offset: int


class Followed:
    """A partition that this broker copies.

    Attributes:
        wire_key: how a Fetch names it.
        asked: by the request it is in; None if it is in none.
        resume_at_ms: when its rest after an error ends; 0 without one.
    """

    __slots__ = ("asked", "failures", "leader_epoch", "partition", "resume_at_ms", "wire_key")

    def __init__(self, partition: Partition, wire_key: WireKey) -> None:
        self.partition = partition
        self.wire_key = wire_key
        self.leader_epoch = partition.leader_epoch
        self.asked: Asked | None = None
        self.failures = 0
        self.resume_at_ms = 0

    def ask(self) -> Asked:
        """Takes note of where the log ends."""
        log = self.partition.log
        last_epoch = log.epochs[-1][0] if log.epochs else -1
        self.asked = Asked(log.end_offset, last_epoch, self.leader_epoch, log.start_offset)
        return self.asked


class _Session:
    """The follower's side of a fetch session with one leader (KIP-227).

    Attributes:
        members: what the long Fetch reads.
        gone: members that the next Fetch is to forget.
        changed: members whose log has changed otherwise than by an answer.
    """

    __slots__ = ("changed", "epoch", "gone", "id", "members", "told")

    def __init__(self) -> None:
        self.id = _NO_SESSION
        self.epoch = _FULL
        self.told: dict[WireKey, Asked] = {}
        self.members: dict[WireKey, Followed] = {}
        self.gone: dict[WireKey, Followed] = {}
        self.changed: dict[WireKey, Followed] = {}

    def leaves(self, each: Followed) -> None:
        """A partition is not to be in the next Fetch; nothing if it is no member."""
        if self.members.get(each.wire_key) is each:
            self.gone[each.wire_key] = each

    def plan(self, ready: Mapping[WireKey, Followed]) -> tuple[dict[WireKey, Asked], list[WireKey]]:
        """What to name in the next Fetch, and what to forget.

        Args:
            ready: partitions that are asked for again, or for the first time.
        """
        told, members = self.told, self.members
        forgotten = []
        for key, each in self.gone.items():
            if members.get(key) is each and key not in ready:
                del members[key], told[key]
                forgotten.append(key)
        named = {}
        changed = [each for key, each in self.changed.items() if key not in ready and members.get(key) is each]
        for each in itertools.chain(changed, ready.values()):
            key, asked = each.wire_key, each.ask()
            members[key] = each
            if told.get(key) != asked:
                named[key] = told[key] = asked
        self.gone.clear()
        self.changed.clear()
        return (dict(told), []) if self.epoch == _FULL else (named, forgotten)

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
            self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1
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
        self._ready: dict[WireKey, Followed] = {}  # in no request
        self._resting: list[tuple[int, int, Followed]] = []  # a heap by the rest's end; some have ended otherwise
        self._rests = itertools.count()
        self._long = False  # a Fetch is under way, for the members of the session
        self._short = 0  # requests under way on the short lane
        self._wake: TimerTask | None = None
        self._is_refused = False  # and that has been said

    def follow(self, partition: Partition) -> None:
        """Copies a partition; `wake` is to come."""
        each = self.followed[partition.key] = Followed(partition, self._owner.wire_key(partition))
        self._ready[each.wire_key] = each

    def unfollow(self, key: PartitionKey) -> None:
        """Copies a partition no longer; an answer under way is not taken."""
        each = self.followed.pop(key)
        if self._ready.get(each.wire_key) is each:
            del self._ready[each.wire_key]
        self._session.leaves(each)

    def changed(self, key: PartitionKey) -> None:
        """A partition's log has changed: the leader learns what it asks for with the next Fetch."""
        each = self.followed[key]
        if self._session.members.get(each.wire_key) is each:
            self._session.changed[each.wire_key] = each

    def resume_all(self) -> None:
        """Ends every rest."""
        for _, _, each in self._resting:
            self._resume(each)
        self._resting.clear()

    def _resume(self, each: Followed) -> None:
        if each.resume_at_ms and self.followed.get(each.partition.key) is each:
            self._be_ready(each)

    def _be_ready(self, each: Followed) -> None:
        each.resume_at_ms = 0
        self._ready[each.wire_key] = each

    def wake(self) -> None:
        """Sends what there is to send."""
        now_ms = self._owner.clock.now_ms()
        resting = self._resting
        while resting and (resting[0][0] <= now_ms or resting[0][2].resume_at_ms != resting[0][0]):
            resume_at_ms, _, each = heapq.heappop(resting)
            if each.resume_at_ms == resume_at_ms:
                self._resume(each)
        self._set_alarm(resting[0][0] - now_ms if resting else None)
        if self._short or (self._long and not self._ready):
            return
        ready, self._ready = self._ready, {}
        if self._owner.quotas.follower.is_active:
            ready = self._unthrottled(ready, now_ms)
            if self._long and not ready:
                return
        if self._long:
            self._send_short(ready)
        else:
            self._send_long(ready)

    def _unthrottled(self, ready: Mapping[WireKey, Followed], now_ms: int) -> dict[WireKey, Followed]:
        """Those that may be fetched now; the others rest."""
        free = {}
        for key, each in ready.items():
            wait_ms = self._owner.quotas.follower_wait_ms(each.partition)
            if wait_ms:
                self._rest_for(each, wait_ms)
            else:
                free[key] = each
        if len(free) < len(ready):
            self._set_alarm(self._resting[0][0] - now_ms)
        return free

    def _rest_for(self, each: Followed, delay_ms: int) -> None:
        each.resume_at_ms = self._owner.clock.now_ms() + delay_ms
        heapq.heappush(self._resting, (each.resume_at_ms, next(self._rests), each))
        self._session.leaves(each)

    def _set_alarm(self, delay_ms: int | None) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if delay_ms is not None:
            self._wake = TimerTask(delay_ms, self.wake)
            self._owner.timer.add(self._wake)

    # ---- Fetch

    def _send_long(self, ready: Mapping[WireKey, Followed]) -> None:
        session = self._session
        named, forgotten = session.plan(ready)
        if not session.members:
            session.restart()
            return
        config = self._owner.config
        request = self._owner.fetch_request(named, forgotten, session.id, session.epoch, config.replica_fetch_wait_max_ms)
        self._long = True
        self._owner.send_fetch(self.leader, request, LONG_LANE, self._long_answered)

    def _send_short(self, ready: Mapping[WireKey, Followed]) -> None:
        asked = {key: each.ask() for key, each in ready.items()}
        request = self._owner.fetch_request(asked, [], _NO_SESSION, _SESSIONLESS, 0)
        self._short += 1
        self._owner.send_fetch(self.leader, request, SHORT_LANE, lambda outcome: self._short_answered(ready, outcome))

    def _long_answered(self, outcome: Response | KafkaError) -> None:
        self._long = False
        session = self._session
        if isinstance(outcome, FetchResponse):
            if session.answered(outcome):
                if not self._take(session.members, self._answers(outcome)):
                    # The leader believes that this broker knows what it has just ignored: a high watermark might come late, or never.
                    session.restart()
            else:
                logger.debug("broker %d refused the fetch session: error %d", self.leader, outcome.error_code)
        else:
            session.restart()
            self._rest(session.members, outcome)
        self.wake()

    def _short_answered(self, read: Mapping[WireKey, Followed], outcome: Response | KafkaError) -> None:
        self._short -= 1
        if isinstance(outcome, FetchResponse):
            answers = self._answers(outcome)
            for key, each in read.items():
                if key not in answers:
                    each.asked = None
                    self._is_free(each)
            self._take(read, answers)
        else:
            self._rest(read, outcome)
        self.wake()

    def _is_free(self, each: Followed) -> None:
        """A request that a partition was in is answered: it may be in another one."""
        if each.asked is None and not each.resume_at_ms and self.followed.get(each.partition.key) is each:
            self._be_ready(each)

    def _rest(self, read: Mapping[WireKey, Followed], outcome: Response | KafkaError) -> None:
        """No answer came: everything asked for rests. What has failed as often goes on at the same time."""
        logger.debug("fetching from broker %d failed: %s", self.leader, outcome)
        delays_ms: dict[int, int] = {}
        for each in read.values():
            each.asked = None
            if each.failures not in delays_ms:
                delays_ms[each.failures] = self._owner.backoff.backoff_ms(each.failures)
            self._failed(each, delays_ms[each.failures])

    def _failed(self, each: Followed, delay_ms: int | None = None) -> None:
        if delay_ms is None:
            delay_ms = self._owner.backoff.backoff_ms(each.failures)
        each.failures += 1
        if self.followed.get(each.partition.key) is each:
            self._rest_for(each, delay_ms)

    def _answers(self, response: FetchResponse) -> dict[WireKey, PartitionData]:
        answers: dict[WireKey, PartitionData] = {}
        for topic in response.responses:
            name: str | bytes = topic.topic_id if self._owner.fetch_version >= _FIRST_VERSION_WITH_IDS else topic.topic
            for data in topic.partitions:
                answers[name, data.partition_index] = data
        return answers

    def _take(self, read: Mapping[WireKey, Followed], answers: Mapping[WireKey, PartitionData]) -> bool:
        """Takes an answer; False if a part of it came too late to count."""
        all_taken = True
        for key, answer in answers.items():
            each = read.get(key)
            if each is None:
                continue
            asked, each.asked = each.asked, None
            if asked is None or self.followed.get(each.partition.key) is not each or asked.offset != each.partition.log.end_offset:
                all_taken = False
                self._is_free(each)
                continue
            try:
                self._take_partition(each, asked, answer)
            except KafkaError as error:
                logger.warning("%s-%d: what broker %d sent cannot be taken: %s", *each.partition.key, self.leader, error)
                self._failed(each)
            except Exception as error:                        # the other partitions of the answer are taken
                handle(error, "what broker %d sent for partition %s-%d", self.leader, *each.partition.key)
                self._failed(each)
            self._is_free(each)
        return all_taken

    def _take_partition(self, each: Followed, asked: Asked, answer: PartitionData) -> None:
        partition = each.partition
        code = answer.error_code
        if code == Code.NONE:
            each.failures = 0
            self._is_refused = False
            diverging = answer.diverging_epoch
            if diverging.epoch >= 0 or diverging.end_offset >= 0:
                self._truncate(partition, partition.truncation_offset(diverging.epoch, diverging.end_offset))
            elif partition.append_as_follower(answer.records, answer.high_watermark, answer.log_start_offset, self._owner.clock.wall_ms()):
                self._owner.quotas.fetched(partition, answer.records)
                self._owner.changed(partition)
        elif code == Code.OFFSET_OUT_OF_RANGE:
            self._look_up(each, asked, _LATEST)
        else:
            logger.debug("%s-%d: broker %d answers %s", *partition.key, self.leader, Code(code).name)
            if code == Code.TOPIC_AUTHORIZATION_FAILED and not self._is_refused:
                self._is_refused = True  # of every partition, and again with every attempt
                logger.error("broker %d does not let this broker copy: its principal must be in super.users", self.leader)
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
        self._is_free(each)
        self.wake()

    def _go_on_from(self, each: Followed, asked: Asked, timestamp: int, offset: int) -> None:
        partition = each.partition
        if timestamp == _EARLIEST:
            if offset > asked.offset:
                logger.info("%s-%d: starts again at %d, where the leader's log begins", *partition.key, offset)
                partition.restart_at(offset)
                self._owner.changed(partition)
        elif offset < asked.offset:
            self._truncate(partition, offset)
        else:
            self._look_up(each, asked, _EARLIEST)

    def close(self) -> None:
        """Nothing is fetched any more."""
        self.followed.clear()
        self._ready.clear()
        self._resting.clear()
        self._session = _Session()
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
        quotas: ReplicationQuotas,
        rng: random.Random | None = None,
    ) -> None:
        """Follows no leader yet.

        Args:
            node_id: this broker.
            config: the replica.fetch settings.
            clock: the time.
            timer: for rests after errors.
            send: takes requests to other brokers.
            broker_epoch: of this broker's registration now.
            changed: called when a partition's log or high watermark moved.
            versions: that the brokers serve, (min, max) by API key.
            quotas: the rates of throttled replicas.
            rng: the jitter of rests.
        """
        self.node_id = node_id
        self.config = config
        self.clock = clock
        self.quotas = quotas
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
        self._to_wake: dict[LeaderFetcher, None] = {}

    def follow(self, partition: Partition) -> None:
        """Copies a partition from its leader as it is now, after the next `wake`; nothing if it has none."""
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
        fetcher.follow(partition)
        self._to_wake[fetcher] = None

    def wake(self) -> None:
        """Asks for what is followed since the last call: once for all partitions that one decision of the controller is about."""
        if not self._to_wake:
            return
        to_wake = list(self._to_wake)
        self._to_wake.clear()
        for fetcher in to_wake:
            with contained("the fetcher of leader %d", fetcher.leader):
                fetcher.wake()

    def log_changed(self, key: PartitionKey) -> None:
        """The log of a partition has changed, by an answer or otherwise, as by retention; nothing if it is not followed."""
        leader = self._leader_of.get(key)
        if leader is not None:
            self._leaders[leader].changed(key)

    def unfollow(self, key: PartitionKey) -> None:
        """Stops copying a partition; an answer under way is not taken."""
        leader = self._leader_of.pop(key, None)
        if leader is not None:
            self._leaders[leader].unfollow(key)

    def leader_is_back(self, node_id: int) -> None:
        """A broker has registered again: what rests because it did not answer goes on."""
        fetcher = self._leaders.get(node_id)
        if fetcher is not None:
            fetcher.resume_all()
            fetcher.wake()

    def close(self) -> None:
        """The broker stops."""
        for fetcher in self._leaders.values():
            with contained("the end of the fetcher of leader %d", fetcher.leader):
                fetcher.close()
        self._leaders.clear()
        self._leader_of.clear()
        self._to_wake.clear()

    def __len__(self) -> int:
        return len(self._leader_of)

    # ---- requests

    def wire_key(self, partition: Partition) -> WireKey:
        """How a Fetch names the partition."""
        return (partition.topic.topic_id if self.fetch_version >= _FIRST_VERSION_WITH_IDS else partition.topic.name), partition.index

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
