"""Batches for the broker's tests."""

from collections.abc import Sequence
from typing import Any

from kafkacore.records import BatchBuilder, read_batches

T0 = 1_700_000_000_000


def batch(
    values: Sequence[bytes] = (b"a", b"b", b"c"),
    *,
    timestamps_ms: Sequence[int] | None = None,
    compression: str = "none",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> memoryview:
    """A v2 batch with these values; timestamps count up from T0 unless given."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        max_bytes=64 << 20,
    )
    for nth, value in enumerate(values):
        assert builder.append(value, timestamp_ms=T0 + nth if timestamps_ms is None else timestamps_ms[nth])
    return memoryview(bytes(builder.build()))


def records_of(buffer: Any) -> list[Any]:
    """The records of the batches in a buffer."""
    return [record for batch in read_batches(buffer) for record in batch.records()]
