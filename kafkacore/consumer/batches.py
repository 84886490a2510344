"""What `KafkaConsumer.poll_batch` returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from kafkacore.plurals import counted

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord, RecordColumns


class RecordBatches:
    """The columns of one poll, one entry per partition. False when the poll brought nothing.

    It has the Arrow PyCapsule interface, so polars, pandas, pyarrow, DuckDB and DataFusion take it as a table. It is no
    `collections.abc.Sequence`, though it can be indexed: polars would take it for a list of Python objects.

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
            A `pyarrow.Table` with one chunk per partition, of the columns that `RecordColumns.to_arrow` makes; empty without records.

        Raises:
            ImportError: pyarrow is not installed.
        """
        import pyarrow

        return pyarrow.Table.from_batches([c.to_arrow(view=view) for c in self._columns], arrow_schema(view))

    def __arrow_c_schema__(self) -> Any:
        """The columns' types, as a capsule; Arrow's PyCapsule interface."""
        return arrow_schema(True).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The records as a stream of one batch per partition, as a capsule; keys and values are views of the fetched bytes.

        Raises:
            ImportError: pyarrow is not installed.
        """
        import pyarrow

        batches = (c.to_arrow(view=True) for c in self._columns)
        return pyarrow.RecordBatchReader.from_batches(arrow_schema(True), batches).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"RecordBatches({counted(self.record_count, 'record')} of {counted(len(self), 'partition')})"


def arrow_schema(view: bool = False) -> Any:
    """The `pyarrow.Schema` of `RecordColumns.to_arrow`.

    Args:
        view: as there.
    """
    import pyarrow as pa

    data = pa.binary_view() if view else pa.binary()
    header = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
    return pa.schema(
        {
            "key": data,
            "value": data,
            "topic": pa.dictionary(pa.int32(), pa.string()),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("ms", "UTC"),
            "timestamp_type": pa.int32(),
            "headers": pa.list_(header),
        }
    )
