"""A group of members under faults, and the judgement of its history; tests/soak.py runs it for long, test_group_soak.py for a moment.

Three brokers; a producer; members of one group, of which some commit by themselves and some after each poll. In every step a fault or two
begin, records are sent, the faults end, and the group has to process everything before the next step begins. At the end the members leave,
and `kafkacore.testing.group_history` judges.

Beside the topic that stays there is one that a fault deletes, with records that nobody may have read, and creates again. Its records name
their generation, and history knows each generation as a topic of its own. By the seed, members subscribe to names or to a pattern.

With a cluster of its own elsewhere (`servers`) the faults are those of members and of that topic.

The seed decides which faults come in which order; what they meet is up to the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, SubscriptionPattern, TopicPartition, errors
from kafkacore.admin import TopicDescription
from kafkacore.broker.internal_topics import GROUP_TOPIC
from kafkacore.consumer import RebalanceListener
from kafkacore.errors import KafkaError
from kafkacore.records import ConsumerRecord
from kafkacore.testing import Disconnect, EmbeddedCluster
from kafkacore.testing.group_history import GroupHistory
from kafkacore.testing.history import Finding, History

TOPIC, PARTITIONS, GROUP = "group-soak", 6, "group-soak"
AGAIN, AGAIN_PARTITIONS = "group-soak-again", 2
BROKERS = (1, 2, 3)
RECORDS_PER_STEP = 60
MAX_POLL_INTERVAL_MS = 1_500
WAIT_S = 60.0
"""How long the group may take to process everything after the faults of a step."""
FAULT_S = 3.0
"""How long faults last at most; they end as soon as half of the records that were sent meanwhile are processed."""
CALM_LOOKS, CALM_S = 4, 0.2
"""So often, and so far apart, the group is found stable before the members leave."""
TAKEN_OVER_S = 3 * MAX_POLL_INTERVAL_MS / 1000
"""How long the others may take to read what a stalled member has; then it goes on."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range", "session_timeout_ms": 2_000, "heartbeat_interval_ms": 100},
    "cooperative-sticky": {
        "partition_assignment_strategy": "cooperative-sticky",
        "session_timeout_ms": 2_000,
        "heartbeat_interval_ms": 100,
    },
    "consumer": {"group_protocol": "consumer"},
}
FAULTS = (
    "move leaders",
    "move coordinator",
    "kill coordinator",
    "pause broker",
    "kill broker",
    "lose answers",
    "member joins",
    "member leaves",
    "member stalls",
    "topic again",
)
OF_CLIENTS = ("member joins", "member leaves", "member stalls", "topic again")
CONFIG = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 1_500,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "replica.socket.timeout.ms": 2_000,
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.heartbeat.interval.ms": 100,
}
CLIENT: dict[str, Any] = {"retry_backoff_ms": 20, "request_timeout_ms": 2_000, "reconnect_backoff_max_ms": 200}
NEVER_EXPECTED = (
    errors.InternalError,
    errors.CorruptDataError,
    errors.UsageError,
    errors.OffsetOutOfRange,
    errors.UnknownServer,
)
"""What no fault explains."""

Rows = Mapping[TopicPartition, list[ConsumerRecord]]
Place = tuple[str, int]


def place_of(record: ConsumerRecord) -> Place:
    """Where history has a record: of the topic that is created again the generation that the record names."""
    if record.topic != AGAIN:
        return record.topic, record.partition
    return generation_name(int(record.value.split(b":")[0])), record.partition


def generation_name(generation: int) -> str:
    return f"{AGAIN}#{generation}"


