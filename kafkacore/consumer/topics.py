"""What metadata say about the topics that a consumer reads: refusals, partitions added, topics created again, matches of a pattern.

Rules:
1. A snapshot is looked at once (`follow`), and of it the topics alone that differ from the snapshot before.
   [test_a_metadata_answer_costs_the_topics_that_it_changes]
2. A refusal of the cluster is raised once (`raise_owed`), and the topic is asked for again.
   [test_a_refusal_of_the_cluster_is_raised_once_and_asked_for_again]
3. In a group the group says what its members read: here only topics are subscribed to, and positions of deleted topics started over.
   [test_in_a_group_metadata_assign_nothing, test_a_deleted_topic_holds_nothing_up_and_is_read_from_its_start]

Source: Kafka's ConsumerCoordinator (maybeUpdateSubscriptionMetadata) and SubscriptionState.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from kafkacore import errors
from kafkacore.config import ConsumerConfig
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.group.member import GroupMember
from kafkacore.consumer.group.modern import ConsumerMembership
from kafkacore.consumer.sessions import ZERO_TOPIC_ID
from kafkacore.consumer.subscription import EARLIEST, Mode, SubscriptionState
from kafkacore.metadata import ClusterSnapshot, TopicInfo
from kafkacore.net.asking import MetadataQuery
from kafkacore.net.client import NetworkClient
from kafkacore.net.driver import CallerDriver
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.consumer")

DELETED_MS = 5_000
"""A topic that all answers of this time do not know is deleted: one broker's answer may only be late."""


