"""Which offsets a partition has, for the error that says that a position is none of them."""

from __future__ import annotations

from collections.abc import Callable

from kafkacore import errors
from kafkacore.net.driver import CallerDriver
from kafkacore.net.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetQuery
from kafkacore.types import TopicPartition

_LONGEST_MS = 1_000


def with_range(
    error: errors.OffsetOutOfRange, driver: CallerDriver, isolation_level: int, other_work: Callable[[int], int | None]
) -> errors.OffsetOutOfRange:
    """The same error with the offsets that are there. The leader is asked, for a second at most: the caller waits to hear of the error.

    Args:
        error: of a fetch: it names a partition and the offset asked for.
        driver: of the network.
        isolation_level: 1 where records end at the last stable offset.
        other_work: sends what is due else, and says when it wants to be called again.
    """
    if error.topic is None or error.partition is None:
        return error
    tp = TopicPartition(error.topic, error.partition)
    ends = [
        OffsetQuery(
            driver.client, driver.metadata, {tp: when}, isolation_level=isolation_level, retry_backoff_ms=100, retry_backoff_max_ms=1_000
        )
        for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    ]

    def step(now_ms: int) -> int | None:
        waits = [other_work(now_ms)]
        for query in ends:
            query.step(now_ms)
            waits.append(query.next_wake_ms(now_ms))
        known = [wait for wait in waits if wait is not None]
        return min(known) if known else None

    try:
        driver.run(step, lambda: all(query.done for query in ends), _LONGEST_MS)
    except errors.WakeupError:
        raise
    except errors.KafkaError:
        return error
    first, last = (query.results.get(tp) for query in ends)
    if first is None or last is None:
        return error
    if first.offset == last.offset:
        there = f"the partition is empty, its next record gets offset {last.offset}"
    else:
        there = f"the partition has offsets {first.offset} to {last.offset - 1}"
    return errors.OffsetOutOfRange(
        f"no record has this offset, and auto_offset_reset is none: {there}; seek to choose where to continue",
        topic=tp.topic,
        partition=tp.partition,
        offset=error.offset,
        broker=error.broker,
        api=error.api,
        attempts=error.attempts,
    )
