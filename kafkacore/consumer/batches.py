"""What `KafkaConsumer.poll_batch` returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from kafkacore.plurals import counted
from kafkacore.records import arrow_schema_of, arrow_stream

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
        return arrow_schema_of("view", "view", True)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The records as a stream of one batch per partition, as a capsule; keys and values are views of the fetched bytes.

        Args:
            requested_schema: a schema's capsule; keys and values become binary, strings or views of either if it says so.
        """
        return arrow_stream([(c, len(c)) for c in self._columns], "view", "view", True, requested_schema)

    def __repr__(self) -> str:
        return f"RecordBatches({counted(self.record_count, 'record')} of {counted(len(self), 'partition')})"


class ArrowTypes(NamedTuple):
    """The types of records' columns, for who takes `__arrow_c_schema__`; arguments as `records.arrow_stream`."""

    key: str
    value: str
    headers: bool

    def __arrow_c_schema__(self) -> Any:
        """A schema's capsule."""
        return arrow_schema_of(*self)


def arrow_schema(view: bool = False) -> Any:
    """The `pyarrow.Schema` of `RecordColumns.to_arrow`.

    Args:
        view: as there.
    """
    import pyarrow as pa

    kind = "view" if view else "binary"
    return pa.schema(ArrowTypes(kind, kind, True))
