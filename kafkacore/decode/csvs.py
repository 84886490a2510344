"""Lines of comma-separated values as columns, each value one line.

Every line gets a first cell that nobody outside this process can know: as many rows as values and that cell in each of them means that
row i is value i, whatever quotes and line ends a value holds (see `jsons`). Quoting is RFC 4180's; an empty cell without quotes is null.

Source: org.apache.spark.sql.catalyst.csv.UnivocityParser.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from kafkacore.decode import values as v
from kafkacore.decode.base import BlockDecoder
from kafkacore.decode.ddl import name_of
from kafkacore.errors import ConfigError

_ROW = re.compile(r"(?:In CSV column #\d+|CSV parse error): Row #(\d+)")
_CELL = re.compile(r"In CSV column #(\d+): Row #\d+: (.*)", re.DOTALL)


def _read_as(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_decimal(kind) else v.raw_type(kind)


class CsvDecoder(BlockDecoder):
    """Values that are one line of cells each."""

    def __init__(self, fields: Sequence[Any], layout: Sequence[Any], delimiter: str) -> None:
        """Plans the columns.

        Args:
            fields: the columns wanted.
            layout: the fields of a line, in its order; the wanted ones among them.
            delimiter: between cells.

        Raises:
            ConfigError: a column's type cannot stand in a cell.
        """
        super().__init__(fields)
        for each in layout:
            if pa.types.is_nested(each.type) or pa.types.is_binary(each.type):
                raise ConfigError(f"column {each.name}: a cell of CSV cannot be {name_of(each.type)}")
        self._layout = list(layout)
        self.mark = secrets.token_hex(16)
        names = [f"{self.mark}{at}" for at in range(len(layout) + 1)]
        places = {each.name: names[at] for at, each in enumerate(layout, 1)}
        self._reading = {"column_names": names, "use_threads": False}
        self._parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        wanted = [(names[0], pa.string()), *((places[each.name], _read_as(each.type)) for each in fields)]
        self._converting = arrow_csv.ConvertOptions(
            column_types=dict(wanted),
            include_columns=[name for name, _ in wanted],
            null_values=[""],
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        self._around = (pa.scalar(f"{self.mark}{delimiter}", pa.string()), pa.scalar("\n"), pa.scalar(""))

    def _block(self, values: Any) -> Any:
        before, after, between = self._around
        text = pc.binary_join_element_wise(before, values.cast(pa.string()), after, between).buffers()[2]
        reading = arrow_csv.ReadOptions(block_size=text.size, **self._reading)
        table = arrow_csv.read_csv(pa.BufferReader(text), reading, self._parsing, self._converting)
        marks, *columns = (each.combine_chunks() for each in table.columns)
        if len(marks) != len(values) or not pc.all(pc.fill_null(pc.equal(marks, self.mark), False)).as_py():
            raise v.Undecodable("some values are not one line each")
        arrays = [
            v.decimals(field.name, column, field.type) if pa.types.is_decimal(field.type) else v.typed(column, field.type)
            for column, field in zip(columns, self.fields, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=self.fields) if arrays else v.empty_structs(len(values))

    @staticmethod
    def _row_of(error: BaseException) -> int | None:
        match = _ROW.match(str(error)) if isinstance(error, pa.ArrowInvalid) else None
        return None if match is None else int(match[1]) - 1

    def _row(self, value: bytes) -> Sequence[Any]:
        try:
            row = self._block(pa.array([value], pa.binary()))
        except pa.ArrowInvalid as error:
            raise v.Undecodable(self._why(str(error))) from None
        return [row.field(at)[0].as_py() for at in range(len(self.fields))]

    def _why(self, text: str) -> str:
        """Arrow's words without the first cell, which must stay unknown, and without its numbering."""
        cell = _CELL.match(text)
        if cell is not None:
            return f"field {self._layout[int(cell[1]) - 1].name}: {cell[2]}"
        if "Expected" in text:
            return f"not one line of {len(self._layout)} cells"
        return text.replace(self.mark, "")
