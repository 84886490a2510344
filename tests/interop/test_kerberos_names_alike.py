"""Users that sasl.kerberos.principal.to.local.rules make of Kerberos names, as Kafka has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafkacore.errors import ConfigError, SaslAuthentication
from kafkacore.kerberos_names import LocalNames
from tests.kit.kafka_server import fetch_jars

pytestmark = pytest.mark.kafka

RULES = [
    "DEFAULT", "RULE:[1:$1]", "RULE:[2:$1]", "RULE:[1:$1@$0]", "RULE:[1:$1@$0](.*@HOME)s/@.*//", "RULE:[2:$1;$2](^.*;admin$)s/;admin$//",
    "RULE:[1:$1]/L", "RULE:[1:$1]/U", "RULE:[1:$1]L", "RULE:[1:$1]s/a/b/", "RULE:[1:$1]s/a/b/g", "RULE:[1:$1]s/a/b/g/U",
    "RULE:[1:$1]s/(an)(a)/$2-$1/g", "RULE:[1:$1]s/x*/-/g", "RULE:[1:$1]s/x*/-/", "RULE:[1:$0.$1.$1]", "RULE:[1:x]", "RULE:[1:]",
    "RULE:[2:$2$1$0]", "RULE:[1:$1]s/./\\$1/", "RULE:[1:$1](\\w+)", "RULE:[1:$1](a.*)s/^(.)(.*)$/$2$1/L", "RULE:[1:$1]s/a//g",
    "RULE:[0:x]",
    "RULE:[1:$1]()", "RULE:[1:a$1b$1c]/",
]  # fmt: skip
WRONG = ["", "default", "DEFAULT/L", "DEFAULT ", "RULE:[:$1]", "RULE:[1:$1](", "RULE:[1:$1]s/a/b", "RULE:[1:$1]/X", "RULE[1:$1]",
         "RULE:[1:$1](*)", "RULE:[1:$1]s/(/b/"]  # fmt: skip
LATE = ["RULE:[1:$2]", "RULE:[1:$]", "RULE:[1:$1]s/a/$3/", "RULE:[1:$1]s/a/b$/"]
"""Kafka finds out when a name comes that the rule is for, and lets it not in; here they are refused when they are read."""
JAVAS_ALONE = ["RULE:[1:$1]([a-z&&[^b]].*)", "RULE:[1:$1]((?s.*)"]
NAMES = [
    "alice@HOME", "alice@AWAY", "ALICE@HOME", "banana@HOME", "kafka/host.example@HOME", "root/admin@HOME", "alice", "a/b", "a/b/c@HOME",
    "a@b@HOME", "@HOME", "alice@", "/x@HOME", "x/@HOME", "bänäna@HOME", "a b@HOME", "a\nb@HOME", "xax@HOME", "\\a@HOME",
]  # fmt: skip


def ours(rule: str, principal: str) -> str:
    try:
        names = LocalNames([rule])
    except ConfigError:
        return "refused"
    try:
        return f"user {names.name(principal, 'HOME')}"
    except SaslAuthentication:
        return "none"


@pytest.mark.timeout(120)
def test_users_are_those_of_kafka() -> None:
    cases = [(rule, name) for name in NAMES for rule in RULES + WRONG + LATE + JAVAS_ALONE]
    asked = "".join(f"{rule.encode().hex()} {name.encode().hex()}\n" for rule, name in cases)
    program = Path(__file__).with_name("KerberosNames.java")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{fetch_jars()}/*", str(program)]
    answered = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    refused = set()
    for (rule, name), line in zip(cases, answered, strict=True):
        theirs, said = bytes.fromhex(line).decode(), ours(rule, name)
        if said == "refused":
            refused.add(rule)
            assert rule in JAVAS_ALONE or theirs != f"user {name}" or rule in LATE, (rule, name, theirs)
        elif theirs == "user ":
            assert said == "none"  # Kafka lets in a user without a name
        else:
            assert said == theirs, (rule, name)
    assert refused == {*WRONG, *LATE, *JAVAS_ALONE}
