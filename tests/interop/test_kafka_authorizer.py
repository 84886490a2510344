"""Random ACLs and questions: the embedded broker's authorizer answers as Kafka's own StandardAuthorizer, run in a JVM."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacore.broker import authorizer as a
from kafkacore.broker.authorizer import Authorizer
from kafkacore.broker.cluster import Acl
from tests.kit.kafka_server import LOG4J, fast_jvm, fetch_jars

CASES = int(os.environ.get("KAFKACORE_AUTHORIZER_CASES", "300"))
HOSTS = "127.0.0.1", "10.0.0.1"
PRINCIPALS = "User:alice", "User:bob", "User:super"
OPERATIONS = (a.READ, a.WRITE, a.CREATE, a.DELETE, a.ALTER, a.DESCRIBE, a.DESCRIBE_CONFIGS, a.ALTER_CONFIGS)
SOURCE = Path(__file__).with_name("Authorizing.java")

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory(prefix="kafkacore-authorizer-") as directory:
        log4j = Path(directory) / "log4j2.properties"
        log4j.write_text(LOG4J + "appender.c.target=SYSTEM_ERR\n")
        command = ["java", *fast_jvm(), f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{fetch_jars()}/*", str(SOURCE)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            yield process
            process.kill()


def name(rnd: random.Random) -> str:
    """Often the beginning of another one; "hardcode" is what Kafka asks about before it looks at a type, ")" and "z" lie around "*"."""
    odd = rnd.random()
    return rnd.choice(["*", "hardcode", "hard", ")", "*a", "z"]) if odd < 0.25 else "".join(rnd.choices("ab", k=rnd.randint(1, 5)))


def acl(rnd: random.Random) -> Acl:
    return Acl(
        rnd.choice([a.TOPIC, a.TOPIC, a.GROUP]),
        name(rnd),
        rnd.choice([a.LITERAL, a.PREFIXED]),
        rnd.choice(["User:alice", "User:alice", "User:bob", "User:*"]),
        rnd.choice([*HOSTS, "*", "*"]),
        rnd.choice([a.ALL, *OPERATIONS]),
        rnd.choice([a.ALLOW, a.ALLOW, a.ALLOW, a.DENY]),
    )


def test_answers_alike(kafka: subprocess.Popen[str]) -> None:
    assert kafka.stdin is not None and kafka.stdout is not None
    seed = os.environ.get("KAFKACORE_AUTHORIZER_SEED", "1")
    rnd = random.Random(seed)
    for nth in range(CASES):
        acls = [acl(rnd) for _ in range(rnd.choice([0, 1, 3, 10, 30]))]
        acls = list(dict.fromkeys(acls))  # Kafka stores none twice
        is_open = rnd.random() < 0.3
        names = ["", *dict.fromkeys(each.resource_name for each in acls), *(name(rnd) for _ in range(4))]
        asked = [
            (rnd.choice(PRINCIPALS), rnd.choice(HOSTS), rnd.choice(OPERATIONS), rnd.choice([a.TOPIC, a.GROUP]), each)
            for each in itertools.chain.from_iterable([names] * 3)
        ]
        fields = str(is_open).lower(), "User:super", *(" ".join(",".join(map(str, each)) for each in rows) for rows in (acls, asked))
        kafka.stdin.write("\t".join(fields) + "\n")
        kafka.stdin.flush()
        theirs = kafka.stdout.readline().strip()
        ours = Authorizer(["User:super"], is_open)
        ours.change({at.to_bytes(16): each for at, each in enumerate(acls)})
        for question, answer in zip(asked, theirs, strict=True):
            principal, host, operation, kind, resource = question
            if resource:
                found = ours.allows(principal, host, operation, kind, resource)
            else:
                found = ours.allows_some(principal, host, operation, kind)
            assert found == (answer == "1"), (seed, nth, question, [each for each in acls if each.resource_type == kind], is_open)
