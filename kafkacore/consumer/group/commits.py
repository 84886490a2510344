"""Committed offsets: OffsetCommit and OffsetFetch.

Rules:
1. Commits go out in the order in which they were asked for, over one connection. While a commit is under way that may be tried again,
   nothing is sent behind it: a later commit never overtakes an earlier one. [test_nothing_is_sent_behind_a_commit_that_may_be_tried_again,
   test_after_an_interrupt_commits_are_sent_again_in_their_order]
2. An asynchronous commit is not tried again: a newer one is on its way by then, or the next one brings the same offsets.
   [test_every_error_code_of_a_commit]
3. A commit carries the generation of the time it is sent, not of the time it was asked for: what was processed stays processed. A member
   that has lost its generation commits nothing, since another member may read on from an earlier offset. Nor does a commit that has waited
   for another generation, if it names a partition that was given up since: its new owner may have committed more.
   [test_what_is_still_assigned_is_committed_in_the_generation_of_now, test_what_was_given_up_since_is_not_committed]
4. A commit that a rebalance refuses is its caller's to repeat, after the poll that takes part in the rebalance. A member that leaves does
   not poll again: its last commits are tried again by themselves, while it is a member.
   [test_a_commit_that_the_rebalance_refuses_is_tried_again,
   test_a_commit_says_that_the_generation_has_ended_and_no_heartbeat_is_waited_for]
5. An offset is of a topic, not of a name: it is never committed for a topic that was created later under the same name. Where all topics
   of a request have ids and the coordinator takes them (version 10), they go by id; else all go by name, and those are left out that the
   metadata do not have under the id of the offset. A topic that the coordinator does not know is asked for again once newer metadata have
   it. It is refused once they have another one under its name, or none three times in a row: a broker may lag behind. Before partitions
   are given up, which may be because of a new topic of that name, a commit by name waits for newer metadata at once.
   [test_topics_go_by_id_where_all_have_one, test_all_topics_go_by_name_where_one_has_no_id, test_a_commit_that_waited_while_its_topic_went,
   test_a_topic_that_only_the_coordinator_does_not_know_is_asked_for_again,
   test_before_partitions_are_given_up_a_commit_by_name_waits_for_metadata]

Source: Kafka's ConsumerCoordinator (sendOffsetCommitRequest, OffsetFetchResponseHandler) and CommitRequestManager; KIP-447 (stable
offsets); KIP-848 (topic ids in OffsetCommit and OffsetFetch).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafkacore import errors
from kafkacore._codec import SampledStat
from kafkacore.cluster_snapshot import ClusterSnapshot
from kafkacore.consumer.group.topic_ids import NO_ID, OffsetIds, TopicIds
from kafkacore.errors import Code
from kafkacore.net.client import ClientResponse
from kafkacore.net.committed import FIRST_FETCH_OF_GROUPS, committed_offset, offsets_to_fetch, topics_to_commit
from kafkacore.net.coordinator import CoordinatorLink
from kafkacore.net.leaders import by_topic
from kafkacore.protocol import OffsetCommitRequest, OffsetFetchRequest
from kafkacore.protocol.group import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger("kafkacore.consumer")

_BY_NAME = 9  # from version 10 on topics go by id
_MORE_LOOKS = 2  # at metadata, after those that do not have a topic
_NO_TOPIC = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})
_COORDINATOR = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR, Code.REQUEST_TIMED_OUT})
_EPOCH_ENDED = frozenset({Code.STALE_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID})
_NO_MEMBER = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_MEMBER_EPOCH})

_OF_MEMBER = _NO_MEMBER | {Code.STALE_MEMBER_EPOCH, Code.FENCED_INSTANCE_ID, Code.REBALANCE_IN_PROGRESS}


class Commit:
    """One commit on its way.

    Attributes:
        offsets: what is committed.
        callback: called by the polling thread with (offsets, error or None), None for nothing.
        retried: retriable errors are tried again until the owner gives up (`OffsetCommits.give_up`).
        last: so is a rebalance.
        done: an answer has come, or it has failed for good.
        error: why it failed, None when it did not.
        asked_as: whom it would have named when it was asked for.
        sent_ms: when it was sent last, -1 before.
        topic_ids: of the topics that the offsets are of.
        snapshot: the cluster as it was known when it was sent last.
        refused: offsets that are not sent again, since their topic is gone, and why.
        asked_metadata: which metadata it waits for, since the coordinator did not know a topic (`TopicIds.ask`); -1 for none.
        looks: how often metadata were asked for once more, since they did not have a topic.
        unseen: offsets that the request under way leaves out until metadata were looked at once more.
    """

    __slots__ = (
        "asked_as",
        "asked_metadata",
        "callback",
        "done",
        "error",
        "last",
        "looks",
        "offsets",
        "refused",
        "retried",
        "sent_ms",
        "snapshot",
        "topic_ids",
        "tries",
        "unseen",
    )

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], errors.KafkaError | None], object] | None,
        *,
        retried: bool,
        asked_as: ConsumerGroupMetadata,
        topic_ids: OffsetIds,
        last: bool = False,
    ) -> None:
        self.offsets = offsets
        self.topic_ids = topic_ids
        self.snapshot: ClusterSnapshot | None = None
        self.refused: dict[TopicPartition, errors.KafkaError] = {}
        self.asked_metadata = -1
        self.looks = 0
        self.unseen: list[TopicPartition] = []
        self.asked_as = asked_as
        self.callback = callback
        self.retried = retried
        self.last = last
        self.done = False
        self.error: errors.KafkaError | None = None
        self.sent_ms = -1
        self.tries = 0


class CommittedQuery:
    """A question for committed offsets.

    Attributes:
        waiting: partitions without an answer.
        results: offset per partition, None where nothing is committed.
        topic_ids: of the topics that were asked for by id.
        error: why the coordinator refused for good.
        last_error: why the last try failed.
        tries: that have failed.
        failed: the last of them, just now: the next step starts the back-off.
        retry_at_ms: when it may be asked again.
    """

    __slots__ = ("error", "failed", "last_error", "results", "retry_at_ms", "topic_ids", "tries", "waiting")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.waiting: set[TopicPartition] = set(partitions)
        self.results: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}
        self.error: errors.KafkaError | None = None
        self.last_error: errors.KafkaError | None = None
        self.tries = 0
        self.failed = False
        self.retry_at_ms = 0

    @property
    def done(self) -> bool:
        """Every partition has an answer, or the question has failed for good."""
        return not self.waiting or self.error is not None


class OffsetCommits:
    """Commits and fetches offsets of a group.

    Args:
        link: to the coordinator.
        group_id: of the group.
        member: gives the group's name, generation and member as commits name them.
        topics: knows the topics' ids.
        retry_backoff_ms, retry_backoff_max_ms: before a failed request is sent again, doubled with every failed try.
        names_member: OffsetFetch names member and epoch, as KIP-848 members do.
        refused: hears of an error about the member, and whom the commit named; returns True when the member's next generation may commit.
        assigned: whether this consumer reads a partition.
        taken: hears of offsets that are committed.

    Attributes:
        answered: commits with an answer whose callback is still to be called, in order.
        notes_all: commits without a callback are put there, too.
        latency_ms: of the commits that worked.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        group_id: str,
        member: Callable[[], ConsumerGroupMetadata],
        topics: TopicIds,
        *,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        names_member: bool = False,
        refused: Callable[[errors.KafkaError, ConsumerGroupMetadata], bool] = lambda cause, sent_as: False,
        assigned: Callable[[TopicPartition], bool] = lambda tp: True,
        taken: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = lambda offsets: None,
    ) -> None:
        self._link = link
        self._names_member = names_member
        self._group_id = group_id
        self._member = member
        self._topics = topics
        self._refused = refused
        self._assigned = assigned
        self._taken = taken
        self._backoff_ms = retry_backoff_ms
        self._backoff_max_ms = retry_backoff_max_ms
        self._waiting: deque[Commit] = deque()
        self._flying: deque[Commit] = deque()
        self._queries: list[CommittedQuery] = []
        self._asked: dict[int, object] = {}  # id of a query -> its request under way
        self._goes_by_name = False  # the last answer was of a version that names topics
        self._failed_tries: int | None = None  # answers carry no time: the next step starts the back-off
        self._retry_at_ms = 0
        self.answered: deque[Commit] = deque()
        self.notes_all = False
        self.latency_ms = SampledStat()

    def start_anew(self) -> None:
        """Another network client: what is under way is sent again, in order."""
        self._waiting, self._flying = deque([*self._flying, *self._waiting]), deque()  # one step, which Ctrl+C cannot split
        self._asked.clear()

    @property
    def idle(self) -> bool:
        """No commit is under way."""
        return not self._waiting and not self._flying

    # -- commits ------------------------------------------------------------------------------------------------------------------

    def under_way(self) -> dict[TopicPartition, int]:
        """The offsets of commits that have no answer yet; of several commits of a partition that of the last."""
        return {tp: found.offset for commit in (*self._flying, *self._waiting) for tp, found in commit.offsets.items()}

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], errors.KafkaError | None], object] | None = None,
        retried: bool,
        last: bool = False,
        gives_up: bool = False,
    ) -> Commit:
        """Sends these offsets with the next step, behind the commits before them.

        Args:
            offsets: to commit.
            callback: hears of the answer.
            retried: retriable errors are tried again.
            last: so is a rebalance.
            gives_up: the partitions are given up next.
        """
        ids = self._topics.of_all(offsets)
        commit = Commit(dict(offsets), callback, retried=retried, last=last, asked_as=self._member(), topic_ids=ids)
        if not offsets:
            self._end(commit, None)
        else:
            if gives_up and self._goes_by_name and ids.any_known():
                commit.asked_metadata = self._topics.ask()
            self._waiting.append(commit)
        return commit

    def give_up(self, commit: Commit) -> None:
        """The caller waits no longer for this commit."""
        commit.retried = False
        if commit in self._waiting:
            self._waiting.remove(commit)

    def _end(self, commit: Commit, error: errors.KafkaError | None) -> None:
        commit.done = True
        commit.error = error
        if commit.callback is not None or self.notes_all:
            self.answered.append(commit)

    def step(self, now_ms: int) -> None:
        """Sends what can be sent."""
        if self._failed_tries is not None:
            self._retry_at_ms = now_ms + self._pause_ms(self._failed_tries)
            self._failed_tries = None
        for query in self._queries:
            if query.failed:
                query.failed = False
                query.retry_at_ms = now_ms + self._pause_ms(query.tries - 1)
        queries = [q for q in self._queries if id(q) not in self._asked and now_ms >= q.retry_at_ms]
        commits = now_ms >= self._retry_at_ms
        if not queries and not (commits and self._waiting):
            return
        if not self._link.ready(now_ms):
            refused = self._link.failure
            if refused is not None:
                while self._waiting:
                    self._end(self._waiting.popleft(), refused)
                for query in queries:
                    query.error = refused
                    self._queries.remove(query)
                self._link.failure = None  # the callers that wait for these raise it
            return
        while commits and self._waiting and not self._held and not self._awaits_metadata and self._link.ready(now_ms):
            self._send(self._waiting.popleft(), now_ms)
        for query in queries:
            if self._link.ready(now_ms):
                self._send_query(query, now_ms)

    def _pause_ms(self, tries: int) -> int:
        """The back-off after so many failed tries before the last one."""
        return min(self._backoff_max_ms, self._backoff_ms << min(tries, 20))

    @property
    def _held(self) -> bool:
        """The commit under way may be tried again."""
        return bool(self._flying) and self._flying[-1].retried

    @property
    def _awaits_metadata(self) -> bool:
        """The coordinator did not know a topic of the commit whose turn it is: newer metadata say whether it is sent again."""
        asked = self._waiting[0].asked_metadata
        return asked >= 0 and not self._topics.answered_since(asked)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until `step` has something to do although no answer comes."""
        if self._failed_tries is not None or any(query.failed for query in self._queries):
            return 0
        waits = [query.retry_at_ms - now_ms for query in self._queries if id(query) not in self._asked]
        if self._waiting and not self._held:
            left_ms = self._retry_at_ms - now_ms
            waits.append(self._backoff_ms if left_ms <= 0 and self._awaits_metadata else left_ms)
        if not waits:
            return None
        first_ms = min(waits)
        return first_ms if first_ms > 0 else self._link.next_wake_ms(now_ms)

    def _send(self, commit: Commit, now_ms: int) -> None:
        member = self._member()
        if member != commit.asked_as and commit.asked_as.generation_id >= 0:
            gone = [tp for tp in commit.offsets if not self._assigned(tp)]
            if gone or member.generation_id < 0:
                self._end(commit, self._failed(*gone))
                return
        ids = commit.topic_ids
        self._refuse(commit, self._topics.replaced_of(ids, commit.offsets))
        if commit.asked_metadata >= 0:
            gone = [tp for tp in commit.offsets if tp not in commit.refused and self._topics.lost(tp, ids[tp])]
            if gone and commit.looks < _MORE_LOOKS:
                self._look_again(commit)
                self._waiting.appendleft(commit)
                return
            commit.looks = 0
            self._refuse(commit, gone)
        asked = commit.offsets
        if commit.refused:
            asked = {tp: found for tp, found in asked.items() if tp not in commit.refused}
        if not asked:
            self._end_refused(commit)
            return
        by_id = ids.name_all(asked)

        def build(version: int) -> OffsetCommitRequest:
            if version <= _BY_NAME:
                gone = [tp for tp in asked if ids[tp] != NO_ID and self._topics.lost(tp, ids[tp])]
                if commit.retried:
                    commit.unseen = gone
                else:
                    self._refuse(commit, gone)
            sent = asked
            if commit.refused or commit.unseen:
                sent = {tp: found for tp, found in asked.items() if tp not in commit.refused and tp not in commit.unseen}
            topics = topics_to_commit(sent, OffsetCommitRequestTopic, OffsetCommitRequestPartition)
            if version > _BY_NAME:
                firsts = [TopicPartition(topic.name, topic.partitions[0].partition_index) for topic in topics]
                topics = [topic._replace(topic_id=ids[first]) for topic, first in zip(topics, firsts, strict=True)]
            return OffsetCommitRequest(
                group_id=self._group_id,
                generation_id_or_member_epoch=member.generation_id,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id if version >= 7 else None,
                topics=topics,
            )

        def answered(response: ClientResponse) -> None:
            if commit not in self._flying:
                return
            self._flying.remove(commit)
            self._take(commit, member, response)

        commit.sent_ms = now_ms
        commit.snapshot = self._topics.snapshot
        commit.asked_metadata = -1
        commit.unseen = []
        self._flying.append(commit)
        self._link.send(OffsetCommitRequest, build, now_ms, answered, max_version=None if by_id else _BY_NAME)

    def _look_again(self, commit: Commit) -> None:
        """Metadata do not have a topic of it: a broker that lags behind does not, either."""
        commit.looks += 1
        commit.asked_metadata = self._topics.ask()

    def _refuse(self, commit: Commit, lost: Iterable[TopicPartition]) -> None:
        """These offsets are of topics that are gone."""
        commit.refused.update((tp, self._topics.refusal(tp, commit.topic_ids[tp], commit.offsets[tp])) for tp in lost)

    def _end_refused(self, commit: Commit, others: Iterable[errors.KafkaError] = ()) -> None:
        refused = [*others, *commit.refused.values()]
        self._end(commit, errors.joined(refused) if isinstance(refused[0], errors.AuthorizationError) else refused[0])

    def _take(self, commit: Commit, member: ConsumerGroupMetadata, response: ClientResponse) -> None:
        if response.error is not None or response.response is None:
            self._again(commit, response.error or errors.DisconnectError("the connection was lost"))
            return
        data: Any = response.response
        api = f"OffsetCommit v{response.version}"
        refused: list[errors.KafkaError] = []
        unknown: errors.KafkaError | None = None
        left_out = set(commit.offsets).difference(commit.refused, commit.unseen)
        by_id = response.version > _BY_NAME
        self._goes_by_name = not by_id
        names = commit.topic_ids.names() if by_id else {}
        for topic in data.topics:
            name = names.get(bytes(topic.topic_id), "") if by_id else topic.name
            for partition in topic.partitions:
                code = partition.error_code
                tp = TopicPartition(name, partition.partition_index)
                if tp not in left_out:  # not asked for, or answered already
                    continue
                left_out.discard(tp)
                if not code:
                    continue
                about = f"group {self._group_id}" if code == Code.GROUP_AUTHORIZATION_FAILED else None
                where = {"topic": name, "partition": partition.partition_index, "broker": self._link.broker_id, "api": api}
                cause = errors.from_code(code, about, **where)
                if code in _COORDINATOR:
                    self._link.lost(cause)
                    self._again(commit, cause)
                    return
                if code in _OF_MEMBER and self._refused(cause, member):
                    self._rebalancing(commit, cause)
                    return
                if code == Code.STALE_MEMBER_EPOCH and self._member().generation_id >= 0:
                    self._again(commit, cause)  # a member still: the next heartbeat brings the epoch, if it is not here yet
                    return
                if code in _NO_MEMBER or code == Code.STALE_MEMBER_EPOCH:
                    now = self._member()
                    if now.generation_id >= 0 and now != member:  # the group has rebalanced since, with this member
                        self._rebalancing(commit, cause)
                        return
                    self._end(commit, self._failed(cause=cause))
                    return
                if code == Code.REBALANCE_IN_PROGRESS:
                    self._rebalancing(commit, cause)
                    return
                if code in _NO_TOPIC:
                    gone = self._topics.replaced if commit.retried else self._topics.lost
                    if gone(tp, commit.topic_ids[tp]):
                        self._refuse(commit, [tp])
                    else:
                        unknown = unknown or cause
                    continue
                if cause.retriable or code == Code.UNSTABLE_OFFSET_COMMIT:
                    self._again(commit, cause)
                    return
                refused.append(cause)
        if commit.unseen:
            tp = commit.unseen[0]
            unknown = self._topics.refusal(tp, commit.topic_ids[tp], commit.offsets[tp])
            self._look_again(commit)
        elif unknown is not None:
            commit.asked_metadata = self._topics.ask()
        if unknown is not None:
            self._again(commit, unknown)
            return
        if refused:
            self._end_refused(commit, refused)
            return
        if left_out:
            missing = ", ".join(f"{t}-{i}" for t, i in sorted(left_out)[:5])
            self._again(commit, errors.UnknownServer(f"the answer leaves out {missing}", broker=self._link.broker_id, api=api))
            return
        self.latency_ms.record(response.latency_ms, response.request.sent_ms + response.latency_ms)
        lost: Collection[TopicPartition] = ()
        if commit.snapshot is not self._topics.snapshot:  # what was lost meanwhile says nothing of the topic that there is now
            lost = self._topics.lost_of(commit.topic_ids, commit.offsets)
        if commit.refused or lost:
            self._taken({tp: found for tp, found in commit.offsets.items() if tp not in commit.refused and tp not in lost})
        else:
            self._taken(commit.offsets)
        if commit.refused:
            self._end_refused(commit)
        else:
            self._end(commit, None)

    def _again(self, commit: Commit, cause: errors.KafkaError) -> None:
        if not commit.retried or isinstance(cause, errors.UsageError):
            self._end(commit, cause)
            return
        self._failed_tries = commit.tries
        commit.tries += 1
        commit.error = cause
        self._waiting.appendleft(commit)

    def _rebalancing(self, commit: Commit, cause: errors.KafkaError) -> None:
        if commit.last and commit.retried:
            self._again(commit, cause)
            return
        why = "call poll() so that this member takes part, then commit again what is still assigned"
        self._end(commit, errors.RebalanceInProgress(f"group {self._group_id} is rebalancing: {why}", attempts=[cause]))

    def _failed(self, *gone: TopicPartition, cause: errors.KafkaError | None = None) -> errors.KafkaError:
        if gone:
            return errors.CommitFailed(
                f"group {self._group_id} has rebalanced while the commit was waiting to be sent, and gave to others "
                + ", ".join(f"{t}-{i}" for t, i in gone[:5]),
            )
        return errors.CommitFailed(
            f"this consumer is not a member of group {self._group_id} any more, so its partitions may have gone to another member, "
            "which goes on from the last committed offset: poll() joins again. It happens when poll() is not called for "
            "max_poll_interval_ms or no heartbeat gets through for session_timeout_ms",
            attempts=[] if cause is None else [cause],
        )

    # -- what is committed --------------------------------------------------------------------------------------------------------

    def fetch(self, partitions: Iterable[TopicPartition]) -> CommittedQuery:
        """Asks for the committed offsets of these partitions with the next step."""
        query = CommittedQuery(partitions)
        if query.waiting:
            self._queries.append(query)
        return query

    def forget(self, query: CommittedQuery) -> None:
        """The caller waits no longer for this answer."""
        if query in self._queries:
            self._queries.remove(query)
        self._asked.pop(id(query), None)

    def _send_query(self, query: CommittedQuery, now_ms: int) -> None:
        member = self._member()
        topics = {name: [i for i, _ in found] for name, found in by_topic((tp, None) for tp in sorted(query.waiting)).items()}
        asked = self._asked[id(query)] = object()
        ids = {name: self._topics.snapshot.topic_id(name) for name in topics}

        def build(version: int) -> OffsetFetchRequest:
            stable, named = version >= 7, version >= 9 and self._names_member and member.generation_id > 0
            if named:
                return offsets_to_fetch(version, self._group_id, topics, stable, member.member_id, member.generation_id, ids)
            return offsets_to_fetch(version, self._group_id, topics, stable, topic_ids=ids)

        def answered(response: ClientResponse) -> None:
            if self._asked.get(id(query)) is not asked:
                return
            del self._asked[id(query)]
            self._take_query(query, {topic_id: name for name, topic_id in ids.items()}, response)
            if query.done and query in self._queries:
                self._queries.remove(query)

        self._link.send(OffsetFetchRequest, build, now_ms, answered, max_version=_BY_NAME if NO_ID in ids.values() else None)

    def _take_query(self, query: CommittedQuery, names: Mapping[bytes, str], response: ClientResponse) -> None:
        if response.error is not None or response.response is None:
            self._ask_again(query, response.error or errors.DisconnectError("the connection was lost"))
            return
        data: Any = response.response
        api = f"OffsetFetch v{response.version}"
        if response.version >= FIRST_FETCH_OF_GROUPS:
            groups = [g for g in data.groups if g.group_id == self._group_id]
            if not groups:
                self._ask_again(query, errors.UnknownServer("the answer leaves the group out", broker=self._link.broker_id, api=api))
                return
            data = groups[0]
        if data.error_code:
            cause = errors.from_code(data.error_code, f"group {self._group_id}", broker=self._link.broker_id, api=api)
            if data.error_code in _COORDINATOR:
                self._link.lost(cause)
                self._ask_again(query, cause)
            elif cause.retriable or (self._names_member and data.error_code in _EPOCH_ENDED):
                self._ask_again(query, cause)  # with the next epoch, or without one
            else:
                query.error = cause
            return
        by_id = response.version > _BY_NAME
        self._goes_by_name = not by_id
        for topic in data.topics:
            topic_id = bytes(topic.topic_id) if by_id else b""
            name = names.get(topic_id, "") if by_id else topic.name
            for found in topic.partitions:
                tp = TopicPartition(name, found.partition_index)
                if tp not in query.waiting:
                    continue
                if found.error_code:
                    if found.error_code == Code.UNKNOWN_TOPIC_ID:
                        self._topics.ask()  # it may have another id by now, or be gone
                    cause = errors.from_code(found.error_code, topic=tp.topic, partition=tp.partition, broker=self._link.broker_id, api=api)
                    if cause.retriable or found.error_code == Code.UNSTABLE_OFFSET_COMMIT:
                        query.last_error = cause  # an open transaction: asked again
                        continue
                    query.error = cause
                    return
                query.waiting.discard(tp)
                query.results[tp] = committed_offset(found)
                if by_id:
                    query.topic_ids[tp] = topic_id
        if query.waiting:
            left_out = errors.UnknownServer("the answer leaves partitions out", broker=self._link.broker_id, api=api)
            self._ask_again(query, query.last_error or left_out)

    def _ask_again(self, query: CommittedQuery, cause: errors.KafkaError) -> None:
        query.last_error = cause
        if isinstance(cause, (errors.UnsupportedVersion, errors.UsageError)):
            query.error = cause
            return
        query.failed = True
        query.tries += 1
