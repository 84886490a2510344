"""Apache Kafka's client, timer and broker machinery for Python, with the hot paths compiled.

The names of `__all__` are imported when they are first used, so that a program pays only for the parts it takes: `import kafkacore` alone
loads no extension and no numpy.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from kafkacore import errors
    from kafkacore.admin import KafkaAdminClient
    from kafkacore.consumer import KafkaConsumer
    from kafkacore.consumer.group.assignor import MemberAssignment, MemberSubscription, PartitionAssignor, RebalanceProtocol
    from kafkacore.consumer.group.listener import RebalanceListener
    from kafkacore.consumer.interceptors import ConsumerInterceptor
    from kafkacore.producer import KafkaProducer
    from kafkacore.producer.two_phase import PreparedState, PreparedTransaction, TwoPhaseClient
    from kafkacore.records import ConsumerRecord
    from kafkacore.types import (
        NewPartitions,
        NewTopic,
        OffsetAndMetadata,
        ProducerRecord,
        RecordMetadata,
        SubscriptionPattern,
        TopicPartition,
    )

# The GIL is the lock of the compiled code. A free-threaded Python turns it on for the extension, unless PYTHON_GIL=0 forbids it.
if hasattr(sys, "_is_gil_enabled"):
    _gil = sys._xoptions.get("gil") or (None if sys.flags.ignore_environment else os.environ.get("PYTHON_GIL"))
    if _gil == "0":
        raise ImportError("kafkacore needs the GIL: start Python without PYTHON_GIL=0 and without -X gil=0")

__version__ = "0.1.0.dev0"

__all__ = [
    "KafkaProducer",
    "KafkaConsumer",
    "KafkaAdminClient",
    "ProducerRecord",
    "ConsumerRecord",
    "RecordMetadata",
    "TopicPartition",
    "OffsetAndMetadata",
    "NewTopic",
    "NewPartitions",
    "RebalanceListener",
    "ConsumerInterceptor",
    "SubscriptionPattern",
    "PartitionAssignor",
    "MemberSubscription",
    "MemberAssignment",
    "RebalanceProtocol",
    "TwoPhaseClient",
    "PreparedTransaction",
    "PreparedState",
    "errors",
]

_HOMES = {
    "KafkaProducer": "kafkacore.producer",
    "KafkaConsumer": "kafkacore.consumer",
    "KafkaAdminClient": "kafkacore.admin",
    **dict.fromkeys(("PreparedState", "PreparedTransaction", "TwoPhaseClient"), "kafkacore.producer.two_phase"),
    "ConsumerRecord": "kafkacore.records",
    "RebalanceListener": "kafkacore.consumer.group.listener",
    "ConsumerInterceptor": "kafkacore.consumer.interceptors",
    **dict.fromkeys(
        ("MemberAssignment", "MemberSubscription", "PartitionAssignor", "RebalanceProtocol"), "kafkacore.consumer.group.assignor"
    ),
    **dict.fromkeys(
        ("NewPartitions", "NewTopic", "OffsetAndMetadata", "ProducerRecord", "RecordMetadata", "SubscriptionPattern", "TopicPartition"),
        "kafkacore.types",
    ),
}


_FACE = "kafkacore.compat.{} has the names of {}"
_CONFLUENT, _AIOKAFKA = _FACE.format("confluent", "confluent-kafka"), _FACE.format("aiokafka", "aiokafka")
_ELSEWHERE = {
    "Producer": f"KafkaProducer; {_CONFLUENT}",
    "Consumer": f"KafkaConsumer; {_CONFLUENT}",
    "SerializingProducer": "KafkaProducer with key_serializer and value_serializer",
    "DeserializingConsumer": "KafkaConsumer with key_deserializer and value_deserializer",
    "AdminClient": f"KafkaAdminClient; {_CONFLUENT}",
    "KafkaException": "kafkacore.errors.KafkaError is what every error derives from",
    "KafkaError": "kafkacore.errors.KafkaError",
    "KafkaTimeoutError": "kafkacore.errors.KafkaTimeoutError",
    "AIOKafkaProducer": f"kafkacore.aio.KafkaProducer; {_AIOKAFKA}",
    "AIOKafkaConsumer": f"kafkacore.aio.KafkaConsumer; {_AIOKAFKA}",
    "ConsumerRebalanceListener": "RebalanceListener",
    "EmbeddedCluster": "kafkacore.testing.EmbeddedCluster",
}
"""Names of other clients, and ours that live in a module of their own."""


def _is_imported(frame: "FrameType") -> bool:
    """Whether a frame is at a `from kafkacore import ...`, which drops the text of an AttributeError."""
    from opcode import opname

    return opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("kafkacore.errors")
    if name not in _HOMES:
        if (answer := _ELSEWHERE.get(name)) and _is_imported(sys._getframe(1)):
            raise ImportError(f"cannot import name {name!r} from {__name__!r}: {answer}", name=name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{f': {answer}' if answer else ''}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    modules = {name for name, value in globals().items() if isinstance(value, type(sys)) and value.__name__ == f"{__name__}.{name}"}
    return sorted({*__all__, *(name for name in globals() if name.startswith("__")), *(name for name in modules if name[0] != "_")})
