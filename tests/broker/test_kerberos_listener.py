"""Brokers that take Kerberos tickets: by kafkacore's clients and by others; who the ticket makes them; what fails, and how."""

import contextlib
import os
import threading
from pathlib import Path

import aiokafka
import kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore.config import BrokerConfig
from kafkacore.config_kerberos import KRB5_MODULE, KerberosSettings
from kafkacore.config_security import sasl_listener
from kafkacore.errors import (
    AuthenticationFailedError,
    ConfigError,
    KafkaTimeoutError,
    NetworkError,
    SaslAuthentication,
    TopicAuthorization,
)
from kafkacore.net.kerberos import Initiator
from kafkacore.protocol import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkacore.testing import EmbeddedCluster
from tests.broker.client_calls import CALLS, manage
from tests.kit.inside import sender_of
from tests.kit.kdc import REALM, Realm
from tests.kit.loops import run
from tests.kit.records import take, values_of
from tests.kit.rows import each_row
from tests.kit.wire import Wire

GUARD_S = 60
HOST = "127.0.0.1"
SERVICE = f"kafka/{HOST}@{REALM}"
ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:broker;User:alice"}


@pytest.fixture(scope="module")
def keytabs(realm: Realm) -> dict[str, str]:
    service = realm.principal(f"kafka/{HOST}")
    realm.principal("pulsar/localhost")
    return {"service": service, **{name: realm.principal(name) for name in ("alice", "bob", "svc/web")}}


@pytest.fixture(scope="module")
def cluster(keytabs):
    config = sasl_listener({"alice": "secret"}, keytab=keytabs["service"], principal=SERVICE)
    with EmbeddedCluster(2, config=config | ACLS | {"connection.failed.authentication.delay.ms": 0}) as made:
        yield made


def kerberos_settings(cluster, keytabs, name="alice", **more):
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.principal": name,
        "sasl.kerberos.keytab": keytabs[name],
        **more,
    }


# ---- who comes in


def test_round_trips(cluster, keytabs):
    settings = kerberos_settings(cluster, keytabs)
    cluster.create_topic("round", 2, 1)  # one leader each
    with KafkaProducer(settings) as producer:
        sent = [producer.send("round", b"%d" % n, partition=n).result(60) for n in range(2)]
    with KafkaConsumer(settings) as consumer:
        consumer.assign([TopicPartition("round", n) for n in range(2)])
        for each in sent:
            consumer.seek(TopicPartition("round", each.partition), each.offset)
        assert sorted(values_of(take(consumer, 2))) == [b"0", b"1"]
    assert "round" in manage(settings)


def test_with_the_tickets_of_kinit(cluster, keytabs, realm, tmp_path, monkeypatch):
    realm.kinit("alice", keytabs["alice"], tmp_path / "cache")
    settings = {name: value for name, value in kerberos_settings(cluster, keytabs).items() if not name.startswith("sasl.kerberos")}
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    manage(settings)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'gone'}")
    manage(settings | {"sasl.jaas.config": f'{KRB5_MODULE} required useTicketCache=true ticketCache="{tmp_path / "cache"}";'})
    with pytest.raises(AuthenticationFailedError, match=r"No Kerberos credentials available .*gone"):
        manage(settings)


def test_a_user_is_who_the_ticket_names_for_acls_too(cluster, keytabs):
    cluster.create_topic("closed", 1, 1)
    assert "closed" in manage(kerberos_settings(cluster, keytabs))
    bob = kerberos_settings(cluster, keytabs, "bob")
    assert "closed" not in manage(bob)
    with pytest.raises(TopicAuthorization, match="closed"), KafkaProducer(bob) as producer:
        producer.send("closed", b"v").result(60)


def test_rules_make_the_users_name(keytabs):
    rules = "RULE:[2:$1.$2]s/svc/service/U,RULE:[1:$1](b.*)s/b/d/g,DEFAULT"
    config = sasl_listener({}, keytab=keytabs["service"]) | {"sasl.kerberos.principal.to.local.rules": rules} | ACLS
    for name, user in (("svc/web", "SERVICE.WEB"), ("bob", "dod"), ("alice", "alice")):
        with EmbeddedCluster(config=config | {"super.users": f"User:broker;User:{user}"}) as cluster:
            cluster.create_topic("closed", 1, 1)
            assert "closed" in manage(kerberos_settings(cluster, keytabs, name))
    with EmbeddedCluster(config=config | {"sasl.kerberos.principal.to.local.rules": "RULE:[2:$1]"}) as cluster:
        with pytest.raises(SaslAuthentication, match=r"user 'alice@.*' by 127\.0\.0\.1:\d+ failed: no rule of sasl\.kerberos\.principal"):
            manage(kerberos_settings(cluster, keytabs))


# ---- others' clients


