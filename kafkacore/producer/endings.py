"""How a producer ends: by `close`, or with the interpreter."""

from __future__ import annotations

import logging
import threading

from kafkacore.net.at_exit import AtExit
from kafkacore.producer.sender import Sender

log = logging.getLogger("kafkacore.producer")

ATEXIT_MAX_S = 10.0
FORCED_CLOSE_S = 1.0


def close_sender(sender: Sender, timeout_s: float) -> None:
    """Ends a Sender: once everything is delivered, by force when the time is over.

    Args:
        sender: of the producer.
        timeout_s: seconds to deliver what is queued.
    """
    sender.initiate_close(force=timeout_s <= 0)
    if sender.in_io_thread:
        return                                            # in a callback: the thread ends after it
    try:
        if not sender.join(min(max(0.0, timeout_s), threading.TIMEOUT_MAX)):
            sender.initiate_close(force=True)
            if not sender.join(FORCED_CLOSE_S):
                log.error("the producer's thread did not end within %.0f s; it is left behind", FORCED_CLOSE_S)
    finally:
        open_senders.discard(sender)


def _at_exit(senders: list[Sender]) -> None:
    """Delivers what programs left queued, within a bound, and says loudly what was lost."""
    for sender in senders:
        before = sender.counters["failed_records"]
        unfinished = sum(batch.count for batch in sender.accumulator.incomplete())
        close_sender(sender, min(ATEXIT_MAX_S, sender.config.delivery_timeout_ms / 1000))
        lost = sender.counters["failed_records"] - before
        if lost:
            log.warning(
                "%d of %d records still queued at exit were LOST: call producer.flush() or close() before the program ends",
                lost,
                unfinished,
            )


open_senders: AtExit[Sender] = AtExit(_at_exit)
"""Each lives as long as its thread, also when its producer has no reference left."""
