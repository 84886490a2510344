"""How fast messages become objects and frames, against aiokafka and kafka-python in the same run.

    python bench/protocol.py

Two questions: decoding a MetadataResponse of 100 topics x 10 partitions (version 5, 48 kB), and framing a ProduceRequest of four
partitions with 1 MiB of records each. kafka-python and aiokafka copy the records into the frame; ours refers to them, so the framing row
says what a send costs before the system call, not how fast memory is.
"""

import timeit

from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.produce import ProduceRequest_v7
from kafka.protocol.metadata import MetadataResponse as PeerMetadataResponse
from kafka.protocol.producer import ProduceRequest as PeerProduceRequest

from kafkacore import protocol

MIB = 1 << 20


def best(work, seconds=0.5, rounds=5):
    """Seconds per call, best of some rounds."""
    timer = timeit.Timer(work)
    count, spent = timer.autorange()
    count = max(1, int(count * seconds / rounds / max(spent, 1e-9)))
    return min(timer.repeat(rounds, count)) / count


def metadata_response():
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


def row(name, ours, rivals):
    print(f"{name:34} kafkacore {ours * 1e6:9.2f} us", *(f"| {rival} {t * 1e6:9.2f} us = {t / ours:6.1f}x" for rival, t in rivals.items()))


def main():
    body = b"".join(metadata_response().encode(5))
    plan = protocol.MetadataResponse.plan(5)
    row(
        f"decode MetadataResponse {len(body) / 1000:.0f} kB",
        best(lambda: protocol.MetadataResponse.decode(5, body)),
        {
            "aiokafka": best(lambda: MetadataResponse_v5.decode(body)),
            "kafka-python": best(lambda: PeerMetadataResponse.decode(body, version=5)),
        },
    )
    message = plan.decode(body)
    row("encode MetadataResponse", best(lambda: message.encode(5)), {})

    small = b"\0\0\0\0\0\0"
    row("decode HeartbeatResponse", best(lambda: protocol.HeartbeatResponse.decode(1, small)), {})

    batch = bytes(MIB)
    data = [
        protocol.TopicProduceData(name="flights", partition_data=[protocol.PartitionProduceData(index=p, records=batch) for p in range(4)])
    ]
    request = protocol.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=data)

    def theirs():
        topic = PeerProduceRequest.TopicProduceData
        partition = topic.PartitionProduceData
        message = PeerProduceRequest(
            version=9,
            transactional_id=None,
            acks=-1,
            timeout_ms=30000,
            topic_data=[topic(version=9, name="flights", partition_data=[partition(version=9, index=p, records=batch) for p in range(4)])],
        )
        message.with_header(correlation_id=1, client_id="bench")
        return message.encode(header=True, framed=True)

    def ours_built():
        return protocol.encode_request(
            protocol.ProduceRequest(
                acks=-1,
                timeout_ms=30000,
                topic_data=[
                    protocol.TopicProduceData(
                        name="flights", partition_data=[protocol.PartitionProduceData(index=p, records=batch) for p in range(4)]
                    )
                ],
            ),
            9,
            1,
            "bench",
        )

    rivals = {
        "aiokafka": best(lambda: ProduceRequest_v7(None, -1, 30000, [("flights", [(p, batch) for p in range(4)])]).encode()),
        "kafka-python": best(theirs),
    }
    row("frame ProduceRequest 4 x 1 MiB", best(lambda: protocol.encode_request(request, 9, 1, "bench")), rivals)
    row("  with building the message", best(ours_built), rivals)


if __name__ == "__main__":
    main()
