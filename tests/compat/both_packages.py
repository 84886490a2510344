"""What comparisons of two packages share: where they run, a topic for each side of a case, and what was seen without that topic's name."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, NewTopic
from kafkacore import errors as engine_errors
from kafkacore.admin.topics import TopicsSeen
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import KafkaServer, why_unavailable

GUARD_S = 90
CLUSTERS = ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
"""Parameters of a fixture that gives `cluster_of(request.param)`."""


@contextlib.contextmanager
def cluster_of(kind: str, **config: Any) -> Iterator[str]:
    """A cluster, as its bootstrap servers.

    Args:
        kind: embedded or kafka.
        config: settings of the broker, with underscores.
    """
    if kind == "embedded":
        with EmbeddedCluster(config=config) as started:
            yield started.bootstrap_servers
        return
    if reason := why_unavailable():
        pytest.skip(reason)
    with KafkaServer(**{name: str(value).lower() if isinstance(value, bool) else value for name, value in config.items()}) as server:
        yield server.bootstrap_servers


def own_topic(case: Callable[..., Any], package: str, servers: str) -> str:
    """The topic of a case and a package: made, with two partitions, and every broker has heard of it."""
    topic = f"{case.__name__.replace('_', '-')}-{'ours' if package.startswith('kafkacore') else 'real'}"
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)]).check()
        end = time.monotonic() + GUARD_S
        while any(topic not in seen.by_name or isinstance(seen.by_name[topic], Exception) for seen in heard(admin, topic)):
            assert time.monotonic() < end
    return topic


def heard(admin: KafkaAdminClient, topic: str) -> list[TopicsSeen]:
    return list(admin.describe_topics_by_broker([topic]).check().values())


def plain(value: Any, topic: str) -> Any:
    """Without the topic's own name."""
    if isinstance(value, str):
        return value.replace(topic, "TOPIC")
    if isinstance(value, (list, tuple)):
        return [plain(each, topic) for each in value]
    if isinstance(value, dict):
        return {str(plain(key, topic)): plain(each, topic) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return {str(plain(each, topic)) for each in value}
    return value


def errors_of_the_engine() -> list[engine_errors.KafkaError]:
    """One of each class."""
    classes = [cls for cls in vars(engine_errors).values() if inspect.isclass(cls) and issubclass(cls, engine_errors.KafkaError)]
    return [cls("what happened", topic="t") for cls in classes]
