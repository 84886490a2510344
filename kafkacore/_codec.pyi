"""What Python sees of the compiled extension."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer as Buffer

def crc32c(buffer: Buffer, value: int = 0) -> int: ...
def crc32c_implementations() -> tuple[str, ...]: ...
def crc32c_with(name: str, buffer: Buffer, value: int = 0) -> int: ...
def murmur2(buffer: Buffer) -> int: ...
def encode_varint(value: int) -> bytes: ...
def encode_unsigned_varint(value: int) -> bytes: ...
def decode_varint(buffer: Buffer, pos: int = 0) -> tuple[int, int]: ...
def decode_unsigned_varint(buffer: Buffer, pos: int = 0) -> tuple[int, int]: ...
def encode_varints(values: NDArray[np.integer] | Sequence[int]) -> bytes: ...
def encode_unsigned_varints(values: NDArray[np.integer] | Sequence[int]) -> bytes: ...
def decode_varints(buffer: Buffer, count: int, pos: int = 0) -> tuple[NDArray[np.int64], int]: ...
def decode_unsigned_varints(buffer: Buffer, count: int, pos: int = 0) -> tuple[NDArray[np.uint64], int]: ...

class PooledBuffer:
    nbytes: int
    def __new__(cls, nbytes: int) -> PooledBuffer: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def buffer_pool_stats() -> dict[str, int]: ...
def buffer_pool_trim() -> int: ...
def send_gather(fd: int, buffers: list[Buffer], skip_bytes: int = 0) -> int: ...
def recv_into(fd: int, buffer: Buffer, start: int, nbytes: int) -> int: ...

class ColumnSource:
    count: int
    def __init__(self, source: object, count: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> bytes | None: ...

class BatchBuilder:
    max_bytes: int
    magic: int
    compression: int
    def __init__(
        self,
        *,
        magic: int = 2,
        compression: str | int = "none",
        compression_level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
        max_bytes: int = 16384,
        base_offset: int = 0,
        leader_epoch: int = -1,
        timestamp_type: int = 0,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def append(
        self,
        value: Buffer | str | None,
        key: Buffer | str | None = None,
        headers: Iterable[tuple[str | bytes, Buffer | str | None]] = (),
        timestamp_ms: int | None = None,
        offset_delta: int | None = None,
    ) -> bool: ...
    def append_many(
        self,
        values: object,
        keys: object = None,
        headers: Sequence[Iterable[tuple[str | bytes, Buffer | str | None]] | None] | None = None,
        timestamps_ms: object = None,
        start: int = 0,
    ) -> int: ...
    def build(self) -> memoryview: ...

def control_batch(
    type: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp_ms: int | None = None,
) -> memoryview: ...

# ---- plan.pxi ----

WIRE_TYPES: dict[str, int]

class Plan:
    cls: type
    label: str
    api_key: int
    version: int
    header_flexible: bool
    response_header_flexible: bool
    def __init__(
        self,
        cls: type,
        label: str,
        flexible: bool,
        slots: int,
        fields: list[tuple[object, ...]],
        tagged: list[tuple[int, tuple[object, ...]]],
        absent: list[tuple[object, ...]],
        api_key: int = -1,
        version: int = 0,
        header_flexible: bool = False,
        response_header_flexible: bool = False,
    ) -> None: ...
    def decode(self, buffer: Buffer, offset: int = 0) -> Any: ...
    def encode(self, message: object) -> list[Buffer]: ...

class StructNew:
    def __init__(self, name: str, slots: dict[str, int], defaults: tuple[tuple[object, bool], ...]) -> None: ...
    def __call__(self, cls: type, **values: object) -> Any: ...

def encode_request(request: object, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]: ...
def encode_response(response: object, version: int, correlation_id: int) -> list[Buffer]: ...
def skip_tagged_fields(buffer: Buffer, offset: int) -> int: ...
