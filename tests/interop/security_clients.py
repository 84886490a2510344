"""Clients that write a record and read it back in a group over a listener, and what became of that in a word.

    ok            the record came back
    password      the broker refused the user's password
    certificate   one side refused the other's certificate, or missed it
    topic         the topic may not be written or read

Each client says it in its own way: by the class of an exception, a code, or what it prints. What none of these explains stays as it is.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

from kafkacore import KafkaConsumer, KafkaProducer, errors
from tests.kit.java_tools import JavaTools

WAIT_S = 60.0
VALUE = b"a value"


class Access(NamedTuple):
    """How a client gets in.

    Attributes:
        address: of the listener.
        protocol: the listener's.
        ca: path of the authority it trusts, for TLS.
        own: paths of its chain and key; none without.
        mechanism, user, password: for SASL.
    """

    address: str
    protocol: str
    ca: str
    own: tuple[str, ...] = ()
    mechanism: str = ""
    user: str = ""
    password: str = ""

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")


def word_for(text: str) -> str:
    """The outcome that a text of a client tells of; the text where it tells of none."""
    for word, pattern in (
        ("topic", r"TopicAuthorization|TOPIC_AUTHORIZATION|Not authorized to access topics"),
        ("password", r"SaslAuthentication|Authentication failed|Invalid credentials|SASL_AUTHENTICATION|AuthenticationFailed"),
        ("certificate", r"(?i)certificate|SSL.*alert|tlsv1[23]? alert|SslAuthentication|PKIX|ssl handshake"),
    ):
        if re.search(pattern, text):
            return word
    return text


# ---- kafkacore


def kafkacore(access: Access, topic: str, group: str) -> str:
    settings: dict[str, Any] = {"bootstrap_servers": access.address, "security_protocol": access.protocol}
    if access.tls:
        settings |= {"ssl_cafile": access.ca, **dict(zip(("ssl_certfile", "ssl_keyfile"), access.own, strict=bool(access.own)))}
    if access.sasl:
        settings |= {"sasl_mechanism": access.mechanism, "sasl_username": access.user, "sasl_password": access.password}
    try:
        with KafkaProducer(settings) as producer:
            producer.send(topic, VALUE).result(WAIT_S)
        with KafkaConsumer(topic, **settings, group_id=group, auto_offset_reset="earliest") as consumer:
            [[record]] = consumer.poll(WAIT_S, max_records=1).values()
            consumer.commit()
    except errors.TopicAuthorization:
        return "topic"
    except errors.SslAuthenticationFailed:
        return "certificate"
    except errors.SaslAuthentication:
        return "password"
    return "ok" if record.value == VALUE else repr(record)


# ---- confluent-kafka


def confluent(access: Access, topic: str, group: str) -> str:
    said: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": access.address, "security.protocol": access.protocol, "log_level": 0,
        "error_cb": lambda error: said.append(f"{error.name()}: {error.str()}"), "topic.metadata.propagation.max.ms": 0,
    }  # fmt: skip
    if access.tls:
        settings["ssl.ca.location"] = access.ca
        settings |= dict(zip(("ssl.certificate.location", "ssl.key.location"), access.own, strict=bool(access.own)))
    if access.sasl:
        settings |= {"sasl.mechanism": access.mechanism, "sasl.username": access.user, "sasl.password": access.password}
    delivered: list[Any] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, VALUE, on_delivery=lambda error, _: delivered.append(error))
    end = time.monotonic() + WAIT_S
    while not delivered and (not said or word_for(said[-1]) == said[-1]) and time.monotonic() < end:
        producer.poll(0.05)
    if not delivered:
        producer.purge()
        producer.flush(1)
        return word_for(" ".join(said))
    if delivered[0] is not None:
        return word_for(f"{delivered[0].name()}: {delivered[0].str()}")
    consumer = confluent_kafka.Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S)
        if message is None or message.error() is not None:
            return word_for(" ".join([*said, "" if message is None else message.error().name()]))
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
    return "ok" if message.value() == VALUE else repr(message.value())


# ---- Kafka's own tools


def java(tools: JavaTools, access: Access, topic: str, group: str, directory: Path) -> str:
    lines = {"security.protocol": access.protocol, "allow.auto.create.topics": "false"}
    if access.tls:
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": access.ca}
        if access.own:
            store = directory / "own.pem"
            store.write_text("".join(Path(each).read_text() for each in reversed(access.own)))
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    if access.sasl:
        module = "plain.PlainLoginModule" if access.mechanism == "PLAIN" else "scram.ScramLoginModule"
        line = f'org.apache.kafka.common.security.{module} required username="{access.user}" password="{access.password}";'
        lines |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": line}
    config = directory / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    where = ("--bootstrap-server", access.address)
    ran = tools.run("VerifiableProducer", *where, "--topic", topic, "--max-messages", 1, "--value-prefix", 7, "--command-config", config)
    if "producer_send_success" not in ran.out:
        return word_for(ran.out + ran.err)
    reading = ("--from-beginning", "--max-messages", 1, "--timeout-ms", int(WAIT_S * 1000), "--group", group, "--command-config", config)
    ran = tools.run("consumer.ConsoleConsumer", *where, "--topic", topic, *reading)
    return "ok" if ran.code == 0 and ran.out in (f"{VALUE.decode()}\n", "7.0\n") else word_for(ran.out + ran.err)


CLIENTS = {"kafkacore": kafkacore, "confluent-kafka": confluent}
