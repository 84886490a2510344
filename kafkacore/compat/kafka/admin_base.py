"""Settings of kafka-python's KafkaAdminClient, and how its calls ask: by the engine's admin client, whose requests find their broker.

kafka-python hands out answers of brokers as dicts with Kafka's field names; `as_dict` makes these of the engine's messages.

Source: kafka.admin.client, kafka-python 3.0.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, ClassVar, Self

from kafkacore.admin import KafkaAdminClient as Engine
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.admin_types import ACLOperation
from kafkacore.compat.kafka.common_settings import COMMON, COMMON_DEFAULTS, engine_settings
from kafkacore.compat.settings import Kind, NoEffect, Own
from kafkacore.protocol import Struct
from kafkacore.types import TopicPartition

NO_OPERATIONS = -(2**31)
"""What brokers say that were not asked for the operations that a principal may do."""

ADMIN_SETTINGS: dict[str, Kind] = {
    **COMMON,
    "bootstrap_timeout_ms": Own("making a client waits so long for a broker"),
    "max_in_flight_requests_per_connection": NoEffect("each call has its request in flight at each broker that it asks"),
}


def as_dict(message: Any) -> Any:
    """A message as kafka-python shows it: dicts by field, lists, topic ids as UUID, operations as names."""
    if isinstance(message, Struct):
        return {_field(name): _shown(name, value) for name, value in zip(message.FIELDS, message._values(), strict=True)}
    if isinstance(message, (list, tuple)):
        return [as_dict(each) for each in message]
    return message


def _field(name: str) -> str:
    return "authorized_operations" if name in ("topic_authorized_operations", "cluster_authorized_operations") else name


def _shown(name: str, value: Any) -> Any:
    if name == "topic_id":
        return uuid.UUID(bytes=bytes(value))
    if name.endswith("authorized_operations"):
        return None if value == NO_OPERATIONS else [each.name for each in ACLOperation if each > 2 and value >> each & 1]
    return as_dict(value)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def error_classes(results: Any) -> dict[Any, Any]:
    """The engine's results by item, as kafka-python's error classes: NoError where all went well."""
    found: dict[Any, Any] = dict.fromkeys(results.succeeded, errors.NoError)
    return found | {item: type(errors.of(error)) for item, error in results.errors.items()}


class AdminBase:
    """What the calls share."""

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {
        **{name: value for name, value in COMMON_DEFAULTS.items() if name in ADMIN_SETTINGS},
        "client_id": "kafka-python-kafkacore",
    }

    def __init__(self, **configs: Any) -> None:
        unknown = set(configs) - set(self.DEFAULT_CONFIG)
        if unknown:
            raise errors.KafkaConfigurationError(f"Unrecognized configs: {unknown}")
        self.config = {**self.DEFAULT_CONFIG, **configs}
        settings = engine_settings(ADMIN_SETTINGS, self.DEFAULT_CONFIG, configs)
        with errors.translated():
            self._admin = Engine(**settings)
            try:
                self._admin.describe_cluster(timeout=self.config["bootstrap_timeout_ms"] / 1000)
            except BaseException:
                self._admin.close()
                raise

    def close(self) -> None:
        """Closes all connections; again does nothing."""
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        self.close()

    def _ms(self, timeout_ms: float | None) -> int:
        return int(timeout_ms or self.config["request_timeout_ms"])

    def _seconds(self, timeout_ms: float | None) -> float:
        return self._ms(timeout_ms) / 1000

    def _send(
        self,
        api: type[Any],
        build: Callable[[int], Any],
        timeout_ms: float | None = None,
        *,
        node_id: int | None = None,
        to_controller: bool = False,
    ) -> Any:
        """One request and its answer: from any broker, from one, or from the controller."""
        with errors.translated():
            if node_id is None:
                return self._admin._ask(api, build, self._ms(timeout_ms), to_controller=to_controller)
            asked = self._admin._ask_brokers({node_id: (api, build)}, self._ms(timeout_ms))[node_id]
            if asked.error is not None:
                raise asked.error
            return asked.response

    def _brokers(self, given: Iterable[int] | None) -> list[int]:
        if given is not None:
            return list(given)
        with errors.translated():
            return [node.id for node in self._admin._nodes(self._ms(None))]


def check(codes: Iterable[tuple[int, str | None, str]], ignored: tuple[int, ...] = ()) -> None:
    """Raises the error of the first (code, message, what) that is one."""
    for code, message, what in codes:
        if code and code not in ignored:
            raise errors.for_code(code)(f"{what}: {message}" if message else what)
