"""Giving up records before they are delivered. Runs on the thread that drives the I/O (`Sender.do_first`).

A record whose request is on the wire may be delivered all the same: its outcome here is the purge, and the broker's answer is taken for the
books only, as with a record that has expired.

Source: rd_kafka_purge, librdkafka 2.16.
"""

from __future__ import annotations

from kafkacore._codec import ProducerBatch
from kafkacore.errors import PurgedError
from kafkacore.plurals import counted
from kafkacore.producer.sender import Sender


def purge(sender: Sender, *, queued: bool, in_flight: bool) -> int:
    """Fails records with PurgedError.

    Args:
        sender: of the producer.
        queued: those that wait to be sent, also once more.
        in_flight: those whose request has no answer yet.

    Returns:
        How many.
    """
    wanted: list[ProducerBatch] = []
    if queued:
        wanted += [batch for batch in sender.accumulator.take_all() if not batch.in_flight and batch.count]
    if in_flight:
        wanted += sender.batches_in_flight()
    return sum(_give_up(sender, batch) for batch in wanted if not batch.delivery.resolved and batch.delivery.parts is None)


def _give_up(sender: Sender, batch: ProducerBatch) -> int:
    doubtful = batch.in_flight or batch.in_retry
    error = PurgedError(
        f"{counted(batch.count, 'record')} purged {'before the answer' if batch.in_flight else 'before they were sent'}",
        topic=batch.queue.topic,
        partition=batch.queue.index,
        attempts=batch.delivery.attempts(),
    )
    error.in_flight = batch.in_flight
    try:
        if sender.transactions is not None and doubtful:
            sender.transactions.mark_unresolved(batch)
    finally:
        sender.give_up(batch, error, sequence_is_free=not doubtful)
    return batch.count
