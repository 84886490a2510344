"""max_decompressed_bytes: what a compressed batch may hold, as a setting of the consumer."""

import pytest

from kafkacore import KafkaConsumer, KafkaProducer
from kafkacore.errors import CorruptDataError, DecompressedTooLarge
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition

TP = TopicPartition("t", 0)


def consumer(cluster, **settings):
    made = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **settings)
    made.assign([TP])
    return made


@pytest.mark.parametrize("poll", ["poll", "poll_batch"])
def test_a_batch_above_the_bound_is_read_with_a_larger_one(poll):
    with EmbeddedCluster(1) as cluster:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, compression_type="zstd", max_request_size=4 << 20) as producer:
            producer.send("t", b"small").result()
            producer.send("t", bytes(3 << 20)).result()
        with consumer(cluster, max_decompressed_bytes=1 << 20) as bounded:
            records = bounded.poll(10)
            assert [r.value for r in records[TP]] == [b"small"]
            for _ in range(2):
                with pytest.raises(DecompressedTooLarge, match=r"the zstd batch at offset 1 .*max_decompressed_bytes=1048576") as caught:
                    getattr(bounded, poll)(10)
                assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 1)
                assert not isinstance(caught.value, CorruptDataError)
            assert bounded.position(TP) == 1
        with consumer(cluster, max_decompressed_bytes=4 << 20) as wide:
            wide.seek(TP, 1)
            assert len(getattr(wide, poll)(10)) == 1
            assert wide.position(TP) == 2