def test_kafka_python_and_aiokafka(cluster, keytabs, realm, tmp_path, monkeypatch):
    realm.kinit("alice", keytabs["alice"], tmp_path / "cache")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    options = {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    with contextlib.closing(kafka.KafkaProducer(**options)) as producer:
        assert producer.send("theirs", b"v").get(60).offset == 0

    async def send():
        # It does not learn the host of a broker before it connects, unless it is given.
        async with aiokafka.AIOKafkaProducer(**options, sasl_kerberos_domain_name=HOST) as producer:
            return (await producer.send_and_wait("theirs", b"v")).offset

    assert run(send) == 1


# ---- what fails


@pytest.mark.timeout(60)  # at once, not when a time-out has ended
@pytest.mark.parametrize("call", CALLS, ids=lambda each: each.__name__)
def test_a_wrong_service_is_an_error_of_the_next_call(cluster, keytabs, call):
    why = rf"'alice@{REALM}' failed: no Kerberos ticket for pulsar/127\.0\.0\.1: Server pulsar/127\.0\.0\.1@{REALM} not found"
    with pytest.raises(AuthenticationFailedError, match=why):
        call(kerberos_settings(cluster, keytabs, **{"sasl.kerberos.service.name": "pulsar"}))


def test_records_wait_for_a_kdc_that_comes_up_later(cluster, keytabs, realm):
    os.utime(keytabs["alice"])  # no ticket that another test has got
    realm.stop()
    try:
        with pytest.raises((NetworkError, KafkaTimeoutError)) as caught, KafkaAdminClient(kerberos_settings(cluster, keytabs)) as admin:
            admin.list_topics(timeout=0.5)
        assert f"Cannot contact any KDC for realm '{REALM}'" in str(caught.value)
        with KafkaProducer(kerberos_settings(cluster, keytabs)) as producer:
            failing = threading.Event()
            client = sender_of(producer).client
            client.on_failure = lambda _node, error, _ready: failing.set() if "Cannot contact any KDC" in error.message else None
            sent = []
            sender = threading.Thread(target=lambda: sent.append(producer.send("late", b"v")))
            sender.start()
            assert failing.wait(GUARD_S)
            realm.start()
            sender.join(GUARD_S)
            assert sent[0].result(GUARD_S).offset == 0
    finally:
        if realm._process is None:
            realm.start()


def test_a_client_comes_in_again_after_its_broker_got_other_keys(keytabs, realm):
    """Old keys are not kept, so the ticket that this process has is good for nothing."""
    keytab = realm.principal(f"rotating/{HOST}")
    config = sasl_listener({}, keytab=keytab, principal=f"rotating/{HOST}@{REALM}")
    with EmbeddedCluster(config=config) as cluster:
        settings = kerberos_settings(cluster, keytabs, **{"sasl.kerberos.service.name": "rotating"})
        manage(settings)
        realm.new_keys(f"rotating/{HOST}")
        Path(keytab).write_bytes(Path(realm.keytab_of(f"rotating/{HOST}")).read_bytes())
        with KafkaAdminClient(settings) as admin:
            with pytest.raises(SaslAuthentication, match=r"ticket is refused: .*; the ticket was for rotating/127\.0\.0\.1"):
                admin.list_topics()
            admin.list_topics()


@each_row(
    ("change", "why"),
    [
        ({"sasl.kerberos.service.name": None}, "GSSAPI needs sasl_kerberos_service_name"),
        ({"gssapi.sasl.jaas.config": None}, "GSSAPI needs gssapi_sasl_jaas_config"),
        ({"gssapi.sasl.jaas.config": "a.B required;"}, "is for Krb5LoginModule, not a.B"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl_kerberos_service_name has no effect without GSSAPI in sasl_enabled_mechanisms"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:x"}, "sasl_kerberos_principal_to_local_rules: 'RULE:x' cannot be used"),
        ({"sasl.kerberos.service.name": "pulsar"}, "is not of the service pulsar"),
    ],
)
def test_wrong_settings_of_brokers(change, why):
    settings = sasl_listener({}, keytab="/k", principal=SERVICE) | change
    with pytest.raises(ConfigError, match=why):
        BrokerConfig.from_user({name: value for name, value in settings.items() if value is not None})


def test_settings_by_listener():
    base = sasl_listener({}, keytab="/k", principal=SERVICE)
    line = base.pop("gssapi.sasl.jaas.config")
    del base["security.inter.broker.protocol"]
    base |= {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "IN",
    }
    both = {f"listener.name.{name}.gssapi.sasl.jaas.config": line for name in ("in", "out")}
    config = BrokerConfig.from_user(base | both)
    assert config.gssapi_keytab() == ("/k", SERVICE)
    assert config.gssapi_keytab() == BrokerConfig.from_user(base | {"gssapi.sasl.jaas.config": line}).gssapi_keytab()
    for change, why in (
        ({"listener.name.out.gssapi.sasl.jaas.config": None}, "listener.name.out.gssapi.sasl.jaas.config is missing"),
        ({"listener.name.open.gssapi.sasl.jaas.config": line}, "listener.name.open.gssapi.sasl.jaas.config has no effect"),
        ({"listener.name.out.gssapi.sasl.jaas.config": line.replace("/k", "/l")}, "must have the same keytab and principal"),
    ):
        with pytest.raises(ConfigError, match=why):
            BrokerConfig.from_user({name: value for name, value in (base | both | change).items() if value is not None})


def test_a_keytab_that_is_not_there_keeps_a_broker_from_starting(realm):
    with pytest.raises(ConfigError, match="keytab '/no/such' cannot be read"), EmbeddedCluster(config=sasl_listener({}, keytab="/no/such")):
        pass


# ---- the wire


@pytest.mark.slow
@given(tokens=st.lists(st.binary(max_size=500), min_size=1, max_size=3), real=st.booleans())
def test_hostile_tokens_end_their_connection_and_nothing_else(cluster, keytabs, tokens, real):
    with Wire(cluster.bootstrap_servers.split(",")[0]) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
        if real:
            first = Initiator(KerberosSettings("kafka", "bob", keytabs["bob"]), HOST).first
            assert wire.ask(SaslAuthenticateRequest(auth_bytes=first), 2).error_code == 0
            assert wire.ask(SaslAuthenticateRequest(auth_bytes=b""), 2).error_code == 0
        assert wire.ask(SaslAuthenticateRequest(auth_bytes=tokens[0]), 2).error_code == 58
        assert wire.closed_by_peer
