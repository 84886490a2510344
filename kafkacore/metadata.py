"""What a client knows about the cluster, and when it asks again.

Rules:

1. `ClusterSnapshot` is immutable. The I/O thread replaces `Metadata.snapshot` as a whole; readers take the reference and need no lock.
   [test_a_snapshot_stays_as_it_was_while_later_ones_share_its_topics]
2. A leader epoch does not go back: an answer from a broker that lags behind does not undo what is known (KIP-320). A topic with a new
   topic id is a new topic, and its epochs start over. Once all brokers have named older epochs for long, theirs count: what is known was
   a wrong answer, or is of a cluster that was restored from a backup. Kafka's clients would have to be restarted.
   [test_leader_epochs_never_go_back, test_a_topic_with_a_new_id_starts_over, test_an_epoch_that_no_broker_knows_any_more_is_given_up]
3. When the next refresh is due is a stored time (`next_update_ms`), so a poll compares two numbers. Whatever changes the need
   recomputes it. [test_age, test_failures_back_off, test_an_update_requested_while_an_answer_is_under_way_is_not_lost]
4. An answer costs as much as it changes. The partitions of a topic stay the bytes that came in until a caller looks at them, and a topic
   whose bytes are those of the answer before stays the same `TopicInfo`: compare topics of two snapshots with `is`, or ask `changed_since`.
   A topic that is new, or that an answer did not describe to the end, is asked for alone; the snapshots share the others.
   [test_an_answer_that_changes_nothing_runs_few_lines_per_topic, test_what_changed_since_a_version,
   test_a_new_topic_is_asked_for_alone_and_at_once, test_a_topic_that_was_not_described_is_asked_for_again_without_the_others]
5. User threads wait for a version to pass (`await_update`); the I/O thread notifies them through one condition.
   [test_waiters_wake_with_the_update]

Source: Kafka's Metadata, MetadataCache, ProducerMetadata; KIP-320, KIP-526, KIP-580, KIP-899, KIP-951.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from kafkacore import errors
from kafkacore.clock import Clock
from kafkacore.cluster_snapshot import ClusterSnapshot, PartitionInfo, TopicInfo, changed_topics, same_leaders, take_topic, with_leaders
from kafkacore.errors import AuthenticationFailedError, ClosedError, KafkaError, UsageError
from kafkacore.types import Node, TopicPartition

__all__ = ["NEVER_MS", "ClusterSnapshot", "LeaderHint", "Metadata", "MetadataConfig", "PartitionInfo", "TopicInfo", "checked_topic"]

NEVER_MS = 2**62
"""A deadline that is never reached."""

_BEHIND_ANSWERS, _BEHIND_MS = 10, 30_000  # so many answers in a row, and for so long: no broker lags behind like that
_REBOOTSTRAP_REQUIRED = 129
_NAME_BYTES = (1 << 15) - 1


def checked_topic(name: str) -> str:
    """A topic's name that fits in a request. Whether it is legal is for brokers to say.

    Raises:
        UsageError: it is no text, has no UTF-8, or is longer than Kafka's strings.
    """
    if not isinstance(name, str):
        raise UsageError(f"a topic's name is text, not {name!r:.100}")
    if not name.isascii() or len(name) > _NAME_BYTES:
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise UsageError(f"a topic's name has a lone surrogate and so no UTF-8: {name!r:.100}") from None
        if size > _NAME_BYTES:
            raise UsageError(f"a topic's name has at most {_NAME_BYTES} bytes, not {size}: {name[:100]!r}...")
    return name


class LeaderHint(NamedTuple):
    """A leader named in the answer of another request (KIP-951)."""

    leader: int
    leader_epoch: int


class MetadataConfig(Protocol):
    """The settings read here (any ClientConfig has them)."""

    @property
    def metadata_max_age_ms(self) -> int: ...
    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def retry_backoff_max_ms(self) -> int: ...


class Metadata:
    """The cluster as the client knows it, shared by user threads (topics they need) and the I/O thread (answers).

    Args:
        config: Refresh age and back-off.
        clock: Time.
        topic_idle_ms: A topic not asked for during this time is dropped (metadata.max.idle.ms); None keeps topics without limit.
        all_topics: Ask for every topic of the cluster rather than for those added.
        allow_auto_topic_creation: Lets brokers create topics that were added with `create`; others never are, whatever it says.
            With False no broker is asked that would create a topic for being asked about it (before Kafka 0.11); None takes such brokers.
        rng: Jitter of the back-off.

    Attributes:
        snapshot: The newest ClusterSnapshot.
        version: Counts updates.
        next_update_ms: When the next refresh is due (NEVER_MS before `bootstrap`).
        fatal_error: An error that the last refresh ended with and that waiting does not end, e.g. failed authentication.
        fatal_count: Counts these errors, so that a caller can tell one of its own time from an earlier one.
        started: Counts requests.
        answered: The number of the request that gave the snapshot, so that a caller can tell an answer to an earlier question.
        unraised: The last of these errors as long as no call has raised it: `CallerDriver` raises each once.
        last_error: Why the last refresh failed, None after one that worked.
        attempts: Errors of the failed refreshes since the last one that worked, oldest first, bounded.
        may_create: Whether the request that `begin_request` prepared last may create the topics it names.
        asks_controllers: The nodes are controllers, which DescribeCluster is asked of; see `net/controllers.py`.
    """

    asks_controllers = False

    def __init__(
        self,
        config: MetadataConfig,
        clock: Clock,
        *,
        topic_idle_ms: int | None = None,
        all_topics: bool = False,
        allow_auto_topic_creation: bool | None = True,
        rng: random.Random | None = None,
    ) -> None:
        self.snapshot = ClusterSnapshot(is_bootstrap=True)
        self.version = 0
        self.next_update_ms = NEVER_MS
        self.fatal_error: KafkaError | None = None
        self.fatal_count = 0
        self.started = self.answered = 0
        self.unraised: KafkaError | None = None
        self.last_error: KafkaError | None = None
        self.attempts: list[KafkaError] = []
        self.all_topics = all_topics
        self.allow_auto_topic_creation = bool(allow_auto_topic_creation)
        self.forbids_topic_creation = allow_auto_topic_creation is False
        self._clock = clock
        self._max_age_ms = config.metadata_max_age_ms
        self._backoff_ms = config.retry_backoff_ms
        self._backoff_max_ms = config.retry_backoff_max_ms
        self._topic_idle_ms = topic_idle_ms
        self._rng = rng or random.Random()
        self._lock = threading.Lock()  # entered as such: Ctrl+C within Condition.__enter__ would leave it locked
        self._changed = threading.Condition(self._lock)
        self._watchers: list[Callable[[], object]] = []
        self._bootstrap: tuple[Node, ...] = ()
        self._topics: dict[str, int] = {}  # name -> last use
        self._creatable: set[str] = set()  # those of them that brokers may create
        self.may_create = False
        self._new_topics: set[str] = set()  # asked for, not yet answered
        self._left_out = False  # the last request was about all topics but new ones that it could not create
        self._incomplete: set[str] = set()  # the last answer about them was no description, so they are asked for again
        self._incomplete_due_ms = NEVER_MS
        self._behind: dict[str, tuple[int, int]] = {}  # topic -> answers in a row that were older than what is known, and since when
        self._changed_in: dict[str, int] = {}  # topic -> the version that changed it last, oldest first
        self._wanted = False  # an update was asked for
        self._wanted_again = False  # since the last request was begun
        self._sent_topics: frozenset[str] = frozenset()
        self._sent_partial = False
        self._last_refresh_ms = -NEVER_MS
        self._last_success_ms = -NEVER_MS
        self._failures = 0
        self._same_answers = 0
        self._closed = False

    # ---- the cluster's entry points

    def bootstrap(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Sets the addresses of `bootstrap.servers`; they get the node ids -1, -2, ... until real ids are known.

        Args:
            addresses: (host, port) pairs.
        """
        self._bootstrap = tuple(Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses))
        with self._lock:
            self.snapshot = ClusterSnapshot({node.id: node for node in self._bootstrap}, is_bootstrap=True)
            self._wanted = True
            self.version += 1
            self._last_refresh_ms = self._last_success_ms = -NEVER_MS
            self._plan()

    def rebootstrap(self, now_ms: int) -> None:
        """Forgets the known brokers and starts from the configured addresses again; topics and their epochs stay known (KIP-899)."""
        old = self.snapshot
        with self._lock:
            self.snapshot = ClusterSnapshot(
                {node.id: node for node in self._bootstrap}, cluster_id=old.cluster_id, topics=old.topics, is_bootstrap=True
            )
            self._wanted = True
            self._last_refresh_ms = now_ms
            self._plan()

    # ---- what is needed

    def add_topic(self, name: str, now_ms: int, *, create: bool = False) -> bool:
        """Says that a topic is needed; an unknown one is asked for at once.

        Args:
            name: The topic.
            now_ms: The time.
            create: The topic is written to or subscribed to, so brokers may create it where the settings allow that. A caller
                that only asks about a topic leaves it False.

        Returns:
            True when the topic was not known to be needed, i.e. the I/O thread has something to do.

        Raises:
            UsageError: the name fits in no request: one such name would keep all later questions from being sent.
        """
        topics = self._topics
        create = create and self.allow_auto_topic_creation
        if name in topics and (not create or name in self._creatable):
            topics[name] = now_ms
            return False
        with self._lock:
            self._need((name,), now_ms, (name,) if create else ())
            return True

    def add_topics(self, names: Iterable[str], now_ms: int) -> None:
        """Says of many topics that they are written to, as `add_topic` with `create` of one."""
        topics = self._topics
        used = dict.fromkeys(names, now_ms)
        if all(map((self._creatable if self.allow_auto_topic_creation else topics).__contains__, used)):
            topics.update(used)
            return
        with self._lock:
            self._need(used, now_ms, used if self.allow_auto_topic_creation else ())

    def set_topics(self, names: Iterable[str], now_ms: int, create: Collection[str] = ()) -> None:
        """Makes `names` the topics needed; those in `create` as `add_topic` with `create`."""
        wanted = set(names)
        for name in wanted:
            if name not in self._topics:
                checked_topic(name)
        with self._lock:
            for gone in [name for name in self._topics if name not in wanted]:
                self._drop_topic(gone)
            creatable = wanted.intersection(create) if self.allow_auto_topic_creation else set()
            self._creatable &= creatable
            self._need(wanted, now_ms, creatable)

    def _need(self, names: Iterable[str], now_ms: int, creatable: Iterable[str]) -> None:
        """Takes in topics that are needed, and asks for those without an answer that counts; the lock is held."""
        known = self.snapshot.topics
        for name in names:
            if name not in self._topics:
                checked_topic(name)
        for name in names:
            if name not in self._topics and name not in known:
                self._new_topics.add(name)
            self._topics[name] = now_ms
        for name in creatable:
            if name not in self._creatable:
                self._creatable.add(name)
                info = known.get(name)
                if info is None or info.error is not None:  # the answer was to a request that could not create it
                    self._new_topics.add(name)
        self._plan()

    @property
    def topics(self) -> list[str]:
        """Names of the topics needed."""
        return list(self._topics)

    def request_update(self, *, reset_equivalent: bool = False) -> int:
        """Asks for a refresh as soon as the back-off allows.

        Args:
            reset_equivalent: The asker saw news (an error), so answers that change nothing do not slow the next refresh.

        Returns:
            The version of now; `await_update(version)` waits for a newer one.
        """
        with self._lock:
            self._wanted = self._wanted_again = True
            if reset_equivalent:
                self._same_answers = 0
            self._plan()
            return self.version

    def request_topic(self, name: str) -> None:
        """Asks for one topic, needed since `add_topic`: at once while there is no answer about it, else as soon as the back-off allows.

        Source: ProducerMetadata.requestUpdateForTopic (KAFKA-8904).
        """
        with self._lock:
            if self.all_topics:
                self._wanted = self._wanted_again = True
            elif name not in self._new_topics and name not in self._incomplete:
                if not self._incomplete:
                    self._incomplete_due_ms = self._last_refresh_ms + self._backoff(self._same_answers)
                self._incomplete.add(name)
            self._plan()

    def changed_since(self, version: int) -> tuple[int, list[str]]:
        """The topics that became another TopicInfo in a version above `version`, in time that depends on their number alone.

        Returns:
            The version of now, for the next call, and the names. Topics that are dropped are left out.
        """
        with self._lock:
            names = []
            for name, changed_in in reversed(self._changed_in.items()):
                if changed_in <= version:
                    break
                names.append(name)
            return self.version, names

    def time_to_next_update(self, now_ms: int) -> int:
        """Returns milliseconds until a refresh is due, 0 when it is."""
        left = self.next_update_ms - now_ms
        return left if left > 0 else 0

    def _plan(self) -> None:
        """Recomputes `next_update_ms`; the lock is held."""
        if not self._bootstrap:
            self.next_update_ms = NEVER_MS
            return
        if self._new_topics and not self._failures:
            # A caller waits for a new topic: no back-off, unless the last refresh failed.
            self.next_update_ms = -NEVER_MS
            return
        expires_ms = self._last_success_ms + self._max_age_ms
        due_ms = -NEVER_MS if self._wanted or self._new_topics else expires_ms
        allowed_ms = self._last_refresh_ms + self._backoff(self._failures)
        if self._same_answers:
            allowed_ms = max(allowed_ms, self._last_refresh_ms + self._backoff(self._same_answers))
        self.next_update_ms = max(due_ms, allowed_ms)
        if self._incomplete and not self._failures:
            self.next_update_ms = min(self.next_update_ms, self._incomplete_due_ms)

    def _drop_topic(self, name: str) -> None:
        del self._topics[name]
        self._creatable.discard(name)
        self._new_topics.discard(name)
        self._incomplete.discard(name)
        self._behind.pop(name, None)

    def _backoff(self, tries: int) -> int:
        """The pause after so many tries in a row that brought nothing; the shortest after none."""
        term = self._backoff_ms * 2.0 ** min(max(tries - 1, 0), 30) * self._rng.uniform(0.8, 1.2)
        return int(min(term, self._backoff_max_ms))

    # ---- asking and answers (I/O thread)

    def begin_request(self, now_ms: int) -> list[str] | None:
        """Takes what the next request asks for: topic names, or None for all topics.

        Only new topics, and those that the last answer did not describe, are asked for when nothing else is due (a partial refresh).

        A request may create all topics that it names or none of them. So new topics that may be created have a request of their own
        where others are needed too.
        """
        with self._lock:
            created_last, self.may_create = self.may_create, False
            left_out, self._left_out = self._left_out, False
            self._wanted_again = False
            self.started += 1
            self._sent_partial = False
            if self.all_topics:
                self._sent_topics = frozenset(self._new_topics)
                return None
            if left_out and (owed := self._new_topics & self._creatable):  # also while updates are wanted all the time
                self._sent_partial = self.may_create = True
                self._sent_topics = frozenset(owed)
                return sorted(owed)
            expired = now_ms >= self._last_success_ms + self._max_age_ms
            again = self._incomplete if now_ms >= self._incomplete_due_ms else set()
            if (self._new_topics or again) and not self._wanted and not expired:
                self._sent_partial = True
                due = self._new_topics | again
                creatable = due & self._creatable
                if creatable and creatable != due:  # in turns: the others are due again at once, or after the pause
                    due = due - creatable if created_last else creatable
                self._sent_topics = frozenset(due)
                self.may_create = bool(creatable) and due <= creatable
                return sorted(due)
            if self._topic_idle_ms is not None:
                for name in [name for name, used in self._topics.items() if now_ms - used >= self._topic_idle_ms]:
                    self._drop_topic(name)
            names = list(self._topics)
            self.may_create = bool(names) and len(self._creatable) == len(names)
            if self._creatable and not self.may_create:
                names = [name for name in names if name not in self._creatable or name not in self._new_topics]
                self._left_out = len(names) < len(self._topics)
            self._sent_topics = frozenset(names)
            return names

    def update(self, response: Any, now_ms: int) -> None:
        """Takes in a MetadataResponse.

        Args:
            response: Decoded response of any version, by `decode` or by `_codec.decode_metadata`, which leaves partitions undecoded.
            now_ms: Time of arrival.
        """
        top = getattr(response, "error_code", 0)
        if top == _REBOOTSTRAP_REQUIRED:
            self.rebootstrap(now_ms)
            return
        if top:
            self.failed(errors.from_code(top, api="Metadata"), now_ms)
            return
        nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers}
        if not nodes:
            # A broker that has no view of the cluster yet must not empty ours.
            self.failed(errors.NetworkError("the broker's metadata names no brokers", api="Metadata"), now_ms)
            return
        old = self.snapshot
        partial = self._sent_partial
        topics: dict[str, TopicInfo] = {}  # those of the answer
        incomplete = set()
        refused = False
        for data in response.topics or ():
            name = data.name
            if name is None:
                continue  # asked by id, and the id is unknown: nothing to file it under
            info, again, behind = take_topic(name, data, old.topics.get(name))
            if behind or name in self._behind:
                info, again = self._take_behind(name, data, info, again, behind, now_ms)
            if again:
                incomplete.add(name)
            refused = refused or info.error is not None
            topics[name] = info
        # A topic that was asked for and left out of the answer is asked for again, but no faster than the back-off allows.
        incomplete.update(self._sent_topics - topics.keys())
        if nodes == old.nodes:
            nodes = dict(old.nodes)  # the same objects
        snapshot = ClusterSnapshot(
            nodes,
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
            topics=changed_topics(old.topics, topics) if partial else topics,
        )
        with self._lock:
            if not partial or not self._sent_topics.isdisjoint(self._incomplete):
                before = {name: old.topics[name] for name in topics if name in old.topics} if partial else old.topics
                same = bool(incomplete or refused) and snapshot.nodes == old.nodes and same_leaders(topics, before)
                self._same_answers = self._same_answers + 1 if same else 0
            if not partial:
                self._wanted = self._wanted_again
                self._last_success_ms = now_ms
            self.snapshot = snapshot
            self._new_topics -= self._sent_topics
            self._new_topics -= topics.keys()
            self._last_refresh_ms = now_ms
            self._failures = 0
            self.attempts.clear()
            self.last_error = None
            self.fatal_error = None
            self.version += 1
            self.answered = self.started
            self._note_changes(old.topics, topics)
            self._note_incomplete(incomplete, partial, topics, now_ms)
            self._plan()
            self._announce()

    def _take_behind(self, name: str, data: Any, info: TopicInfo, again: bool, behind: bool, now_ms: int) -> tuple[TopicInfo, bool]:
        """A topic of which an answer named older leader epochs than are known, or the one before did."""
        if not behind:
            del self._behind[name]
            return info, again
        count, since_ms = self._behind.get(name, (0, now_ms))
        if count + 1 < _BEHIND_ANSWERS or now_ms - since_ms < _BEHIND_MS:
            self._behind[name] = count + 1, since_ms
            return info, again
        self._behind.pop(name, None)
        return take_topic(name, data, None)[:2]

    def _note_changes(self, old: Mapping[str, TopicInfo], topics: Mapping[str, TopicInfo]) -> None:
        """Files the topics that are another TopicInfo under the newest version, behind all others; the lock is held."""
        changed_in = self._changed_in
        for name, info in topics.items():
            if info is not old.get(name):
                changed_in.pop(name, None)
                changed_in[name] = self.version
        if len(changed_in) != len(self.snapshot.topics):
            known = self.snapshot.topics
            self._changed_in = {name: changed for name, changed in changed_in.items() if name in known}

    def _note_incomplete(self, incomplete: set[str], partial: bool, answered: Mapping[str, TopicInfo], now_ms: int) -> None:
        """Plans when topics that an answer did not describe are asked for again; the lock is held."""
        if self.all_topics:
            self._wanted = self._wanted or bool(incomplete)  # there is no other request than for all
            return
        waiting = bool(self._incomplete) and self._sent_topics.isdisjoint(self._incomplete)
        if not partial:
            self._incomplete = set()
        self._incomplete -= self._sent_topics
        self._incomplete -= answered.keys()
        self._incomplete |= incomplete & self._topics.keys()
        if not incomplete <= self._incomplete:
            self._wanted = True  # described though no caller needs them by name
        if not (partial and waiting):  # else what waits already keeps its time, however many new topics come in that time
            self._incomplete_due_ms = now_ms + self._backoff(self._same_answers)

    def failed(self, error: KafkaError, now_ms: int) -> None:
        """A refresh failed; the next one waits for the back-off, which grows with every failure in a row."""
        with self._lock:
            self._last_refresh_ms = now_ms
            self._failures += 1
            self._same_answers = 0
            self._wanted = True
            self._record(error)
            self._plan()
            self._announce()

    def note_attempt(self, error: KafkaError) -> None:
        """Records why a broker could not be asked (connection refused, unknown host); waiting callers can name it."""
        with self._lock:
            self._record(error)
            self._announce()

    def _record(self, error: KafkaError) -> None:
        self.last_error = error
        self.attempts.append(error)
        if len(self.attempts) > 16:
            del self.attempts[0]
        if error.fatal or isinstance(error, AuthenticationFailedError):
            self.fatal_error = self.unraised = error
            self.fatal_count += 1

    def update_leaders(
        self, hints: Mapping[TopicPartition, LeaderHint | tuple[int, int]], nodes: Iterable[Node] = ()
    ) -> set[TopicPartition]:
        """Takes in leaders named by Produce or Fetch answers (KIP-951).

        Args:
            hints: {partition: (leader id, leader epoch)}.
            nodes: End points named beside them.

        Returns:
            Partitions whose leader is newer now. A hint for an unknown partition, with an epoch not above the known one, or naming a
            node that no answer described, is left out.
        """
        with self._lock:
            old = self.snapshot
            known = dict(old.nodes)
            known.update((node.id, node) for node in nodes)
            updated: set[TopicPartition] = set()
            changed: dict[str, dict[int, PartitionInfo]] = {}  # a topic's partitions are copied once, however many hints it has
            for tp, (leader, epoch) in hints.items():
                name, index = tp
                info = old.topics.get(name)
                found = None if info is None else info.partition(index)
                if found is None or leader not in known or epoch <= found.leader_epoch:
                    continue
                parts = changed.get(name)
                if parts is None:
                    parts = changed[name] = {}
                parts[index] = PartitionInfo(index, leader, epoch, found.replicas, found.isr, found.offline)
                updated.add(tp)
            if updated:
                replaced = {name: with_leaders(old.topics[name], parts) for name, parts in changed.items()}
                self.snapshot = ClusterSnapshot(
                    known,
                    controller_id=-1 if old.controller is None else old.controller.id,
                    cluster_id=old.cluster_id,
                    topics=changed_topics(old.topics, replaced),
                    is_bootstrap=old.is_bootstrap,
                )
                self.version += 1
                self._note_changes(old.topics, replaced)
                self._announce()
            return updated

    # ---- user threads

    def await_update(self, last_version: int, timeout_ms: int, fatal_count: int | None = None) -> bool:
        """Waits until the version is above `last_version`.

        Args:
            last_version: What `request_update` or `version` gave.
            timeout_ms: Longest wait.
            fatal_count: What `fatal_count` was when the caller began; now if left out. Errors up to that one belong to earlier attempts.

        Returns:
            True when a newer version is there, False when the time has passed.

        Raises:
            KafkaError: `fatal_error`, when a refresh ends with one during the wait.
            ClosedError: The client was closed.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        with self._lock:
            if fatal_count is None:
                fatal_count = self.fatal_count
            while self.version <= last_version:
                if self.fatal_count != fatal_count and self.fatal_error is not None:
                    raise self.fatal_error
                if self._closed:
                    raise ClosedError("the client is closed; there will be no metadata")
                left_ms = deadline_ms - self._clock.now_ms()
                if left_ms <= 0 or not self._changed.wait(left_ms / 1000):
                    return self.version > last_version
            return True

    def watch(self, fn: Callable[[], object]) -> None:
        """Has `fn` called once, by any thread, when an `await_update` would look again: it must not wait, nor call this object.

        A caller that may not wait asks `await_update` with no time left after this, and again when `fn` was called.
        """
        with self._lock:
            self._watchers.append(fn)

    def unwatch(self, fn: Callable[[], object]) -> None:
        """Ends `watch`, if `fn` was not called yet."""
        with self._lock, contextlib.suppress(ValueError):
            self._watchers.remove(fn)

    def _announce(self) -> None:
        """Wakes the threads that wait for something new; the lock is held."""
        self._changed.notify_all()
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for fn in watchers:
                fn()

    def close(self) -> None:
        """Wakes every waiter with ClosedError."""
        with self._lock:
            self._closed = True
            self._announce()

