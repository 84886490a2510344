"""What a consumer hands to its caller: records, columns, the records of a `for` loop; and what goes back when the caller turns elsewhere.

Rule: until a record has reached the caller it is in hand (rule 5 of reading.py), also while deserializers and interceptors look at it.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from kafkacore.consumer.batches import RecordBatches
from kafkacore.consumer.chunks import Chunk, Chunks
from kafkacore.consumer.deserializers import Deserializers
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.interceptors import Interceptors
from kafkacore.consumer.reading import ReadLoop
from kafkacore.consumer.subscription import SubscriptionState
from kafkacore.net.driver import CallerDriver
from kafkacore.types import TopicPartition

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord, RecordColumns


class HandOut:
    """Takes records from the fetcher to the caller.

    Args:
        driver: whose turn it is.
        loop: waits for records.
        subscription: the positions, which go back with records.
        fetcher: holds what was fetched.
        unread: what a `for` loop has in hand.
        deserializers: for records; columns stay bytes.
        interceptors: see what is handed out; None without any.
        most: records that a `for` loop is given at once.
    """

    def __init__(
        self,
        driver: CallerDriver,
        loop: ReadLoop,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        unread: Chunks,
        deserializers: Deserializers,
        interceptors: Interceptors | None,
        most: int,
    ) -> None:
        self._driver = driver
        self._loop = loop
        self._subscription = subscription
        self._fetcher = fetcher
        self.unread = unread
        self._deserializers = deserializers
        self._deserializes = bool(deserializers)
        self._interceptors = interceptors
        self._most = most

    def records(self, limit: int, timeout: float | None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """At most `limit` records; waits for some."""
        if self.unread.chunks:
            self.rewind()
        return self._handed(self._loop.wait(functools.partial(self._fetcher.collect, limit), {}, timeout))

    def _handed(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records on their way to the caller."""
        if records and self._deserializes:
            records = self._deserializers.run(records)
        return records if self._interceptors is None else self._interceptors.on_consume(records)

    def columns(self, timeout: float | None) -> RecordBatches:
        """Everything fetched, as columns; waits for some."""
        if self.unread:
            self.rewind()
        return self._handed_columns(self._loop.wait(self._fetcher.collect_columns, [], timeout))

    def _handed_columns(self, columns: list[RecordColumns]) -> RecordBatches:
        return RecordBatches(columns) if self._interceptors is None else self._interceptors.on_consume_batch(columns)

    def next_columns(self, tp: TopicPartition, before: int, wait_s: float) -> tuple[list[Any], int]:
        """The next columns of the only partition, and its position; `before` is where it was."""
        found: list[Any] = self._loop.wait(functools.partial(self._collect_up_to, tp, before), [], wait_s)
        return found, self._subscription.state_of(tp).offset

    def _collect_up_to(self, tp: TopicPartition, position: int) -> list[Any]:
        """Columns, or [None] when the position moved over offsets without records."""
        found: list[Any] = self._fetcher.collect_columns()
        return found or ([None] if self._subscription.state_of(tp).offset > position else [])

    def next_chunk(self, timeout: float | None = None) -> Iterator[ConsumerRecord] | None:
        """What a loop over records goes on with; None when nothing came within `timeout` seconds."""
        with self._driver:
            found = self.unread.next()
            if found is not None:
                self._loop.passed_by()
            while found is None:
                try:
                    polled = self._loop.wait(functools.partial(self._fetcher.collect, self._most), {}, timeout)
                    self._begin_chunks(polled)
                except BaseException:
                    self._loop.give_back()
                    raise
                found = self.unread.next()
                if not polled and timeout is not None:
                    return found
            return found

    def _begin_chunks(self, polled: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """Gives records to the `for` loop."""
        if polled and self._deserializes:
            polled = self._deserializers.run(polled)
        given = polled if self._interceptors is None else self._interceptors.on_consume(polled)
        chunks = deque([Chunk(tp, records) for tp, records in given.items()])
        self.unread.chunks, self._loop.in_hand = chunks, None
        self._fetcher.begin()  # the chunks say where the loop stands

    # -- reading where no thread may wait (asyncio): what is there already, or None ---------------------------------------------------

    def await_records(self, timeout: float | None) -> bool:
        """Waits until there may be something to take; hands out nothing."""

        def wait() -> bool:
            found = self._loop.wait(self._fetcher.is_ready, False, timeout)
            self._loop.in_hand = None
            return found

        return self._loop.hand_over(wait)

    def take_records(self, limit: int, waited: bool) -> dict[TopicPartition, list[ConsumerRecord]] | None:
        """At most `limit` records that are there."""

        def take() -> dict[TopicPartition, list[ConsumerRecord]] | None:
            if self.unread.chunks:
                self.rewind()
            found = self._loop.at_once(lambda: self._fetcher.collect(limit), waited)
            return None if found is None else self._handed(found)

        return self._loop.hand_over(take)

    def take_batch(self, waited: bool) -> RecordBatches | None:
        """Everything fetched, as columns."""

        def take() -> RecordBatches | None:
            if self.unread.chunks:
                self.rewind()
            found = self._loop.at_once(self._fetcher.collect_columns, waited)
            return None if found is None else self._handed_columns(found)

        return self._loop.hand_over(take)

    def take_chunk(self, waited: bool) -> Iterator[ConsumerRecord] | None:
        """What the `for` loop goes on with."""
        with self._driver:
            found = self.unread.next()
            if found is None:
                try:
                    polled = self._loop.at_once(lambda: self._fetcher.collect(self._most), waited)
                    if polled is None:
                        return None
                    self._begin_chunks(polled)
                except BaseException:
                    self._loop.give_back()
                    raise
                found = self.unread.next()
            return found

    def rewind(self, tps: Collection[TopicPartition] | None = None) -> None:
        """Takes what a `for` loop was given but did not reach yet out of its hands, and moves the position back to it."""
        back = self.unread.take_back(None if tps is None else frozenset(tps))
        for tp, offset in back.items():
            self._subscription.rewind(tp, offset)
        if back:
            self._fetcher.retain()
        self.unread.going_back = {}
