"""The producers and consumers of Kafka 0.8, by their old rules, on the network, formats and groups of today.

    handler = DefaultEventHandler(bootstrap_servers="localhost:9092", compression_codec="gzip")
    handler.handle([KeyedMessage("t", "key", b"message")])

Brokers get what they understand by their ApiVersions: old message sets, or record batches.
"""

from kafkacore.errors import ConsumerTimeoutError, FailedToSendMessageError, QueueFullError, UnknownCodecError
from kafkacore.legacy.connector import ConsumerConnector, MessageStream
from kafkacore.legacy.event_handler import DefaultEventHandler
from kafkacore.legacy.message_set import (
    ByteBufferMessageSet,
    DefaultCompressionCodec,
    GZIPCompressionCodec,
    LZ4CompressionCodec,
    MessageAndOffset,
    NoCompressionCodec,
    SnappyCompressionCodec,
)
from kafkacore.legacy.messages import KeyedMessage
from kafkacore.legacy.partitioner import default_partitioner, java_hash
from kafkacore.legacy.producers import AsyncProducer, CallbackHandler, SyncProducer
from kafkacore.legacy.simple_consumer import EARLIEST_TIME, LATEST_TIME, SimpleConsumer
from kafkacore.legacy.statistics import ProducerStatistics

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "AsyncProducer",
    "ByteBufferMessageSet",
    "CallbackHandler",
    "ConsumerConnector",
    "ConsumerTimeoutError",
    "DefaultCompressionCodec",
    "DefaultEventHandler",
    "FailedToSendMessageError",
    "GZIPCompressionCodec",
    "KeyedMessage",
    "LZ4CompressionCodec",
    "MessageAndOffset",
    "MessageStream",
    "NoCompressionCodec",
    "ProducerStatistics",
    "QueueFullError",
    "SimpleConsumer",
    "SnappyCompressionCodec",
    "SyncProducer",
    "UnknownCodecError",
    "default_partitioner",
    "java_hash",
]
