"""Which topics a query reads, by what brokers say of them.

Brokers apply metadata one by one: for some 100 ms after a topic is created, gets partitions, is deleted or changes its ACLs their answers
differ. So one answer adds topics and partitions, but never takes any away: before a topic counts as deleted, created again or forbidden,
two brokers have to agree for about a second, and the topic's id has to be unknown to them. In a cluster of one broker its answers over that
time have to agree. Fewer partitions under the same id are an old answer, from any number of brokers.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkacore import errors
from kafkacore.cluster_snapshot import ZERO_ID

if TYPE_CHECKING:
    from kafkacore.admin import KafkaAdminClient
    from kafkacore.admin.topics import TopicDescription, TopicsSeen

log = logging.getLogger(__name__)

CONFIRM_PAUSES_S = (0.3, 0.3, 0.4)
"""Between the rounds of questions; the answers of the last two must agree."""
CONFIRM_BROKERS = 3
CONFIRM_TIMEOUT_S = 10.0


class Topic(NamedTuple):
    """A topic as it is known. The id is zero where only offsets are known of it, or brokers are too old for ids (before 2.8)."""

    topic_id: bytes
    partitions: int


DELETED = Topic(ZERO_ID, 0)

Opinion = Topic | type[errors.KafkaError]
"""What a broker says: a topic, DELETED, or the error it answers."""


class Topics:
    """The topics of a query.

    Attributes:
        renewed: topics that were deleted and created again since they were first looked at; for the reader to clear.
    """

    def __init__(self, admin: Callable[[], KafkaAdminClient]) -> None:
        """Prepares; asks nothing yet.

        Args:
            admin: gives the client to ask with.
        """
        self._admin = admin
        self._known: dict[str, Topic] = {}
        self._deleted: dict[str, bytes] = {}                      # confirmed; the last id by name
        self._refused: dict[str, type[errors.KafkaError]] = {}    # confirmed
        self._former: set[bytes] = set()                          # of topics that another one of their name has replaced
        self._before: dict[str, bytes] = {}                       # the last of them, by name
        self._in_offsets: set[str] = set()                        # topics whose ids came with the query's offsets
        self.renewed: set[str] = set()

    def known(self) -> list[str]:
        """The names of the topics that exist."""
        return list(self._known)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic that exists or that was deleted; zero when it is not known."""
        known = self._known.get(name)
        return self._deleted.get(name, ZERO_ID) if known is None else known.topic_id

    def former_id(self, name: str) -> bytes:
        """The id of the topic that the one of this name has replaced; zero when it is not known."""
        return self._before.get(name, ZERO_ID)

    def look(
        self, names: Sequence[str], in_offsets: Mapping[str, int], topic_ids: Mapping[str, bytes] | None = None
    ) -> tuple[dict[str, int], dict[str, errors.KafkaError]]:
        """How many partitions topics have.

        Args:
            names: the topics.
            in_offsets: how many partitions the query's offsets name, by topic.
            topic_ids: the ids that the query's offsets name. The first one of a topic counts for more than what one broker has said so far.

        Returns:
            The partition counts, and for the other names the error, which is confirmed.

        Raises:
            errors.KafkaError: the brokers cannot be asked.
        """
        for name, count in in_offsets.items():
            if name not in self._deleted:
                self._known.setdefault(name, Topic(ZERO_ID, count))
        for name, topic_id in (topic_ids or {}).items():
            if name in in_offsets and name not in self._in_offsets:
                self._in_offsets.add(name)
                if name in self._known and self._known[name].topic_id != topic_id:
                    self._known[name] = Topic(topic_id, in_offsets[name])
        described = self._admin().describe_topics(names)
        failed = described.errors
        doubtful = []
        for name in names:
            if name in failed:
                if name in self._deleted and isinstance(failed[name], errors.UnknownTopicOrPartition):
                    continue
                if type(failed[name]) is not self._refused.get(name):
                    doubtful.append(name)
            elif not self._accepted(name, described.succeeded[name], in_offsets):
                doubtful.append(name)
        failed = {name: error for name, error in failed.items() if name not in doubtful}
        if doubtful:
            failed.update(self._confirm(doubtful, in_offsets))
        return {name: self._known[name].partitions for name in names if name not in failed}, failed

    def _accepted(self, name: str, answer: TopicDescription, in_offsets: Mapping[str, int]) -> bool:
        """Takes an answer over, unless it would take something away."""
        known, here = self._known.get(name), Topic(answer.topic_id, len(answer.partitions))
        if here.topic_id in self._former:
            return known is not None                              # an old answer
        if known is None:
            before = self._deleted.pop(name, ZERO_ID)
            if ZERO_ID != before != here.topic_id:
                self._replaced(name, before)
        elif known.topic_id == ZERO_ID or here.topic_id == ZERO_ID:
            if here.partitions < known.partitions:
                return False
        elif known.topic_id != here.topic_id:
            return False
        else:
            here = Topic(here.topic_id, max(here.partitions, known.partitions))
            if here.partitions < in_offsets.get(name, 0):
                return False
        self._known[name] = here
        self._refused.pop(name, None)
        return True

    # ---- what would be a loss

    def _confirm(self, names: Sequence[str], in_offsets: Mapping[str, int]) -> dict[str, errors.KafkaError]:
        """Asks several brokers again and again about topics of which an answer would take something away.

        Returns:
            By name, why a topic is not there. Those that are, or of which brokers do not agree, are as they were known.
        """
        brokers = [node.id for node in self._admin().describe_cluster(timeout=CONFIRM_TIMEOUT_S).nodes]
        left, before, last = list(names), {}, self._opinions(names, in_offsets, brokers)
        for pause_s in CONFIRM_PAUSES_S:
            left = [name for name in left if name in last]
            if not left:
                break
            time.sleep(pause_s)
            before, last = last, self._opinions(left, in_offsets, brokers)
        failed: dict[str, errors.KafkaError] = {}
        for name in (each for each in left if each in last):
            opinions = {*before[name].values(), *last[name].values()}
            if len(opinions) == 1 and len(last[name]) >= min(2, len(brokers)):
                self._decide(name, opinions.pop(), failed)
            elif name not in self._known:
                failed[name] = errors.UnknownTopicOrPartition("brokers do not agree whether the topic exists", topic=name)
            else:
                log.warning("topic %s: brokers do not agree whether it is as it was; the query goes on with it", name)
        return failed

    def _decide(self, name: str, opinion: Opinion, failed: dict[str, errors.KafkaError]) -> None:
        known = self._known.get(name)
        if not isinstance(opinion, Topic):
            self._refused[name] = opinion
            failed[name] = opinion(topic=name, api="Metadata")
        elif opinion == DELETED:
            self._deleted[name] = self.topic_id(name)
            self._known.pop(name, None)
            failed[name] = errors.UnknownTopicOrPartition("the topic does not exist", topic=name, api="Metadata")
        else:
            if known is not None:
                self._replaced(name, ZERO_ID if known.topic_id == opinion.topic_id else known.topic_id)
            self._known[name] = opinion

    def _replaced(self, name: str, former: bytes) -> None:
        self.renewed.add(name)
        self._before[name] = former
        if former != ZERO_ID:
            self._former.add(former)

    def _opinions(self, names: Sequence[str], in_offsets: Mapping[str, int], brokers: Sequence[int]) -> dict[str, dict[int, Opinion]]:
        """What brokers say, by topic and broker; without the topics of which one of them says that they are as they were known."""
        ids = [self._known[name].topic_id for name in names if name in self._known and self._known[name].topic_id != ZERO_ID]
        chosen = random.sample(brokers, min(len(brokers), CONFIRM_BROKERS))
        found = self._admin().describe_topics_by_broker(names, topic_ids=ids, brokers=chosen, timeout=CONFIRM_TIMEOUT_S).succeeded
        out: dict[str, dict[int, Opinion]] = {}
        for name in names:
            opinions = {broker: self._opinion(name, seen, in_offsets) for broker, seen in found.items()}
            if None not in opinions.values():
                out[name] = {broker: each for broker, each in opinions.items() if each is not None}
        return out

    def _opinion(self, name: str, seen: TopicsSeen, in_offsets: Mapping[str, int]) -> Opinion | None:
        """What one broker says; None that the topic is as it was known, or has come."""
        known = self._known.get(name)
        by_id = seen.by_id.get(known.topic_id) if known is not None else None
        for answer in (by_id, seen.by_name[name]):
            if answer is not None and not isinstance(answer, errors.KafkaError) and self._accepted(name, answer, in_offsets):
                return None
        named = seen.by_name[name]
        if isinstance(by_id, errors.KafkaError) and not isinstance(by_id, errors.UnknownTopicId):
            return type(by_id)
        if not isinstance(named, errors.KafkaError):
            return Topic(named.topic_id, len(named.partitions))
        return DELETED if isinstance(named, errors.UnknownTopicOrPartition) else type(named)
