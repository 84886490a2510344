"""Records that a `for` loop has in hand: the list's own iterator gives them out, so a record costs no frame of ours.

The position of the consumer is behind all of them; what the loop has not reached is taken back when something else is done with the
consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkacore.types import TopicPartition

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord


class Chunk:
    """Records of one partition handed to a `for` loop."""

    __slots__ = ("iterator", "records", "tp")

    def __init__(self, tp: TopicPartition, records: list[ConsumerRecord]) -> None:
        self.tp = tp
        self.records = records
        self.iterator: Any = iter(records)

    def next_offset(self) -> int | None:
        """Offset of the first record the loop has not had yet; None when it had all."""
        left: int = self.iterator.__length_hint__()
        return self.records[-left].offset if left else None

    def current_offset(self) -> int:
        """Offset of the record that the loop is working on; of the first one before it began."""
        left: int = self.iterator.__length_hint__()
        return self.records[max(0, len(self.records) - left - 1)].offset

    def take(self, most: int) -> list[ConsumerRecord]:
        """At most so many of the records that the loop has not had yet, at once."""
        count = len(self.records)
        first = count - self.iterator.__length_hint__()
        self.iterator.__setstate__(min(first + most, count))
        return self.records[first : first + most]

    def end(self) -> None:
        """Takes the rest away from the loop."""
        self.iterator.__setstate__(len(self.records))


class Chunks:
    """What a `for` loop has in hand, in its order. The first chunk stays until the loop asks for more: its last record is being worked on.

    Attributes:
        chunks: exchanged by the owner in one step, which Ctrl+C cannot split, and only after `next` has returned None.
        going_back: what `take_back` returned, until the owner has moved its positions and empties it.
    """

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        self.going_back: Mapping[TopicPartition, int] = {}
        self._by_partition: dict[TopicPartition, list[Chunk]] | None = None  # made when it is asked for, dropped with every change

    def _of(self, tp: TopicPartition) -> Sequence[Chunk]:
        """The chunks of one partition. A commit asks about all partitions in a row: the chunks are walked once for it."""
        found = self._by_partition
        if found is None:
            found = {}
            for chunk in self.chunks:
                found.setdefault(chunk.tp, []).append(chunk)
            if found:
                self._by_partition = found
        return found.get(tp, ())

    def __bool__(self) -> bool:
        return bool(self.chunks)

    def next(self) -> Iterator[ConsumerRecord] | None:
        """What the loop goes on with; None when it had everything."""
        while self.chunks:
            chunk = self.chunks[0]
            if chunk.next_offset() is not None:
                found: Iterator[ConsumerRecord] = chunk.iterator
                return found
            self._by_partition = None
            self.chunks.popleft()
        return None

    def take(self, most: int) -> list[ConsumerRecord]:
        """At most so many of the records that `next` would give one by one."""
        return [] if self.next() is None else self.chunks[0].take(most)

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Offset of the first record of a partition that the loop has not had yet; None when it has none in hand."""
        for chunk in self._of(tp):
            if (offset := chunk.next_offset()) is not None:
                return offset
        return None

    def next_offsets(self) -> dict[TopicPartition, int]:
        """`next_offset` of all partitions that the loop has something of in hand. Any thread may ask: the chunks are copied in one step."""
        found = [(chunk.tp, offset) for chunk in reversed(list(self.chunks)) if (offset := chunk.next_offset()) is not None]
        return dict(found)

    def working_on(self, tp: TopicPartition) -> int | None:
        """Offset of the first record of a partition that is not known to be processed; None when the loop has none of it in hand."""
        for chunk in self._of(tp):
            return chunk.current_offset()
        return None

    def being_worked_on(self) -> dict[TopicPartition, int]:
        """Per partition the offset of the record that is not known to be processed."""
        return {chunk.tp: chunk.current_offset() for chunk in reversed(self.chunks)}

    def take_back(self, tps: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Takes what the loop did not reach yet out of its hands.

        Args:
            tps: of these partitions only; None of all.

        Returns:
            Per partition the offset to go back to; with those of a call before that was interrupted.
        """
        taken: list[Chunk] = []
        kept: deque[Chunk] = deque()
        offsets = dict(self.going_back)
        for chunk in self.chunks:
            offset = chunk.next_offset()
            if offset is None:
                continue
            if tps is not None and chunk.tp not in tps:
                kept.append(chunk)
                continue
            taken.append(chunk)
            offsets.setdefault(chunk.tp, offset)
        self.going_back = offsets  # before the chunks forget it
        for chunk in taken:
            chunk.end()
        self._by_partition = None
        self.chunks = kept
        return offsets

    def end(self) -> None:
        """The loop ends."""
        for chunk in self.chunks:
            chunk.end()
        self._by_partition = None
        self.chunks.clear()
