"""How fast do messages become objects and frames, against aiokafka and kafka-python?

Decoding a MetadataResponse of 100 topics x 10 partitions (version 5, 48 kB), and framing a ProduceRequest of four partitions with 1 MiB of
records each. kafka-python and aiokafka copy the records into the frame, ours refers to them: the framing rows say what a send costs
before the system call, not how fast memory is.
"""

from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.produce import ProduceRequest_v7
from harness import Table, arguments, repeat, report, run_cases
from kafka.protocol.metadata import MetadataResponse as PeerMetadataResponse
from kafka.protocol.producer import ProduceRequest as PeerProduceRequest

from kafkacore import protocol

BATCH = bytes(1 << 20)


def metadata_response() -> protocol.MetadataResponse:
    partitions = [
        protocol.MetadataResponsePartition(partition_index=p, leader_id=p % 3, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2])
        for p in range(10)
    ]
    return protocol.MetadataResponse(
        brokers=[protocol.MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.com", port=9092) for n in range(3)],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[protocol.MetadataResponseTopic(name=f"a-topic-with-a-name-{t:03}", partitions=partitions) for t in range(100)],
    )


def produce_request() -> protocol.ProduceRequest:
    partitions = [protocol.PartitionProduceData(index=p, records=BATCH) for p in range(4)]
    return protocol.ProduceRequest(
        acks=-1, timeout_ms=30000, topic_data=[protocol.TopicProduceData(name="flights", partition_data=partitions)]
    )


def aiokafka_frame() -> bytes:
    frame: bytes = ProduceRequest_v7(None, -1, 30000, [("flights", [(p, BATCH) for p in range(4)])]).encode()
    return frame


def kafka_python_frame() -> bytes:
    topic = PeerProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData
    data = [topic(version=9, name="flights", partition_data=[partition(version=9, index=p, records=BATCH) for p in range(4)])]
    message = PeerProduceRequest(version=9, transactional_id=None, acks=-1, timeout_ms=30000, topic_data=data)
    message.with_header(correlation_id=1, client_id="bench")
    frame: bytes = message.encode(header=True, framed=True)
    return frame


def main() -> None:
    options = arguments(__doc__)
    body = b"".join(bytes(part) for part in metadata_response().encode(5))
    decode = Table("decode", "ns per message")
    decode.add(
        f"MetadataResponse v5, {len(body) / 1000:.0f} kB",
        run_cases(
            {
                "kafkacore": repeat(protocol.MetadataResponse.decode, 5, body),
                "aiokafka": repeat(MetadataResponse_v5.decode, body),
                "kafka-python": repeat(lambda: PeerMetadataResponse.decode(body, version=5)),
            },
            rounds=options.rounds,
        ),
    )
    ready = produce_request()
    frame = Table("frame a ProduceRequest of 4 x 1 MiB", "ns per request")
    frame.add(
        "built and framed",
        run_cases(
            {
                "kafkacore": repeat(lambda: protocol.encode_request(produce_request(), 9, 1, "bench")),
                "aiokafka": repeat(aiokafka_frame),
                "kafka-python": repeat(kafka_python_frame),
            },
            rounds=options.rounds,
        ),
    )
    frame.add("framed only", run_cases({"kafkacore": repeat(protocol.encode_request, ready, 9, 1, "bench")}, rounds=options.rounds))
    report([decode, frame], as_json=options.json)


if __name__ == "__main__":
    main()
