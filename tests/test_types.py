"""types.py: plain tuples, so that they hash, compare, unpack and pickle."""

import pickle

from kafkacore import types
from tests.kit.rows import each_row


def test_defaults():
    assert types.Node(1, "h", 9092) == (1, "h", 9092, None)
    assert types.OffsetAndMetadata(5) == (5, None, "")
    assert types.ConsumerGroupMetadata("g") == ("g", -1, "", None)
    assert types.OffsetAndTimestamp(5, 9) == (5, 9, -1)
    assert types.ProducerRecord("t") == ("t", None, None, (), None, None)
    assert types.NewTopic("t") == ("t", -1, -1, None, None)


@each_row(
    "value",
    [
        types.TopicPartition("t", 0),
        types.Node(-1, "h", 9092, "r"),
        types.OffsetAndMetadata(1, 2, "m"),
        types.OffsetAndTimestamp(1, 2),
        types.RecordMetadata("t", 0, 1, 2, 3, 4),
        types.ProducerRecord("t", b"v", b"k", (("h", b"x"),), 0, 1),
        types.NewTopic("t", 3, 1),
        types.NewPartitions(4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_hash_compare_unpack_and_pickle(value):
    again = pickle.loads(pickle.dumps(value))
    assert again == value == tuple(value)
    assert hash(again) == hash(value)
    assert type(again) is type(value)
    assert type(value)(*value) == value
