"""Kerberos in settings: Java's login module, librdkafka's names, and what contradicts."""

import pytest

from kafkacore.config import ClientConfig, ProducerConfig
from kafkacore.config_kerberos import KRB5_MODULE, BrokerKeytab, KerberosSettings, broker_keytab
from kafkacore.errors import ConfigError
from tests.kit.rows import each_row

BASE = {"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
KEYTAB = f'{KRB5_MODULE} required useKeyTab=true storeKey=true keyTab="/etc/alice.keytab" principal="alice@R"'


def jaas(options, **more):
    return {"sasl.jaas.config": f"{KRB5_MODULE} required {options};", **more}


@each_row(
    ("settings", "expected"),
    [
        ({}, KerberosSettings("kafka", None, None, None)),
        ({"sasl.kerberos.service.name": "stream"}, KerberosSettings("stream")),
        ({"sasl.kerberos.principal": "alice@R"}, KerberosSettings("kafka", "alice@R")),
        ({"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "alice"}, KerberosSettings("kafka", "alice", "/k")),
        ({"sasl.jaas.config": KEYTAB + ";"}, KerberosSettings("kafka", "alice@R", "/etc/alice.keytab")),
        ({"sasl.jaas.config": KEYTAB + " serviceName=stream;"}, KerberosSettings("stream", "alice@R", "/etc/alice.keytab")),
        (jaas("useTicketCache=true doNotPrompt=true"), KerberosSettings("kafka")),
        (jaas('useTicketCache=true ticketCache="/tmp/c" principal=bob'), KerberosSettings("kafka", "bob", None, "/tmp/c")),
        (jaas("useTicketCache=true", **{"sasl.kerberos.service.name": "x"}), KerberosSettings("x")),
        (jaas("useKeyTab=TRUE keyTab='file:/k' principal=a debug=false renewTGT=false"), KerberosSettings("kafka", "a", "/k")),
        (jaas("useKeyTab=true keyTab='FILE:///k' principal=a"), KerberosSettings("kafka", "a", "/k")),
    ],
)
def test_whose_ticket(settings, expected):
    found = ClientConfig.from_user({**BASE, **settings}).sasl_settings()
    assert (found.mechanism, found.kerberos, found.username) == ("GSSAPI", expected, expected.principal or "")


@each_row(
    ("settings", "why"),
    [
        (jaas("principal=a"), "needs either useKeyTab=true or useTicketCache=true"),
        (jaas("useKeyTab=true useTicketCache=true keyTab=k principal=a"), "needs either"),
        (jaas("useKeyTab=true principal=a"), "useKeyTab=true needs keyTab, a file, and principal"),
        (jaas("useKeyTab=true keyTab=k"), "useKeyTab=true needs keyTab, a file, and principal"),
        (jaas("useKeyTab=yes keyTab=k principal=a"), "useKeyTab must be true or false"),
        (jaas("useKeyTab=true keyTab=k principal=a ticketCache=c"), "ticketCache has no effect without useTicketCache=true"),
        (jaas("useTicketCache=true keyTab=k"), "keyTab has no effect without useKeyTab=true"),
        (jaas("useTicketCache=true renewTGT=true"), "renewTGT=true has no effect here: kinit -R renews tickets"),
        (jaas("useTicketCache=true debug=true"), "debug=true has no effect here: KRB5_TRACE"),
        (jaas("useTicketCache=true refreshKrb5Config=false"), "refreshKrb5Config=false has no effect here"),
        (jaas("useTicketCache=true storePass=true"), "option storePass is not known for Krb5LoginModule"),
        (jaas("useTicketCache=true serviceName=a", **{"sasl.kerberos.service.name": "b"}), "serviceName=a, and sasl_kerberos_.* is b"),
        (jaas("useTicketCache=true", **{"sasl.kerberos.keytab": "k"}), "sasl_kerberos_keytab and sasl_jaas_config exclude each other"),
        (jaas("useTicketCache=true", **{"sasl.kerberos.principal": "k"}), "sasl_kerberos_principal and sasl_jaas_config exclude"),
        ({"sasl.kerberos.service.name": "kafka/host"}, "the part of a broker's principal before the slash"),
        ({"sasl.kerberos.service.name": ""}, "the part of a broker's principal before the slash"),
        ({"sasl.kerberos.keytab": ""}, "sasl_kerberos_keytab must not be empty"),
        ({"sasl.username": "alice"}, "sasl_username has no effect with sasl_mechanism=GSSAPI"),
        ({"sasl.oauthbearer.scope": "x"}, "sasl_oauthbearer_scope has no effect with sasl_mechanism=GSSAPI"),
        ({"sasl.mechanism": "PLAIN", "sasl.kerberos.keytab": "x"}, "sasl_kerberos_keytab has no effect with sasl_mechanism=PLAIN"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.kerberos.keytab": "x"}, "no effect with sasl_mechanism=OAUTHBEARER"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": KEYTAB + ";"}, "sasl_jaas_config is for GSSAPI, and sasl_mechanism is PLAIN"),
    ],
)
def test_what_contradicts_about_tickets(settings, why):
    with pytest.raises(ConfigError, match=why):
        ProducerConfig.from_user({**BASE, **settings})


KEYS = {"useKeyTab": "true", "storeKey": "true", "keyTab": "/k", "principal": "kafka/host@R"}


def test_a_brokers_keys():
    assert broker_keytab("kafka", KEYS) == BrokerKeytab("/k", "kafka/host@R")
    assert broker_keytab(None, KEYS | {"serviceName": "kafka"}) == BrokerKeytab("/k", "kafka/host@R")
    assert broker_keytab("kafka", KEYS | {"principal": "*", "isInitiator": "false"}) == BrokerKeytab("/k", None)


@each_row(
    ("service", "change", "why"),
    [
        (None, {}, "needs sasl_kerberos_service_name"),
        ("kafka", {"principal": ""}, "needs principal"),
        ("stream", {}, "principal kafka/host@R is not of the service stream"),
        ("kafka", {"keyTab": ""}, "needs useKeyTab=true and keyTab"),
        ("kafka", {"useKeyTab": "false"}, "needs useKeyTab=true and keyTab"),
        ("kafka", {"useTicketCache": "true"}, "needs useKeyTab=true and keyTab"),
        ("kafka", {"serviceName": "stream"}, "serviceName=stream"),
    ],
)
def test_a_brokers_wrong_keys(service, change, why):
    with pytest.raises(ConfigError, match=why):
        broker_keytab(service, KEYS | change)
