"""Groups of this package's consumers and those of other clients, each a process, while members join, leave, are killed and stopped.

KAFKACORE_GROUP_SECONDS=60 makes each run a minute long.
"""

from __future__ import annotations

import collections
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.kit.waiting import fresh, until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.slow,
]
PARTITIONS = 12
SECONDS = float(os.environ.get("KAFKACORE_GROUP_SECONDS", "1.5"))
GROUPS = {
    "range": ["kafkacore", "confluent", "kafka-python", "aiokafka"],
    "roundrobin": ["kafkacore", "kafka-python", "confluent", "aiokafka"],
    "cooperative-sticky": ["kafkacore", "confluent", "kafkacore", "confluent"],
    "consumer": ["kafkacore", "confluent", "kafkacore", "confluent"],
}


class Member:
    """A process that reads; `handed_out` has what it said."""

    def __init__(self, client: str, servers: str, group: str, topic: str, strategy: str) -> None:
        self.client = client
        self.handed_out: list[tuple[int, int]] = []
        command = [sys.executable, "-m", "tests.interop.group_member", client, servers, group, topic, strategy]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            if line.endswith("\n"):
                partition, offset = line.split()
                self.handed_out.append((int(partition), int(offset)))

    def leave(self) -> None:
        self._end()

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def _end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self._reader.join()
        self.process.stdout.close()


MARKS = {
    "range": pytest.mark.kafka_alone("tests/consumer"),
    "consumer": pytest.mark.kafka_at_length,
    **dict.fromkeys(("roundrobin", "cooperative-sticky"), pytest.mark.night),
}


@pytest.mark.parametrize("strategy", [pytest.param(each, marks=MARKS[each]) for each in GROUPS])
def test_a_group_of_many_clients(bootstrap_servers: str, make_topic: Callable[..., str], strategy: str) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    seed = 1 if "KAFKACORE_SAME_EXAMPLES" in os.environ else random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    alive: list[Member] = []
    gone: list[Member] = []
    sent = 0
    pause = threading.Event()

    def join(client: str) -> None:
        alive.append(Member(client, bootstrap_servers, group, topic, strategy))

    def handed_out() -> collections.Counter[tuple[int, int]]:
        return collections.Counter(place for member in [*alive, *gone] for place in [*member.handed_out])

    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer, KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        try:
            for client in GROUPS[strategy]:
                join(client)
            steps = ["join", "leave", "kill", "stop", "join"]
            while steps:
                for _ in range(round(SECONDS / 5 / 0.05)):
                    producer.send_many(topic, [b"v"] * PARTITIONS, partitions=range(PARTITIONS))
                    sent += 1
                    pause.wait(0.05)
                step = steps.pop(0)
                if step == "join":
                    join(rng.choice(GROUPS[strategy]))
                    continue
                member = alive.pop(rng.randrange(len(alive)))
                gone.append(member)
                if step == "leave":
                    member.leave()
                elif step == "kill":
                    member.kill()
                else:  # stopped for longer than its session: others have its partitions when it goes on
                    member.process.send_signal(signal.SIGSTOP)
                    until(lambda: len(admin.describe_groups([group])[group].members) <= len(alive), "the stopped member is out")
                    member.process.send_signal(signal.SIGCONT)
                    gone.remove(member)
                    alive.append(member)
            producer.flush()
            everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(sent)}
            until(lambda: handed_out().keys() >= everything, "every record is handed out")
            assert handed_out().keys() == everything

            def balanced() -> bool:
                members = admin.describe_groups([group])[group].members
                shares = [len(member.partitions) for member in members]
                return len(shares) == len(alive) and sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

            until(balanced, f"{len(alive)} members have {PARTITIONS} partitions in equal shares")
            with KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group) as looking:
                places = [(topic, partition) for partition in range(PARTITIONS)]
                until(
                    lambda: {found and found.offset for found in looking.committed(places).values()} == {sent},
                    "what is committed is what was handed out",
                )
            for member in alive:
                member.leave()
        finally:
            for member in (*alive, *gone):  # a stopped one, too
                if member.process.poll() is None:
                    member.process.send_signal(signal.SIGCONT)
                    member.kill()