class TopicWatch:
    """Brings a consumer's subscription up to date with the cluster's metadata.

    Args:
        subscription: what is read.
        driver: of the network; its metadata are followed.
        fetcher: hears when what is to be fetched may have changed.
        config: the consumer's settings.

    Attributes:
        group: this consumer's part in its group, None without one.
        owed: refusals of topics that no call has raised yet.
        matched: the pattern was compared with the topics of the cluster.
    """

    def __init__(self, subscription: SubscriptionState, driver: CallerDriver, fetcher: Fetcher, config: ConsumerConfig) -> None:
        self._subscription = subscription
        self._metadata = driver.metadata
        self._client = driver.client
        self._fetcher = fetcher
        self._clock = driver.clock
        self._exclude_internal = config.exclude_internal_topics
        self._backoff = {"retry_backoff_ms": config.retry_backoff_ms, "retry_backoff_max_ms": config.retry_backoff_max_ms}
        self._missing: dict[str, int] = {}  # since when
        self.on_missing: Callable[[str], None] = lambda name: None  # called with a topic that does not exist, once until it does
        self._warned: set[str] = set()
        self._deleted: dict[str, int] = {}  # likewise, while stretches are read
        self.matched = False
        self._names: MetadataQuery | None = None
        self._asked_ids: frozenset[bytes] = frozenset()
        self.group: GroupMember | None = None
        self.owed: dict[str, errors.KafkaError] = {}
        self._refused: dict[str, errors.KafkaError] = {}
        self._seen: ClusterSnapshot | None = None
        self._stale: object = None  # from before a pattern was subscribed to: of some topics only

    # -- what is wanted -----------------------------------------------------------------------------------------------------------

    def want(self, topics: Collection[str], *, create: bool = True) -> None:
        """These are the topics to be asked for. Without `create` no setting lets brokers create them."""
        self._metadata.set_topics(topics, self._clock.now_ms(), topics if create else ())
        self._refused = self._refusals(topics)  # answers to earlier calls, which raised them
        self.owed.clear()
        for name in [name for name in self._missing if name not in topics]:
            del self._missing[name]
            self._warned.discard(name)
        self._deleted.clear()
        if self._refused:
            self._metadata.request_update()

    def subscribe(self, names: Iterable[str]) -> None:
        """Reads these topics."""
        self._subscription.subscribe_topics(names)
        self.want(self._subscription.topics)
        if self.group is not None:
            self.group.membership.subscribe(self._subscription.topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Reads the topics whose whole names match; they show with the next metadata, which are about all topics."""
        self._subscription.subscribe_pattern(pattern)
        self._metadata.all_topics = True
        self._metadata.request_update()
        self.matched = False
        self._stale = self._metadata.snapshot

    def subscribe_broker_pattern(self, pattern: str) -> None:
        """Reads what the coordinator matches with a pattern (KIP-848).

        Raises:
            errors.UsageError: there is no such coordinator, or no pattern.
        """
        membership = None if self.group is None else self.group.membership
        if not isinstance(membership, ConsumerMembership):
            raise errors.UsageError("a SubscriptionPattern is matched by the broker: it needs group_id and group_protocol=consumer")
        if not isinstance(pattern, str) or not pattern:
            raise errors.UsageError(f"not a regular expression: {pattern!r}")
        self._subscription.subscribe_broker_pattern()
        membership.subscribe_pattern(pattern)

    def unsubscribe(self) -> None:
        """Reads nothing."""
        self._subscription.unsubscribe()
        self._metadata.all_topics = False
        self._names, self._asked_ids = None, frozenset()

    # -- for the group's engine ---------------------------------------------------------------------------------------------------

    def want_of_group(self, topics: frozenset[str]) -> None:
        """As the leader of a group this consumer needs to know the topics of all members."""
        mine = self._subscription.topics
        self._metadata.set_topics(topics | mine, self._clock.now_ms(), mine)

    def ask_names_of_ids(self, topic_ids: frozenset[bytes]) -> None:
        """The coordinator assigned topics by ids that have no name yet.

        Topics subscribed to by name are in the next metadata. Under the broker's pattern the names are not known: they are asked for by id.
        """
        if self._subscription.mode is not Mode.BROKER_PATTERN:
            self._metadata.request_update()
        elif self._asked_ids != topic_ids:
            self._asked_ids = topic_ids
            self._names = MetadataQuery(self._client, sorted(topic_ids), **self._backoff)

    def assigned_by_group(self) -> None:
        """The assignment has changed. Under the broker's pattern the topics are known by it only."""
        subscription = self._subscription
        if subscription.mode is Mode.BROKER_PATTERN:
            subscription.topics = frozenset(tp.topic for tp in subscription.partitions)
            self.want(subscription.topics)
        self._fetcher.retain()

    def step(self, now_ms: int) -> None:
        """Goes on asking for names, if there is something to ask for."""
        names = self._names
        if names is None:
            return
        names.step(now_ms)
        if not names.done:
            return
        self._names, self._asked_ids = None, frozenset()
        if names.error is not None:
            raise names.error
        if names.response is not None:
            for topic in names.response.topics or ():
                if topic.name and not topic.error_code:  # else it is deleted, or this broker does not know it yet: the engine asks again
                    self._metadata.add_topic(topic.name, now_ms)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until `step` has something to do although no answer comes."""
        return None if self._names is None else self._names.next_wake_ms(now_ms)

    def start_anew(self, client: NetworkClient) -> None:
        """Goes on with another network: what was asked is asked again, and all topics are looked at."""
        self._client = client
        self._names, self._asked_ids = None, frozenset()
        self.look_again()

    # -- following ----------------------------------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """There are metadata that `follow` has not looked at."""
        return self._metadata.snapshot is not self._seen

    @property
    def settled(self) -> bool:
        """`follow` has looked at the metadata, and `step` waits for no names."""
        return self._metadata.snapshot is self._seen and self._names is None

    def look_again(self) -> None:
        """The next `follow` looks at all topics."""
        self._seen = None

    def raise_owed(self) -> None:
        """Raises what the last metadata answer refused, once."""
        if self.owed:
            owed = list(self.owed.values())
            self.owed.clear()
            raise errors.joined(owed)

    def follow(self) -> None:
        """New metadata: topics it refuses are owed to the caller, once, and asked for again; a subscription follows the partitions."""
        snapshot = self._metadata.snapshot
        before, self._seen = self._seen, snapshot
        self._fetcher.wants_fetch = True
        subscription = self._subscription
        if subscription.mode is Mode.PATTERN:
            self._match(snapshot)
        topics = subscription.topics or subscription.by_topic.keys()
        now, known_before = snapshot.topics, {} if before is None else before.topics
        changed = [name for name in topics if (info := now.get(name)) is not None and info is not known_before.get(name)]
        refused = self._refusals([*changed, *(name for name in self._refused if name in topics)])
        if refused:
            self.owed.update((name, e) for name, e in refused.items() if self._refused.get(name) is not e)
            self._metadata.request_update()
        self._refused = refused
        self._look_for_missing(changed, now)
        if subscription.reads_stretches:
            self._look_for_deleted(changed, now)
        follows = subscription.mode in (Mode.TOPICS, Mode.PATTERN) and self.group is None  # a group says what its members read
        if follows and (before is None or subscription.mode is Mode.PATTERN):  # else the topics are those of the snapshot before
            for name in [name for name in subscription.by_topic if name not in topics]:
                subscription.remove([state.tp for state in subscription.by_topic[name].values()])
        for name in sorted(changed):
            info, known = now[name], known_before.get(name)
            if info.error is None and (known is None or known.error is not None or known.topic_id != info.topic_id):
                self._start_topic_over(info, follows)
            if follows and (known is None or known.partitions != info.partitions):
                have = subscription.by_topic.get(name, {})
                added = [TopicPartition(name, p.index) for p in info.partitions if p.index not in have]
                if added:  # all of a partition added later was written after the subscription
                    subscription.add(added, EARLIEST if have else None)
        self._fetcher.retain()

    def _refusals(self, topics: Iterable[str]) -> dict[str, errors.KafkaError]:
        """The topics that the cluster refuses to describe, and why; a topic that may only not be known yet is none of them."""
        known = self._metadata.snapshot.topics
        return {
            name: info.error
            for name in topics
            if (info := known.get(name)) is not None and info.error is not None and not info.error.retriable
        }

    def _look_for_missing(self, changed: Iterable[str], now: Mapping[str, TopicInfo]) -> None:
        """Names the topics that do not exist, once each; the first answer may only be older than the topic, or may have created it."""
        missing = self._missing
        for name in changed:
            info = now[name]
            if not isinstance(info.error, errors.UnknownTopicOrPartition) or info.partitions:
                if missing.pop(name, None) is not None:
                    self._warned.discard(name)
            elif name not in missing:
                missing[name] = self._clock.now_ms()
            elif name not in self._warned:
                self._warned.add(name)
                log.warning("topic %s does not exist: nothing is read of it until it is created", name)
                self.on_missing(name)

    def _look_for_deleted(self, changed: Iterable[str], now: Mapping[str, TopicInfo]) -> None:
        """A read of stretches does not wait for a topic of that name: it owes an error once the cluster has not known it for long."""
        now_ms = self._clock.now_ms()
        for name in changed:
            if not isinstance(now[name].error, errors.UnknownTopicOrPartition):
                self._deleted.pop(name, None)
            elif now_ms - self._deleted.setdefault(name, now_ms) >= DELETED_MS:
                self.owed[name] = errors.UnknownTopicOrPartition("the topic does not exist any more", topic=name)

    def problems(self, now_ms: int) -> list[str]:
        """What is wrong with the subscription, one sentence each."""
        subscription = self._subscription
        found = [
            f"topic {name} does not exist: it was not found {(now_ms - since_ms) // 1000} s ago, and not since"
            for name, since_ms in self._missing.items()
            if name in subscription.topics or name in subscription.by_topic
        ]
        known = self._metadata.snapshot.topics
        for name in sorted(subscription.topics - subscription.by_topic.keys() - self._missing.keys()):  # of others their partitions say so
            if (info := known.get(name)) is not None and info.error is not None:
                found.append(f"topic {name}: {info.error}")
        pattern = subscription.pattern
        if pattern is not None and self.matched and not subscription.topics:
            found.append(f"the pattern {pattern.pattern!r} matches none of the cluster's topics ({len(self._metadata.snapshot.topics):,})")
        return found

    def _start_topic_over(self, info: TopicInfo, follows: bool) -> None:
        """Where a topic was deleted and created again, nothing known of its partitions counts."""
        subscription = self._subscription
        indexes = {partition.index for partition in info.partitions} if follows else None
        for state in list(subscription.by_topic.get(info.name, {}).values()):
            if state.topic_id and info.topic_id not in (ZERO_TOPIC_ID, state.topic_id):
                tp = state.tp
                log.warning("%s-%d: the topic was deleted and created again, offset %d no longer counts", *tp, state.offset)
                if indexes is None or tp.partition in indexes:
                    subscription.start_over(tp)
                    if self.group is not None:
                        self.group.start_over(tp, state.topic_id)
                else:  # it has fewer partitions now; metadata that briefly leave one out take nothing away
                    subscription.remove([tp])

    def _match(self, snapshot: ClusterSnapshot) -> None:
        """The topics that the pattern matches by now."""
        subscription = self._subscription
        pattern = subscription.pattern
        if pattern is None or snapshot.is_bootstrap or snapshot is self._stale:
            return
        internal = self._exclude_internal
        self.matched = True
        subscription.topics = frozenset(
            name for name, info in snapshot.topics.items() if pattern.fullmatch(name) and not (internal and info.is_internal)
        )
        if self.group is not None:
            self.group.membership.subscribe(subscription.topics)
