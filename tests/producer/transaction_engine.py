"""A transaction engine without a network: requests are taken from it and answered by hand."""

from __future__ import annotations

from typing import Any

from kafkacore import _codec
from kafkacore.errors import KafkaError
from kafkacore.producer.transactions import Ask, Described, Outcome, Step, StepKind, TransactionEngine
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

GROUP = ConsumerGroupMetadata("g", 3, "m")
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(5)}
TOPIC = _codec.TopicQueue("t")
TOPIC.grow(4, TopicPartition)
QUEUES = TOPIC.partitions
OPEN = Described("Ongoing", 1_000, 60_000, (TopicPartition("t", 0),))


def engine_of() -> TransactionEngine:
    return TransactionEngine(lambda tries: 100)


def outcome_of(step: Step) -> tuple[bool, KafkaError | None]:
    return step.delivery.finished, step.delivery.error


def ask(engine: TransactionEngine, has_batches: bool = False) -> Ask | None:
    engine.settle()
    found = engine.next_ask(has_batches)
    if found is not None:
        engine.sent(found)
    engine.settle()
    return found


def answer(engine: TransactionEngine, asked: Ask | None, error: KafkaError | None = None, **fields: Any) -> bool:
    assert asked is not None
    refresh = engine.answered(asked, Outcome(error, **fields), 0)
    engine.settle()
    return refresh


def ready(producer_id: int = 7, epoch: int = 0) -> TransactionEngine:
    engine = engine_of()
    step = engine.submit(StepKind.INIT)
    answer(engine, ask(engine), producer_id=producer_id, epoch=epoch)
    assert outcome_of(step) == (True, None)
    return engine


def opened(adds_by_writing: bool, partitions: int = 1) -> TransactionEngine:
    engine = ready()
    engine.begin(adds_by_writing)
    if adds_by_writing:
        engine.at.added.update(QUEUES[:partitions])
    else:
        engine.gate.wanted.update(dict.fromkeys(QUEUES[:partitions]))
        asked = ask(engine, True)
        assert asked is not None
        assert asked.partitions == tuple(QUEUES[:partitions])
        answer(engine, asked)
    return engine
