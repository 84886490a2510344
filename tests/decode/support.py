"""What the tests of decoding share."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkacore.decode import base


def rows(decoder: base.Decoder, values: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    """The rows as tuples, and the faults; every column is as the schema says and sound."""
    found = decoder.decode(pa.array(values, pa.binary()))
    for column, field in zip(found.columns, decoder.fields, strict=True):
        assert column.type == field.type and len(column) == len(values)
        column.validate(full=True)
    mask = found.mask
    assert ([] if mask is None else [at for at, bad in enumerate(mask.to_pylist()) if bad]) == sorted(found.faults)
    columns = [column.to_pylist() for column in found.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * len(values), found.faults