class SoakMember(RebalanceListener):
    """A member in a thread of its own.

    Args:
        soak: the run that it is part of.
        name: its name in the history.
        auto: commits by itself; else after each poll, by turns at once and in the background.
    """

    def __init__(self, soak: GroupSoak, name: str, auto: bool) -> None:
        self.soak = soak
        self.name = name
        self.auto = auto
        self.member = soak.group.member(name)
        self.leaving = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.consumer: KafkaConsumer
        self.next: dict[TopicPartition, int] = {}  # processed and not committed
        self.places: dict[TopicPartition, Place | None] = {}  # owned, by history's names; None before a record says the generation
        self._unprocessed: Rows = {}
        self._turn = 0
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        self.goes_on.set()
        self.leaving.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.soak.find(f"DIED: {self.name}: {''.join(traceback.format_exception(error))}")

    def _run(self) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=self.soak.servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=self.auto,
            auto_commit_interval_ms=20,
            max_poll_records=20,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            default_api_timeout_ms=3_000,
            metadata_max_age_ms=500,  # by which classic members see new topics of a pattern
            **CLIENT,
            **PROTOCOLS[self.soak.protocol],
        )
        try:
            self._subscribe()
            while not self.leaving.is_set():
                self._try(self._step)
                self.goes_on.wait(WAIT_S)
                self._process()
                self._try(self._commit)
        finally:
            self._try(lambda: self.consumer.close(10))

    def _subscribe(self) -> None:
        match self.soak.subscribes:
            case "names":
                self.consumer.subscribe([TOPIC, AGAIN], listener=self)
            case "pattern":
                self.consumer.subscribe(pattern=re.compile(f"{TOPIC}.*"), listener=self)
            case _:
                self.consumer.subscribe(pattern=SubscriptionPattern(f"{TOPIC}.*"), listener=self)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self.soak.count(self, error)

    def _step(self) -> None:
        rows = self.poll()
        for tp, records in rows.items():
            for place, of_topic in itertools.groupby(records, place_of):
                if tp in self.places and self.places[tp] != place:
                    self._own(tp, place)
                self.member.polled(*place, [(record.offset, record.value) for record in of_topic])
        self.soak.counts["handed out"] += sum(map(len, rows.values()))
        self.handle(rows)

    def poll(self) -> Rows:
        """What the consumer hands out."""
        return self.consumer.poll(0.1)

    def handle(self, rows: Rows) -> None:
        """What the application does with it: the work is done before the next poll, and in its own time."""
        self._unprocessed = rows
        if self.auto and rows and self.soak.counts["handed out"] % 4 == 0:
            self.soak.wait_for_looks()  # work that takes long enough to see what is committed meanwhile

    def _process(self) -> None:
        rows, self._unprocessed = self._unprocessed, {}
        for tp, records in rows.items():
            self.member.processed(*place_of(records[-1]), records[-1].offset + 1)
            if not self.auto:
                self.next[tp] = records[-1].offset + 1
            self.soak.processed(records)

    def _commit(self) -> None:
        """By turns in the background; what was revoked meanwhile is not in `next` any more."""
        if not self.next:
            return
        self._turn += 1
        offsets = dict(self.next)
        call = self.member.commit(self._by_place(offsets))
        if self._turn % 3 == 0:
            self.next.clear()
            places = dict(self.places)

            def answered(_: object, error: KafkaError | None) -> None:
                if error is None:
                    call.taken()
                    return
                for tp, offset in offsets.items():  # a rebalance refuses it, for example: with the next commit
                    if tp in places and self.places.get(tp) == places[tp]:
                        self.next.setdefault(tp, offset)

            self.consumer.commit_async(offsets, callback=answered)
            return
        try:
            self.consumer.commit(offsets)
        except errors.UnknownTopicOrPartition as error:
            if error.topic != AGAIN:
                raise
            self.soak.counts["commits of the topic before"] += 1
            for tp in [tp for tp in self.next if tp.topic == AGAIN]:  # the others are committed with the next call
                del self.next[tp]
            return
        call.taken()
        self.soak.counts["commits"] += 1
        self.next.clear()

    def _by_place(self, offsets: Mapping[TopicPartition, int]) -> dict[Place, int]:
        return {place: offset for tp, offset in offsets.items() if (place := self.places.get(tp)) is not None}

    def _own(self, tp: TopicPartition, place: Place) -> None:
        """A record says which generation of the topic this partition is of."""
        before = self.places[tp]
        if before is not None:
            self.member.revoked([before])
        self.member.assigned([place])
        self.places[tp] = place

    # ---- listener

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.soak.counts["assigned"] += len(partitions)
        for tp in partitions:
            self.places[tp] = None
            if tp.topic != AGAIN:
                self._own(tp, tp)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.soak.counts["revoked"] += len(partitions)
        mine = {tp: offset for tp, offset in self.next.items() if tp in partitions}
        try:
            if mine:
                call = self.member.commit(self._by_place(mine))
                self.consumer.commit(mine)
                call.taken()
        except KafkaError as error:
            self.soak.count(self, error)
        finally:
            self.member.revoked(self._forget(partitions))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.soak.counts["lost"] += len(partitions)
        self.member.lost(self._forget(partitions))

    def _forget(self, partitions: Collection[TopicPartition]) -> list[Place]:
        """Returns what history calls those that it knows as this member's."""
        for tp in partitions:
            self.next.pop(tp, None)
        return [place for tp in partitions if (place := self.places.pop(tp)) is not None]


