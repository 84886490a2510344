"""Names of certificates, and the users that rules make of them, as Java and Kafka have them."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from kafkacore.errors import ConfigError
from kafkacore.principals import MappingRules, name_of
from tests.kit.kafka_server import fetch_jars

pytestmark = pytest.mark.kafka

KINDS = [
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME, NameOID.STREET_ADDRESS,
    NameOID.STATE_OR_PROVINCE_NAME, NameOID.DOMAIN_COMPONENT, NameOID.USER_ID, NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER, NameOID.TITLE,
    x509.ObjectIdentifier("1.2.3.4.5.99999"), x509.ObjectIdentifier("2.999.3"),
]  # fmt: skip
TEXTS = ["alice", "Bob", " lead", "trail ", "  ", "a,b", "a+b=c", 'q"\\;<>#x', "#x", "ünï", "\0n", "\rcr\r", "日本", "\t tab", "🙂", "$1/"]
TYPES = [getattr(_ASN1Type, name) for name in ("UTF8String", "PrintableString", "IA5String", "T61String", "BMPString")]
RULES = [
    "DEFAULT", "", "  DEFAULT  ", "RULE:^CN=(.*?),.*$/$1/", "RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "RULE:^CN=(.*?),(.*)$/$2 $1/U,DEFAULT",
    "RULE:.*OU=(.*?)(,.*)?$/ou-$1@$3/,RULE:.*/other/", r"RULE:^.*[Oo]=(.*?)(,.*)?$/\$1-$1/L", "RULE:.*CN=(.*?)(,.*|$)/$12/,DEFAULT",
    "RULE:(.*)/[$1]/,DEFAULT", "RULE:(?<who>.*)/${who}!/", "RULE:^(((((((((((.))))))))))).*$/$11$1$0/,DEFAULT", "RULE:CN=alice/x/",
    r"RULE:(a\/b|.*)(x)?/$1$2\/c/,DEFAULT", "RULE:^L=(.*)$/$1/, RULE:^CN=(.*)$/$1/U", "RULE:(.*)/$1$9$12/,DEFAULT",
    "RULE:(?i)cn=(\\S+).*/$1/,DEFAULT", "RULE:[.](.*)/$1/,DEFAULT",
    r"RULE:CN=(\w+).*/$1/", "RULE:/x/,DEFAULT", "RULE:.*//", "RULE:a,RULE:b/c/",
]  # fmt: skip
WRONG = ["FOO", "RULE:a/b/X", "RULE:a/b/L,foo", "default", "RULE:a/b/L RULE:c/d/", "RULE:(/x/", "RULE:.*/$1/", "RULE:.*/a$/"]
JAVAS_ALONE = ["RULE:([a-z[A-Z]]*).*/$1/", "RULE:[a-z&&[^b]].*/$1/", "RULE:(?s)(.*)/$1/", r"RULE:\p{Alpha}+=.*/x/"]
"""Taken by Kafka and refused here: `re` would not take them, or in another sense."""
SEED = 20261123


def names(count: int) -> list[bytes]:
    found = []
    rng = random.Random(SEED)
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(0, 4)):
            pairs = {}
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                kind = rng.choice(KINDS)
                pairs[kind] = x509.NameAttribute(kind, rng.choice(TEXTS), rng.choice(TYPES), _validate=False)
            parts.append(x509.RelativeDistinguishedName(pairs.values()))
        try:
            found.append(x509.Name(parts).public_bytes())
        except ValueError:  # a text that the type cannot hold
            continue
    return found


def ours(rules: str, name: str) -> str:
    try:
        user = MappingRules(rules).name(name)
    except ConfigError:
        return "refused"
    return "NoMatchingRule" if user is None else f"user {user}"


@pytest.mark.timeout(120)
def test_names_and_users_are_those_of_java() -> None:
    cases = [(rules, name) for name in names(200) for rules in RULES + WRONG + JAVAS_ALONE]
    assert len(cases) > 1000
    asked = "".join(f"{rules.encode().hex() or '20'} {name.hex()}\n" for rules, name in cases)
    program = Path(__file__).with_name("Principals.java")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{fetch_jars()}/*", str(program)]
    answered = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    refused = set()
    for (rules, der), line in zip(cases, answered, strict=True):
        name, user = (bytes.fromhex(part).decode("utf-16-be") for part in line.split(" "))
        assert name_of(der) == name
        said = ours(rules, name)
        if said == "refused":
            refused.add(rules)
            assert rules in JAVAS_ALONE or not user.startswith("user "), (rules, name, user)
        else:
            assert said == user, (rules, name)
    assert refused == {*WRONG, *JAVAS_ALONE}
