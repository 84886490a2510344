"""A real cluster whose brokers err on order, for tests of what clients do then: `World.errs` puts answers before an API."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaProducer
from kafkacore import protocol as p
from kafkacore.admin import KafkaAdminClient
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import NewTopic

VALUES = [b"a", b"b", b"c"]

QUICK = {
    "retry_backoff_ms": 1, "retry_backoff_max_ms": 4, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 4,
    "allow_auto_create_topics": False,
}  # fmt: skip
CONSUMER = {**QUICK, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 5}
PRODUCER = {**QUICK, "linger_ms": 0}
ADMIN = {name: value for name, value in QUICK.items() if name != "allow_auto_create_topics"}


class World:
    """A cluster whose brokers can be ordered to err, and what is on it: "t", which errors are about, and "other", which they are not."""

    def __init__(self, **options: Any) -> None:
        self.cluster = EmbeddedCluster(config={"max.incremental.fetch.session.cache.slots": "0"}, **options).start()
        self.bootstrap = self.cluster.bootstrap_servers
        self.security: dict[str, Any] = {}
        if (users := options.get("users")) is not None:
            ((name, password),) = users.items()
            self.security = {
                "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": name, "sasl_password": password,
                "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 40,  # long enough for a producer to see why it waits
            }  # fmt: skip
        self.names = itertools.count()
        self.ids: dict[str, bytes] = {}
        self.answered = 0
        self.left = 0

    def create(self, *topics: str, partitions: int = 1) -> None:
        with KafkaAdminClient(bootstrap_servers=self.bootstrap, **ADMIN | self.security) as admin:
            admin.create_topics([NewTopic(topic, partitions) for topic in topics]).check()
            self.ids |= {name: found.topic_id for name, found in admin.describe_topics(topics).check().items()}

    def fill(self, *topics: str) -> None:
        with KafkaProducer(bootstrap_servers=self.bootstrap, **PRODUCER | self.security) as filling:
            for sent in [filling.send_many(topic, VALUES) for topic in topics]:
                assert not sent.result(60).errors

    def new_topic(self) -> str:
        return f"new-{next(self.names)}"

    def name(self, topic: Any) -> str:
        """A topic of a request, which newer versions name by its id."""
        return topic if isinstance(topic, str) else next((name for name, id_ in self.ids.items() if id_ == topic), "")

    @contextlib.contextmanager
    def errs(self, api: str, answer: Callable[[World, Any], Any], times: int) -> Iterator[None]:
        """The first `times` requests of an API that concern "t" get `answer`; None from it leaves the request alone."""
        self.answered, self.left = 0, times

        def control(request: Any) -> Any:
            if not self.left:
                return None
            reply = answer(self, request)
            if reply is not None:
                self.answered += 1
                self.left = max(0, self.left - 1)
            return reply

        self.cluster.control(api, control)
        try:
            yield
        finally:
            self.cluster.control(api, None)


def erring(**options: Any) -> Any:
    """A fixture: a World whose topics have `VALUES`."""

    @pytest.fixture(scope="module")
    def world() -> Iterator[World]:
        made = World(**options)
        try:
            made.create("t", "other")
            made.fill("t", "other")
            yield made
        finally:
            made.cluster.close()

    return world


def about_t(world: World, request: Any) -> bool:
    """Whether a request names "t", or is one that names no topic."""
    if isinstance(request, p.MetadataRequest):
        return request.topics is not None and any(topic.name == "t" for topic in request.topics)
    if isinstance(request, p.FetchRequest):
        return any("t" in (topic.topic, world.name(topic.topic_id)) for topic in request.topics)
    if isinstance(request, p.ListOffsetsRequest):
        return any(topic.name == "t" for topic in request.topics)
    if isinstance(request, p.ProduceRequest):
        return any("t" in (topic.name, world.name(topic.topic_id)) for topic in request.topic_data)
    return True


# ---- answers that err ------------------------------------------------------------------------------------------------------------------


def metadata(
    *, topic: int = 0, partition: int = 0, leader: int = 1, host: str | None = None, port: int = 9092
) -> Callable[[World, Any], Any]:
    """A Metadata answer with an error of the topic, or of its partitions, or with a leader at an address of the answer's own."""

    def answer(world: World, request: p.MetadataRequest) -> Any:
        if not about_t(world, request):
            return None
        own_host, _, own_port = world.bootstrap.partition(",")[0].rpartition(":")
        brokers = [p.MetadataResponseBroker(node_id=1, host=own_host, port=int(own_port))]
        if host is not None:
            brokers.append(p.MetadataResponseBroker(node_id=leader, host=host, port=port))
        topics = []
        for wanted in request.topics or ():
            name = wanted.name or ""
            if name == "t" and topic:
                topics.append(p.MetadataResponseTopic(name=name, error_code=topic))
                continue
            code, node = (partition, leader) if name == "t" else (0, 1)
            part = p.MetadataResponsePartition(
                partition_index=0, error_code=code, leader_id=node, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            topics.append(p.MetadataResponseTopic(name=name, topic_id=world.ids[name], partitions=[part]))
        return p.MetadataResponse(brokers=brokers, controller_id=1, topics=topics)

    return answer


def fetch(code: int) -> Callable[[World, Any], Any]:
    def answer(world: World, request: p.FetchRequest) -> Any:
        if not about_t(world, request):
            return None

        def data(topic: Any, part: Any) -> p.PartitionData:
            return p.PartitionData(
                partition_index=part.partition, error_code=code if "t" in (topic.topic, world.name(topic.topic_id)) else 0, high_watermark=3
            )

        return p.FetchResponse(
            responses=[
                p.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data(topic, q) for q in topic.partitions])
                for topic in request.topics
            ]
        )

    return answer


def list_offsets(code: int) -> Callable[[World, Any], Any]:
    def answer(world: World, request: p.ListOffsetsRequest) -> Any:
        if not about_t(world, request):
            return None

        def found(name: str, part: Any) -> p.ListOffsetsPartitionResponse:
            offset = 1_000 if part.timestamp == -1 else 0
            return p.ListOffsetsPartitionResponse(
                partition_index=part.partition_index, error_code=code if name == "t" else 0, offset=-1 if name == "t" else offset
            )

        return p.ListOffsetsResponse(
            topics=[
                p.ListOffsetsTopicResponse(name=topic.name, partitions=[found(topic.name, q) for q in topic.partitions])
                for topic in request.topics
            ]
        )

    return answer


def produce(code: int) -> Callable[[World, Any], Any]:
    def answer(world: World, request: p.ProduceRequest) -> Any:
        if not about_t(world, request):
            return None

        def refused(topic: Any, part: Any) -> p.PartitionProduceResponse:
            mine = "t" in (topic.name, world.name(topic.topic_id))
            return p.PartitionProduceResponse(
                index=part.index, error_code=code if mine else Code.NOT_LEADER_OR_FOLLOWER, base_offset=-1, log_append_time_ms=-1
            )

        return p.ProduceResponse(
            responses=[
                p.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=[refused(topic, q) for q in topic.partition_data]
                )
                for topic in request.topic_data
            ]
        )

    return answer


def always(reply: Any) -> Callable[[World, Any], Any]:
    return lambda world, request: reply if about_t(world, request) else None


def coordinators(code: int) -> Callable[[World, Any], Any]:
    def answer(_: World, request: p.FindCoordinatorRequest) -> Any:
        keys = request.coordinator_keys
        return p.FindCoordinatorResponse(
            error_code=0 if keys else code,
            node_id=-1,
            coordinators=[p.Coordinator(key=key, node_id=-1, error_code=code) for key in keys or ()],
        )

    return answer
