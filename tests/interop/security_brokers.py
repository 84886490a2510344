"""One secured broker twice, embedded and as Apache Kafka: the same listeners, certificates, users and ACLs.

PLAIN    PLAINTEXT       everybody is User:ANONYMOUS
SASL     SASL_PLAINTEXT  PLAIN, SCRAM-SHA-256, SCRAM-SHA-512: User:alice
TLS      SSL             User:ANONYMOUS
MUTUAL   SSL             with a certificate: User:alice; brokers, controller and administration as User:broker, a super user
SASLTLS  SASL_SSL        as SASL
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafkacore import KafkaAdminClient, NewTopic
from kafkacore.admin import Acl
from kafkacore.testing import EmbeddedCluster
from kafkacore.testing.certificates import Certificates
from tests.kit.free_ports import free_port
from tests.kit.kafka_server import KafkaServer
from tests.kit.rivals import applied
from tests.kit.waiting import until

PASSWORD = "alice's secret"
PROTOCOLS = {"PLAIN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "SASLTLS": "SASL_SSL"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES = "org.apache.kafka.common.security."
OPEN, DENIED = "open", "denied"
"""A topic that User:alice and User:ANONYMOUS may write and read; one that they may describe. Groups that begin with OPEN are theirs."""
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=test,.*$/$1/,DEFAULT",
    "listener.name.mutual.ssl.client.auth": "required",
    "inter.broker.listener.name": "MUTUAL",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
}


class Secured(NamedTuple):
    """Where a secured broker is.

    Attributes:
        addresses: by listener.
        files: paths of PEM files: the authority "ca", another "foreign", and chain and key of "alice", "stranger" and "broker".
    """

    addresses: Mapping[str, str]
    files: Mapping[str, tuple[str, ...]]


@contextlib.contextmanager
def certificates() -> Iterator[tuple[dict[str, str], dict[str, tuple[str, ...]]]]:
    """The brokers' TLS settings under Kafka's names, and the files of clients."""
    with contextlib.ExitStack() as ends:
        ours, others = Certificates(["127.0.0.1"]), Certificates(["127.0.0.1"])
        for each in (ours, others):
            ends.callback(each.close)
        files: dict[str, tuple[str, ...]] = {"ca": (ours.ca,), "foreign": (others.ca,), "stranger": others.of_user("alice")}
        files |= {name: ours.of_user(name) for name in ("alice", "broker")}
        yield {name.replace("_", "."): value for name, value in ours.settings.items()}, files


def _listeners(ports: Mapping[str, int]) -> dict[str, str]:
    every = [f"{name}://127.0.0.1:{ports.get(name, 0)}" for name in PROTOCOLS]
    return {"listeners": ",".join(every), "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in PROTOCOLS.items())}


def _prepared(where: Secured) -> Secured:
    """Topics, users and ACLs, made by the super user."""
    chain, key = where.files["broker"]
    own = {"ssl_cafile": where.files["ca"][0], "ssl_certfile": chain, "ssl_keyfile": key}
    with KafkaAdminClient(bootstrap_servers=where.addresses["MUTUAL"], security_protocol="SSL", **own) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in (OPEN, DENIED)]).check()
        admin.alter_user_scram_credentials({("alice", mechanism): PASSWORD for mechanism in MECHANISMS[1:]}).check()
        for user in ("User:alice", "User:ANONYMOUS"):
            allowed = [Acl("topic", OPEN, user, operation) for operation in ("read", "write", "describe")]
            allowed += [Acl("topic", DENIED, user, "describe"), Acl("group", OPEN, user, "read", pattern_type="prefixed")]
            admin.create_acls([*allowed, Acl("topic", DENIED, user, "read", permission="deny")]).check()
        applied(admin)
        leaders = {(name, 0): "latest" for name in (OPEN, DENIED)}
        until(lambda: not admin.list_offsets(leaders).errors, "the topics are led")
        assert len(admin.describe_acls()) == 12 and not admin.describe_user_scram_credentials(["alice"]).errors
    return where


@contextlib.contextmanager
def embedded() -> Iterator[Secured]:
    """The embedded broker."""
    line = f'{MODULES}plain.PlainLoginModule required username="broker" password="b" user_broker="b" user_alice="{PASSWORD}";'
    with certificates() as (tls, files):
        config: dict[str, Any] = {**SETTINGS, **tls, **_listeners({}), "sasl.jaas.config": line}
        with EmbeddedCluster(config=config) as cluster:
            yield _prepared(Secured({name: cluster.listener(name) for name in PROTOCOLS}, files))


@contextlib.contextmanager
def kafka() -> Iterator[Secured]:
    """Apache Kafka. Its controller's listener wants certificates as well."""
    ports = {name: free_port() for name in PROTOCOLS}
    with certificates() as (tls, files):
        server = KafkaServer()
        given = dict(each.split("=", 1) for each in server.properties.read_text().splitlines() if each)
        controller = next(each for each in given["listeners"].split(",") if each.startswith("CONTROLLER"))
        del given["advertised.listeners"]
        server.port = ports["PLAIN"]
        listeners = _listeners(ports)
        settings = {
            **given,
            **SETTINGS,
            **{name: value.replace("\n", "\\n") for name, value in tls.items()},
            "listeners": f"{listeners['listeners']},{controller}",
            "listener.security.protocol.map": f"{listeners['listener.security.protocol.map']},CONTROLLER:SSL",
            "listener.name.controller.ssl.client.auth": "required",
        }
        for name in ("sasl", "sasltls"):
            line = f'{MODULES}plain.PlainLoginModule required user_alice="{PASSWORD}";'
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = line
            for mechanism in MECHANISMS[1:]:
                settings[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = f"{MODULES}scram.ScramLoginModule required;"
        server.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with server:
            yield _prepared(Secured({name: f"127.0.0.1:{port}" for name, port in ports.items()}, files))
