"""Apache Kafka with StandardAuthorizer, for the tests marked `kafka`."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from tests.kit.free_ports import free_port
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import until

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecuredKafka(KafkaServer):
    """One node; brokers and controller reach each other as User:ANONYMOUS, by PLAINTEXT.

    Args:
        super_user: who may do everything, beside the node itself.
        users: passwords by name, of those who may come in by SASL_PLAINTEXT with PLAIN.
        settings: further broker settings.

    Attributes:
        sasl_address: of that listener.
    """

    def __init__(self, super_user: str, users: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        super().__init__(
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users=f"User:{super_user};User:ANONYMOUS",
            **{name.replace(".", "_"): value for name, value in settings.items()},
        )
        self.sasl_address = f"127.0.0.1:{free_port()}"
        text = self.properties.read_text()
        plaintext = f"PLAINTEXT://{self.bootstrap_servers}"
        for setting in ("listeners", "advertised.listeners"):
            text = text.replace(f"\n{setting}={plaintext}", f"\n{setting}={plaintext},SASL://{self.sasl_address}")
        text = text.replace("PLAINTEXT:PLAINTEXT\n", "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT\n")
        passwords = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        text += "listener.name.sasl.sasl.enabled.mechanisms=PLAIN\n"
        text += f"listener.name.sasl.plain.sasl.jaas.config={PLAIN} required {passwords};\n"
        self.properties.write_text(text)

    def start(self, *options: str) -> None:
        super().start(*options)
        host, port = self.sasl_address.split(":")

        def is_listening() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0

        until(is_listening)
