"""What clients may do with internal topics: the embedded broker answers as Apache Kafka does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import protocol as p
from kafkacore.broker.internal_topics import GROUP_TOPIC, METADATA_TOPIC, TRANSACTION_TOPIC
from kafkacore.records import BatchBuilder
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import until
from tests.kit.wire import Wire, produce_request

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]

INTERNAL = (GROUP_TOPIC, TRANSACTION_TOPIC)
SETTINGS = {"offsets.topic.num.partitions": 5, "transaction.state.log.num.partitions": 5}


class NamedWire(Wire):
    """A connection of a client with an id of its own."""

    def __init__(self, address: str, client_id: str) -> None:
        super().__init__(address)
        self.client_id = client_id

    def frame(self, request: Any, version: int) -> bytes:
        self.correlation_id += 1
        return b"".join(bytes(part) for part in p.encode_request(request, version, self.correlation_id, self.client_id))


def keyed() -> memoryview:
    builder = BatchBuilder(max_bytes=1 << 20)
    builder.append(b"v", b"\x00\x63k", timestamp_ms=int(time.time() * 1000))
    return memoryview(bytes(builder.build()))


def described(wire: Wire, name: str) -> dict[str, str]:
    resource = p.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    (answer,) = wire.ask(p.DescribeConfigsRequest(resources=[resource]), 4).results
    return {each.name: each.value for each in answer.configs if each.config_source == 1}


def answers(address: str) -> Iterator[tuple[str, Any]]:
    """(question, answer); the topics are made by Metadata requests, which Kafka answers before they exist."""
    wire = NamedWire(address, "plain")
    for name in (*INTERNAL, METADATA_TOPIC):
        asked = p.MetadataRequest(topics=[p.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)

        def shown(name: str = name, asked: Any = asked) -> Any:
            topic = wire.ask(asked, 9).topics[0]
            has_leaders = not topic.error_code and all(part.leader_id >= 0 for part in topic.partitions)
            return topic if has_leaders or name == METADATA_TOPIC else None

        topic = until(shown, "the topic is made")
        if name != METADATA_TOPIC:  # Kafka shows leaders some moments before they lead
            wanted = [p.ListOffsetsPartition(partition_index=part.partition_index, timestamp=-1) for part in topic.partitions]
            ends = p.ListOffsetsRequest(replica_id=-1, topics=[p.ListOffsetsTopic(name=name, partitions=wanted)])
            until(lambda ends=ends: not any(part.error_code for part in wire.ask(ends, 7).topics[0].partitions), "the leaders lead")
        yield f"Metadata {name}", (topic.error_code, len(topic.partitions), topic.is_internal)
        yield f"settings of {name}", described(wire, name)
    for name in (*INTERNAL, METADATA_TOPIC):
        for client_id in ("plain", "__admin_client"):
            with NamedWire(address, client_id) as other:
                answer = other.ask(produce_request(keyed(), topic=name), 9)
                yield f"Produce {name} {client_id}", answer.responses[0].partition_responses[0].error_code
        part = p.DeleteRecordsPartition(partition_index=0, offset=0)
        deleted = wire.ask(p.DeleteRecordsRequest(topics=[p.DeleteRecordsTopic(name=name, partitions=[part])], timeout_ms=3000), 2)
        yield f"DeleteRecords {name}", deleted.topics[0].partitions[0].error_code
        topics = [p.AddPartitionsToTxnTopic(name=name, partitions=[0])]
        request = p.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=topics
        )
        added = wire.ask(request, 3).results_by_topic_v3_and_below
        yield f"AddPartitionsToTxn {name}", added[0].results_by_partition[0].partition_error_code
        created = wire.ask(p.CreateTopicsRequest(topics=[p.CreatableTopic(name=name, num_partitions=1, replication_factor=1)]), 5)
        yield f"CreateTopics {name}", created.topics[0].error_code
        wider = p.CreatePartitionsRequest(topics=[p.CreatePartitionsTopic(name=name, count=6, assignments=None)], timeout_ms=5000)
        yield f"CreatePartitions {name}", wire.ask(wider, 2).results[0].error_code
        setting = p.IncrementalAlterableConfig(name="min.insync.replicas", config_operation=0, value="1")
        altered = p.IncrementalAlterConfigsResource(resource_type=2, resource_name=name, configs=[setting])
        yield f"IncrementalAlterConfigs {name}", wire.ask(p.IncrementalAlterConfigsRequest(resources=[altered]), 1).responses[0].error_code
        moved = p.ReassignableTopic(name=name, partitions=[p.ReassignablePartition(partition_index=0, replicas=[1])])
        reassigned = wire.ask(p.AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=5000), 0)
        yield f"AlterPartitionReassignments {name}", [part.error_code for topic in reassigned.responses for part in topic.partitions]
        removed = wire.ask(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=name)], timeout_ms=5000), 6)
        yield f"DeleteTopics {name}", removed.responses[0].error_code
    wire.sock.close()


def test_clients_may_do_with_internal_topics_what_kafka_lets_them_do() -> None:
    with KafkaServer(**SETTINGS) as kafka:
        expected = dict(answers(kafka.bootstrap_servers))
    with EmbeddedCluster(config=SETTINGS) as embedded:
        found = dict(answers(embedded.bootstrap_servers))
    assert found == expected
