"""What `KafkaConsumer.poll_batch` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from kafkacore.plurals import counted

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord, RecordColumns


class RecordBatches(Sequence["RecordColumns"]):
    """The columns of one poll, one entry per partition. False when the poll brought nothing.

    Args:
        columns: one per partition, in the order the data arrived.
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: list[RecordColumns]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns)

    @overload
    def __getitem__(self, index: int) -> RecordColumns: ...
    @overload
    def __getitem__(self, index: slice) -> RecordBatches: ...
    def __getitem__(self, index: int | slice) -> RecordColumns | RecordBatches:
        return RecordBatches(self._columns[index]) if isinstance(index, slice) else self._columns[index]

    def __iter__(self) -> Iterator[RecordColumns]:
        return iter(self._columns)

    @property
    def record_count(self) -> int:
        """Records in all partitions together."""
        return sum(len(c) for c in self._columns)

    def records(self) -> Iterator[ConsumerRecord]:
        """The records one by one, partition after partition."""
        for columns in self._columns:
            yield from columns

    def to_arrow(self, view: bool = False) -> Any:
        """All partitions as one Arrow table.

        Args:
            view: no copy: binary_view columns over the fetched bytes, which stay in memory as long as the table does.

        Returns:
            A `pyarrow.Table` with one chunk per partition, of the columns that `RecordColumns.to_arrow` makes; None without records.
        """
        if not self._columns:
            return None
        import pyarrow

        return pyarrow.Table.from_batches([c.to_arrow(view=view) for c in self._columns])

    def __repr__(self) -> str:
        return f"RecordBatches({counted(self.record_count, 'record')} of {counted(len(self), 'partition')})"
