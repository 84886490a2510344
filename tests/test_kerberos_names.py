"""The user's names that sasl.kerberos.principal.to.local.rules make; tests/interop/test_kerberos_names_alike.py asks Kafka itself."""

import pytest

from kafkacore.errors import ConfigError, SaslAuthentication
from kafkacore.kerberos_names import LocalNames
from tests.kit.rows import each_row


@each_row(
    ("rules", "principal", "expected"),
    [
        (["DEFAULT"], "alice@HOME", "alice"),
        (["DEFAULT"], "kafka/host@HOME", "kafka"),
        (["DEFAULT"], "alice", "alice"),
        (["RULE:[1:$1@$0](.*@AWAY)s/@.*//", "DEFAULT"], "bob@AWAY", "bob"),
        (["RULE:[1:$1@$0](.*@AWAY)s/@.*//", "DEFAULT"], "bob@HOME", "bob"),
        (["RULE:[2:$1;$2](^.*;admin$)s/;admin$//", "DEFAULT"], "root/admin@HOME", "root"),
        (["RULE:[2:$2]", "DEFAULT"], "kafka/host@HOME", "host"),
        (["RULE:[1:$1]/L"], "ALICE@HOME", "alice"),
        (["RULE:[1:$1]/U"], "alice@HOME", "ALICE"),
        (["RULE:[1:$1]L"], "ALICE@HOME", "alice"),
        (["RULE:[1:$1]s/a/b/"], "banana@HOME", "bbnana"),
        (["RULE:[1:$1]s/a/b/g"], "banana@HOME", "bbnbnb"),
        (["RULE:[1:$1]s/(an)(a)/$2-$1/g/U"], "banana@HOME", "BA-ANNA"),
        (["RULE:[1:user-$1-$0]s/HOME/x/"], "bob@HOME", "user-bob-x"),
    ],
)
def test_a_users_name(rules, principal, expected):
    assert LocalNames(rules).name(principal, "HOME") == expected


@each_row(
    ("rules", "principal", "why"),
    [
        (["DEFAULT"], "alice@AWAY", r"no rule of sasl\.kerberos\.principal\.to\.local\.rules fits the Kerberos name 'alice@AWAY'"),
        (["RULE:[2:$1]"], "alice@HOME", "no rule"),
        (["RULE:[1:$1](b.*)"], "alice@HOME", "no rule"),
        (["RULE:[1:$1@$0]", "DEFAULT"], "alice@HOME", "'alice@HOME' is not simple after rule"),
        (["DEFAULT"], "a/b/c@HOME", "not a Kerberos name of one or two parts"),
        (["DEFAULT"], r"a\@b@HOME", "not a Kerberos name"),
        (["DEFAULT"], "", "not a Kerberos name"),
        (["DEFAULT"], "@HOME", "makes an empty user name"),
        (["RULE:[1:$1]s/.*//"], "alice@HOME", "makes an empty user name"),
        ([], "alice@HOME", "no rule"),
    ],
)
def test_who_has_no_name(rules, principal, why):
    with pytest.raises(SaslAuthentication, match=why):
        LocalNames(rules).name(principal, "HOME")


@each_row(
    "rule",
    ["", "default", "DEFAULT/L", "RULE:[:$1]", "RULE:[1:$2]", "RULE:[1:$]", "RULE:[1:$1](", "RULE:[1:$1](()", "RULE:[1:$1]s/a/$3/",
     "RULE:[1:$1]s/a/b", "RULE:[1:$1]/X", "RULE:[1:$1]([a-z&&[b]])"],
)  # fmt: skip
def test_rules_that_are_none(rule):
    with pytest.raises(ConfigError, match="sasl_kerberos_principal_to_local_rules"):
        LocalNames([rule])
