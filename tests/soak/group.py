"""A group of members under faults. In every round records are sent, and the group has to process everything before the next one.

A producer; members of one group, of which some commit by themselves and some after each poll. Beside the topic that stays there is one that
a fault deletes, with records that nobody may have read, and creates again. Its records name their generation, and history knows each
generation as a topic of its own. By the seed, members subscribe to names or to a pattern. At the end the members leave in peace.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition, errors
from kafkacore.admin import TopicDescription
from kafkacore.errors import KafkaError
from kafkacore.records import ConsumerRecord
from tests.soak.faults import BROKERS, Faults
from tests.soak.frame import WAIT_S, Actor, Soak
from tests.soak.members import (
    AGAIN,
    AGAIN_PARTITIONS,
    CLIENT,
    GROUP,
    MAX_POLL_INTERVAL_MS,
    PARTITIONS,
    TOPIC,
    SoakMember,
    generation_name,
)

CONFIG = {
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.heartbeat.interval.ms": 100,
}
OWN_KINDS = ("member joins", "member leaves", "member stalls", "topic again")
KINDS = ("move leader", "move group coordinator", "kill coordinator", "pause broker", "kill broker", "lose answers")
ASKED = ("Fetch", "OffsetCommit", "OffsetFetch", "FindCoordinator")
OF_MEMBERS = {"consumer": ("ConsumerGroupHeartbeat",)}
OF_CLASSIC_MEMBERS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup")
RECORDS_PER_ROUND = 60
FAULT_S = 3.0
"""How long faults last at most; they end as soon as half of the records that were sent meanwhile are processed."""
CALM_LOOKS, CALM_S = 4, 0.2
"""So often, and so far apart, the group is found stable before the members leave."""
TAKEN_OVER_S = 3 * MAX_POLL_INTERVAL_MS / 1000
"""How long the others may take to read what a stalled member has; then it goes on."""


class Observer(Actor):
    """Sees what members commit by themselves."""

    def run(self) -> None:
        with KafkaAdminClient(bootstrap_servers=self.soak.servers, **CLIENT) as admin:
            while not self.soak.over.wait(0.02):
                self.soak.see(admin, 2)


class GroupSoak(Soak):
    """A run.

    Args:
        protocol: of `PROTOCOLS`.
        rounds: how many; None as many as fit into `seconds`.
        member: makes a member; tests plant faults with it.
        options: see `Soak`.
    """

    topics, config = {}, CONFIG

    def __init__(
        self,
        protocol: str,
        seed: int,
        rounds: int | None = None,
        member: type[SoakMember] = SoakMember,
        **options: Any,
    ) -> None:
        super().__init__(seed, **options)
        self.name = f"group, {protocol}"
        self.protocol, self.most_rounds, self._make = protocol, rounds, member
        self.subscribes = ("names", "pattern", "broker's pattern" if protocol == "consumer" else "pattern")[seed % 3]
        self.generation = 0
        self._topic_id = b""  # of the topic that is created again
        self._again: set[bytes] = set()  # what was sent to any generation
        self.members: list[SoakMember] = []
        self._numbers, self._values = itertools.count(1), itertools.count(1)
        self._stalled: list[SoakMember] = []
        self._writer = self.history.writer("writer")
        self._acked: set[bytes] = set()
        self._doomed: set[bytes] = set()  # what was sent to a generation that is deleted since
        self._done: set[bytes] = set()

    # ---- called by members

    def processed(self, records: list[ConsumerRecord]) -> None:
        with self.moving():
            self._done.update(record.value for record in records)

    def wait_for_looks(self, most_s: float = FAULT_S / 4) -> None:
        """Until the observer has asked for what is committed, after the automatic commits had their time."""
        seen = self.counts["looks"]
        self.wait(lambda: self.counts["looks"] > seen + 2, most_s)

    # ---- the run

    def make_faults(self) -> Faults:
        own = {kind: getattr(self, "_" + kind.replace(" ", "_")) for kind in OWN_KINDS}
        kinds = dict.fromkeys((*KINDS, *OWN_KINDS), 1)
        members = OF_MEMBERS.get(self.protocol, OF_CLASSIC_MEMBERS)
        lost = (*ASKED, *members, *members)
        return Faults(self.cluster, self.rng, self.find, kinds, self.kinds, own, {TOPIC: PARTITIONS}, lost)

    def open(self, stack: contextlib.ExitStack) -> None:
        self.admin = stack.enter_context(KafkaAdminClient(bootstrap_servers=self.servers, **CLIENT))
        self.new_topics = {name: NewTopic(name, count, 3) for name, count in ((TOPIC, PARTITIONS), (AGAIN, AGAIN_PARTITIONS))}
        self.admin.create_topics([*self.new_topics.values()]).check()
        self._until_known()
        self.producer = self._producer()
        stack.callback(lambda: self.producer.close(WAIT_S))

    def _producer(self) -> KafkaProducer:
        return KafkaProducer(bootstrap_servers=self.servers, acks="all", linger_ms=1, allow_auto_create_topics=False, **CLIENT)

    def begin(self) -> None:
        for _ in range(3):
            self._join()
        self._observer = Observer(self, "observer").start()
        self._send(self.producer, RECORDS_PER_ROUND)
        self.come_back()

    def goes_on(self, elapsed_s: float) -> bool:
        return super().goes_on(elapsed_s) if self.most_rounds is None else self.rounds < self.most_rounds

    def play(self, elapsed_s: float) -> None:
        chosen = self.faults.choose(self.rng.choice((1, 2)))
        for kind in sorted(chosen, key=lambda kind: kind == "topic again"):  # what it deletes has been sent while the others went on
            self.faults.begin(kind)
        before = len(self._done)
        self._send(self.producer, RECORDS_PER_ROUND)
        self.wait(lambda: len(self._done) >= before + RECORDS_PER_ROUND // 2, FAULT_S)

    def come_back(self) -> None:
        if self._stalled:  # until the others have taken over
            self.producer.flush(self.wait_s)
            self.wait(lambda: self._missing() == set(), TAKEN_OVER_S)
            for member in self._stalled:
                member.goes_on.set()
            self._stalled.clear()
        self.producer.flush(self.wait_s)
        if not self.wait(lambda: self._missing() == set(), self.wait_s):
            self.find(f"STUCK: {len(self._missing())} records are not processed, such as {sorted(self._missing())[:5]}")
        if not self.wait(lambda: all(member.places for member in self.members), self.wait_s):
            self.find(f"STUCK: of {len(self.members)} members own nothing: {[each.name for each in self.members if not each.places]}")

    def _missing(self) -> set[bytes]:
        """Acknowledged, still there, and not processed."""
        return self._acked - self._done - self._doomed

    def settle(self) -> None:
        self.producer.close(self.wait_s)
        self._leave_in_peace()
        self.over.set()
        self.join([self._observer])
        self.group.drained()
        self._look_at_the_end()

    def release(self) -> None:
        for member in self.members:
            member.leave()
        super().release()

    def figures(self) -> dict[str, Any]:
        return {"subscribes": self.subscribes, "generations": self.generation + 1}

    def _send(self, producer: KafkaProducer, count: int) -> None:
        for nth in range(count):
            again = nth % 6 == 5
            topic, partition = (AGAIN, nth // 6 % AGAIN_PARTITIONS) if again else (TOPIC, nth % PARTITIONS)
            value = b"%d:%d" % (self.generation, next(self._values))
            if again:
                self._again.add(value)
            send = self._writer.send(generation_name(self.generation) if again else topic, value, partition)

            def settled(future: Any, send: Any = send, value: bytes = value) -> None:
                if future.exception() is None:
                    send.acked(future.result().offset)
                    with self.moving():
                        self._acked.add(value)

            producer.send(topic, value, partition=partition).add_done_callback(settled)

    def see(self, admin: KafkaAdminClient, timeout_s: float) -> dict[TopicPartition, int]:
        try:
            answers = admin.list_group_offsets(GROUP, timeout=timeout_s)
        except KafkaError as error:
            self.tally(f"observer: {type(error).__name__}", error)
            return {}
        found = {tp: answer.offset for tp, answer in answers.items() if answer is not None}
        for tp, offset in found.items():
            if tp.topic != AGAIN:  # asked by name, coordinators tell an offset of a deleted topic until they have forgotten it
                self.group.committed(*tp, offset)
        with self.moving():
            self.counts["looks"] += 1
        return found

    def _look_at_the_end(self) -> None:
        """All members left in peace, so that all is committed that was processed."""
        with KafkaAdminClient(bootstrap_servers=self.servers, **CLIENT) as admin:
            found = self.see(admin, WAIT_S)
        with KafkaConsumer(bootstrap_servers=self.servers, **CLIENT) as consumer:
            tps = [TopicPartition(name, index) for name, topic in self.new_topics.items() for index in range(topic.num_partitions)]
            for tp, end in consumer.end_offsets(tps).items():
                committed = found.get(tp, 0)
                if committed != end and not self.findings:
                    self.find(f"COMMITTED: {committed} of {end} in {tp.topic}-{tp.partition} when all members had left")

    def _leave_in_peace(self) -> None:
        """All members leave, one after the other and while the group is stable: in a rebalance their last commits would be refused."""
        with KafkaAdminClient(bootstrap_servers=self.servers, **CLIENT) as admin:

            def stable() -> bool:
                try:
                    group = admin.describe_groups([GROUP], timeout=WAIT_S)[GROUP]
                except KafkaError:
                    return False
                return group.state == "Stable" and len(group.members) == len(self.members)

            until = time.monotonic() + self.wait_s
            calm = 0  # one rebalance may follow another, as where a topic has just been created again
            while calm < CALM_LOOKS and not self.findings and time.monotonic() < until:
                calm = calm + 1 if stable() else 0
                self.rest(CALM_S)
            while self.members:
                if not self.findings:
                    self.wait(stable, self.wait_s)
                self._leave(self.members[0])

    def _leave(self, member: SoakMember) -> None:
        self.members.remove(member)
        member.leave()
        self.join([member])

    def _join(self) -> None:
        number = next(self._numbers)
        self.members.append(self._make(self, f"member-{number}", auto=number % 2 == 0).start())

    # ---- faults

    def _member_joins(self) -> None:
        if len(self.members) < 5:
            self._join()

    def _member_leaves(self) -> None:
        if len(self.members) > 2:
            self._leave(self.rng.choice(self.members))

    def _member_stalls(self) -> None:
        """Its application works for longer than max_poll_interval_ms."""
        member = self.rng.choice(self.members)
        member.goes_on.clear()
        self._stalled.append(member)

    def _topic_again(self) -> None:
        """Deletes the topic with what nobody has processed of it, and creates it again, after a while or at once."""
        producer = self._producer()
        self._send(producer, 12)
        producer.close(FAULT_S)
        gone = self.generation
        self.group.deleted(generation_name(gone))
        with self.moving():
            self._doomed.update(value for value in self._again if value.startswith(b"%d:" % gone))
        self._until_done(lambda: self.admin.delete_topics([AGAIN], timeout=FAULT_S).check(), errors.UnknownTopicOrPartition)
        self.rest(self.rng.choice((0, 0, 0.3, 1.0)))
        self._until_done(lambda: self.admin.create_topics([self.new_topics[AGAIN]], timeout=FAULT_S).check(), errors.TopicExists)
        self._until_known()
        self.generation += 1

    def _until_known(self) -> None:
        """Brokers hear of it after the controller has answered: a leader that has not yet takes records for the topic before."""
        brokers = [broker for broker in BROKERS if broker not in self.faults.away]
        before = self._topic_id

        def ask() -> None:
            for broker, seen in self.admin.describe_topics_by_broker([AGAIN], brokers=brokers, timeout=FAULT_S).succeeded.items():
                found = seen.by_name[AGAIN]
                if not isinstance(found, TopicDescription) or found.topic_id == before:
                    self.rest(CALM_S / 10)
                    raise errors.UnknownTopicOrPartition("it does not know the new topic yet", topic=AGAIN, broker=broker)
                self._topic_id = found.topic_id

        self._until_done(ask)

    def _until_done(self, call: Callable[[], object], *already: type[KafkaError]) -> None:
        """Answers may be lost: what is there already was done by a try before."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            try:
                call()
                return
            except already:
                return
            except KafkaError as error:
                self.tally(f"admin: {type(error).__name__}", error)
        self.find("STUCK: the topic cannot be deleted or created")