class GroupSoak:
    """A run.

    Args:
        protocol: of `PROTOCOLS`.
        seed: decides the faults.
        steps: how many; None as many as fit into `seconds`.
        seconds: see there.
        member: makes a member; tests plant faults with it.
        wait_s: see WAIT_S.
        say: is handed lines of progress.
        servers: a cluster of the caller's, whose brokers stay as they are; None for one of its own.
    """

    def __init__(
        self,
        protocol: str,
        seed: int,
        steps: int | None = None,
        seconds: float = 0,
        member: type[SoakMember] = SoakMember,
        wait_s: float = WAIT_S,
        say: Callable[[str], object] = lambda line: None,
        servers: str | None = None,
    ) -> None:
        self.given = servers
        self.protocol, self.seed, self.steps, self.seconds, self.wait_s, self.say = protocol, seed, steps, seconds, wait_s, say
        self._make = member
        self.rng = random.Random(seed)
        self.subscribes = ("names", "pattern", "broker's pattern" if protocol == "consumer" else "pattern")[seed % 3]
        self.generation = 0
        self._topic_id = b""  # of the topic that is created again
        self._again: set[bytes] = set()  # what was sent to any generation
        self.history = History()
        self.group = GroupHistory(self.history)
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.findings: list[str] = []
        self.judged: list[Finding] = []
        self.members: list[SoakMember] = []
        self.gone: list[SoakMember] = []
        self._numbers = itertools.count(1)
        self._ends: list[Callable[[], None]] = []  # of the faults under way
        self._down: set[int] = set()
        self._stalled: list[SoakMember] = []
        self._writer = self.history.writer("writer")
        self._acked: set[bytes] = set()
        self._doomed: set[bytes] = set()  # what was sent to a generation that is deleted since
        self._done: set[bytes] = set()
        self._moved = threading.Condition()
        self._over = threading.Event()

    # ---- called by members, and by callbacks of the producer

    def find(self, text: str) -> None:
        self.findings.append(text)

    def count(self, member: SoakMember, error: BaseException) -> None:
        """Counts an error that a client raised. One that no fault explains is a finding."""
        what = type(error).__name__
        self.errors[what] += 1
        self.examples.setdefault(what, str(error))
        if (not isinstance(error, KafkaError) or isinstance(error, NEVER_EXPECTED)) and self.errors[what] == 1:
            self.find(f"RAISED in {member.name}: {''.join(traceback.format_exception(error))}")

    def processed(self, records: list[ConsumerRecord]) -> None:
        with self._moved:
            self._done.update(record.value for record in records)
            self._moved.notify_all()

    def wait_for_looks(self) -> None:
        """Until the observer has asked for what is committed, after the automatic commits had their time."""
        seen = self.counts["looks"]
        self._wait(lambda: self.counts["looks"] > seen + 2, FAULT_S / 4)

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        with self._moved:
            return self._moved.wait_for(done, timeout_s)

    # ---- the run

    def run(self) -> dict[str, Any]:
        """Plays, judges, and returns the figures; `findings` among them is empty when nothing was broken."""
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            if self.given is None:
                self.cluster = stack.enter_context(EmbeddedCluster(brokers=3, config=CONFIG))
            self.servers = self.given or self.cluster.bootstrap_servers
            self.admin = stack.enter_context(KafkaAdminClient(bootstrap_servers=self.servers, **CLIENT))
            copies = min(3, len(self.admin.describe_cluster().nodes))
            self.topics = {name: NewTopic(name, count, copies) for name, count in ((TOPIC, PARTITIONS), (AGAIN, AGAIN_PARTITIONS))}
            self.admin.create_topics([*self.topics.values()]).check()
            self._until_known()
            producer = KafkaProducer(bootstrap_servers=self.servers, acks="all", linger_ms=1, allow_auto_create_topics=False, **CLIENT)
            observer = threading.Thread(target=self._observe, daemon=True)
            try:
                for _ in range(3):
                    self._join()
                observer.start()
                self._send(producer, RECORDS_PER_STEP)
                self._all_processed(producer)
                step = 0
                while not self.findings and (step < self.steps if self.steps is not None else time.monotonic() - began < self.seconds):
                    step += 1
                    self._step(producer, step)
            finally:
                self._end_faults()
                self._go_on()
                producer.close(self.wait_s)
                self._leave_in_peace()
                self._over.set()
                observer.join(WAIT_S)
            self.group.drained()
            self._look_at_the_end()
            if self.given is not None:  # for the next run
                with contextlib.suppress(errors.UnknownTopicOrPartition):  # a try whose answer was lost has done it
                    self.admin.delete_topics([*self.topics]).check()
                with contextlib.suppress(errors.GroupIdNotFound):
                    self.admin.delete_groups([GROUP]).check()
        self.judged = self.history.check()
        self.findings += [str(finding) for finding in self.judged[:20]]
        return {
            "protocol": self.protocol,
            "subscribes": self.subscribes,
            "generations": self.generation + 1,
            "seed": self.seed,
            "steps": step,
            "seconds": round(time.monotonic() - began, 1),
            "records": len(self._acked),
            **dict(sorted(self.counts.items())),
            "faults": dict(self.faults.most_common()),
            "errors": dict(self.errors.most_common()),
            "examples": self.examples,
            "findings": self.findings,
        }

    def _step(self, producer: KafkaProducer, step: int) -> None:
        chosen = self.rng.sample(FAULTS if self.given is None else OF_CLIENTS, self.rng.choice((1, 2)))
        chosen.sort(key=lambda kind: kind == "topic again")  # what it deletes has been sent while the others went on
        for kind in chosen:
            self.faults[kind] += 1
            getattr(self, "_" + kind.replace(" ", "_"))()
        before = len(self._done)
        self._send(producer, RECORDS_PER_STEP)
        self._wait(lambda: len(self._done) >= before + RECORDS_PER_STEP // 2, FAULT_S)
        self._end_faults()
        if self._stalled:  # until the others have taken over
            producer.flush(self.wait_s)
            self._wait(lambda: self._missing() == set(), TAKEN_OVER_S)
            self._go_on()
        self._all_processed(producer)
        self.say(f"group soak: step {step}: {', '.join(chosen)}; {len(self._acked)} records, {sum(self.errors.values())} errors raised")

    def _send(self, producer: KafkaProducer, count: int) -> None:
        for nth in range(count):
            again = nth % 6 == 5
            topic, partition = (AGAIN, nth // 6 % AGAIN_PARTITIONS) if again else (TOPIC, nth % PARTITIONS)
            value = b"%d:%d" % (self.generation, next(self._numbers))
            if again:
                self._again.add(value)
            send = self._writer.send(generation_name(self.generation) if again else topic, value, partition)

            def settled(future: Any, send: Any = send, value: bytes = value) -> None:
                if future.exception() is None:
                    send.acked(future.result().offset)
                    with self._moved:
                        self._acked.add(value)
                        self._moved.notify_all()

            producer.send(topic, value, partition=partition).add_done_callback(settled)

    def _all_processed(self, producer: KafkaProducer) -> None:
        producer.flush(self.wait_s)
        if not self._wait(lambda: self._missing() == set(), self.wait_s):
            self.find(f"STUCK: {len(self._missing())} records are not processed, such as {sorted(self._missing())[:5]}")

    def _missing(self) -> set[bytes]:
        """Acknowledged, still there, and not processed."""
        return self._acked - self._done - self._doomed

    def _observe(self) -> None:
        """What members commit by themselves is seen here."""
        with KafkaAdminClient(bootstrap_servers=self.servers, **CLIENT) as admin:
            while not self._over.wait(0.02):
                self._see(admin, 2)

    def _see(self, admin: KafkaAdminClient, timeout_s: float) -> dict[TopicPartition, int]:
        try:
            answers = admin.list_group_offsets(GROUP, timeout=timeout_s)
        except KafkaError as error:
            self.errors[f"observer: {type(error).__name__}"] += 1
            return {}
        found = {tp: answer.offset for tp, answer in answers.items() if answer is not None}
        for tp, offset in found.items():
            if tp.topic != AGAIN:  # asked by name, coordinators tell an offset of a deleted topic until they have forgotten it
                self.group.committed(*tp, offset)
        with self._moved:
            self.counts["looks"] += 1
            self._moved.notify_all()
        return found

    def _look_at_the_end(self) -> None:
        """All members left in peace, so that all is committed that was processed."""
        with KafkaAdminClient(bootstrap_servers=self.servers, **CLIENT) as admin:
            found = self._see(admin, WAIT_S)
        with KafkaConsumer(bootstrap_servers=self.servers, **CLIENT) as consumer:
            tps = [TopicPartition(name, index) for name, topic in self.topics.items() for index in range(topic.num_partitions)]
            for tp, end in consumer.end_offsets(tps).items():
                committed = found.get(tp, 0)
                if committed != end and not self.findings:
                    self.find(f"COMMITTED: {committed} of {end} in {tp.topic}-{tp.partition} when all members had left")

    # ---- faults

    def _topic_again(self) -> None:
        """Deletes the topic with what nobody has processed of it, and creates it again, after a while or at once."""
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all", linger_ms=1, allow_auto_create_topics=False, **CLIENT)
        self._send(producer, 12)
        producer.close(FAULT_S)
        gone = self.generation
        self.group.deleted(generation_name(gone))
        with self._moved:
            self._doomed.update(value for value in self._again if value.startswith(b"%d:" % gone))
        self._until_done(lambda: self.admin.delete_topics([AGAIN], timeout=FAULT_S).check(), errors.UnknownTopicOrPartition)
        self._wait(lambda: False, self.rng.choice((0, 0, 0.3, 1.0)))
        self._until_done(lambda: self.admin.create_topics([self.topics[AGAIN]], timeout=FAULT_S).check(), errors.TopicExists)
        self._until_known()
        self.generation += 1

    def _until_known(self) -> None:
        """Brokers hear of it after the controller has answered: a leader that has not yet takes records for the topic before."""
        brokers = None if self.given is not None else [broker for broker in BROKERS if broker not in self._down]
        before = self._topic_id

        def ask() -> None:
            for broker, seen in self.admin.describe_topics_by_broker([AGAIN], brokers=brokers, timeout=FAULT_S).succeeded.items():
                found = seen.by_name[AGAIN]
                if not isinstance(found, TopicDescription) or found.topic_id == before:
                    self._wait(lambda: False, CALM_S / 10)
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
                self.errors[f"admin: {type(error).__name__}"] += 1
        self.find("STUCK: the topic cannot be deleted or created")

    def _end_faults(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        self._down.clear()

    def _go_on(self) -> None:
        for member in self._stalled:
            member.goes_on.set()
        self._stalled.clear()

    def _move_leaders(self) -> None:
        for partition in self.rng.sample(range(PARTITIONS), 2):
            self._move(TOPIC, partition)

    def _move_coordinator(self) -> None:
        self._move(GROUP_TOPIC, 0)

    def _move(self, topic: str, partition: int) -> None:
        broker = self.rng.choice([each for each in BROKERS if each not in self._down])
        try:
            self.cluster.move_leader(topic, partition, broker)
        except KafkaError as error:
            self.faults[f"not possible: {type(error).__name__}"] += 1

    def _kill_coordinator(self) -> None:
        self._kill(self.cluster.leader(GROUP_TOPIC, 0))

    def _kill_broker(self) -> None:
        self._kill(self.rng.choice(BROKERS))

    def _kill(self, broker: int | None) -> None:
        if broker is None or self._down:
            return  # two of three must stay
        self._down.add(broker)
        self.cluster.kill_broker(broker)
        self._ends.append(lambda: self.cluster.start_broker(broker))

    def _pause_broker(self) -> None:
        if self._down:
            return
        broker = self.rng.choice(BROKERS)
        self._down.add(broker)
        self.cluster.pause_broker(broker)
        self._ends.append(lambda: self.cluster.resume_broker(broker))

    def _lose_answers(self) -> None:
        """Of one kind of request: some are carried out and not answered, some not even that."""
        own = ("ConsumerGroupHeartbeat",) if self.protocol == "consumer" else ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup")
        api = self.rng.choice(("Fetch", "OffsetCommit", "OffsetFetch", "FindCoordinator", *own, *own))
        rng = random.Random(self.rng.random())
        self.faults[f"lose answers: {api}"] += 1
        self.cluster.control(api, lambda _: Disconnect(handle=rng.random() < 0.6) if rng.random() < 0.3 else None)
        self._ends.append(lambda: self.cluster.control(api, None))

    def _member_joins(self) -> None:
        if len(self.members) < 5:
            self._join()

    def _join(self) -> None:
        number = len(self.members) + len(self.gone) + 1
        self.members.append(self._make(self, f"member-{number}", auto=number % 2 == 0))

    def _member_leaves(self) -> None:
        if len(self.members) > 2:
            self._leave([self.rng.choice(self.members)])

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
                self._wait(lambda: False, CALM_S)
            while self.members:
                if not self.findings:
                    self._wait(stable, self.wait_s)
                self._leave(self.members[:1])

    def _leave(self, members: list[SoakMember]) -> None:
        for member in list(members):
            if not member.join(WAIT_S):
                self.find(f"STUCK: {member.name} does not end")
            self.members.remove(member)
            self.gone.append(member)

    def _member_stalls(self) -> None:
        """Its application works for longer than max_poll_interval_ms."""
        member = self.rng.choice(self.members)
        member.goes_on.clear()
        self._stalled.append(member)
