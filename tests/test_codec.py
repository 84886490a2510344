"""Checksum, key hash and varints: golden facts, properties, every truncation, every kernel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import _codec, codec
from kafkacore.errors import CorruptDataError
from tests.kit.rows import each_row

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
# Hypothesis favours small and extreme integers; these have a size in bits that is evenly spread, so that every varint length is met
SPREAD = st.integers(0, 63).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1))
SPREAD_UNSIGNED = st.integers(0, 64).flatmap(lambda bits: st.integers(0, 2**bits - 1))

CRC_GOLDEN = {
    b"": 0x00000000,
    b"\x00": 1383945041,
    b"a": 0xC1D04330,
    b"hello": 0x9A71BB4C,
    b"123456789": 0xE3069283,
    b"Some String": 608512271,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}
MURMUR2_GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"kafka": 0xD067CF64 - 2**32,
    b"giberish123456789": 0x8F552B0C - 2**32,
    b"1234": 0x9FC97B14 - 2**32,
    b"234": 0xE7C009CA - 2**32,
    b"34": 0x873930DA - 2**32,
    b"4": 0x5A4B5CA1,
    b"": 0x106E08D9,
}
ZIGZAG_GOLDEN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    -8192: "ff7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}
UNSIGNED_GOLDEN = {0: "00", 64: "40", 127: "7f", 8191: "ff3f", 8192: "8040", 2**31 - 1: "ffffffff07", 2**64 - 1: "ffffffffffffffffff01"}

BROKEN_VARINTS = [
    bytes.fromhex("ffffffffffffffffff02"),  # 65 bits
    bytes.fromhex("8080808080808080808000"),  # eleven bytes
    b"\xff" * 10,
    b"\xff" * 64,
]


def reference_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1


class TestCrc32c:
    @each_row(("data", "crc"), CRC_GOLDEN.items())
    def test_golden(self, data: bytes, crc: int) -> None:
        assert codec.crc32c(data) == crc
        assert codec.crc32c(bytearray(data)) == crc
        assert codec.crc32c(memoryview(data)) == crc

    @each_row("name", _codec.crc32c_implementations())
    def test_every_length_by_every_kernel(self, name: str) -> None:
        # past two blocks' worth of the shortest block of the widest kernel, so that every path and every tail is taken
        data = np.random.default_rng(7).integers(0, 256, 2_100, np.uint8).tobytes()
        for n in range(len(data) + 1):
            assert _codec.crc32c_with(name, data[:n], n) == _codec.crc32c_with("tables", data[:n], n), n

    @each_row("name", _codec.crc32c_implementations())
    @settings(max_examples=60)
    @given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 60_000), offset=st.integers(0, 64), value=st.integers(0, 2**32 - 1))
    def test_lengths_alignments_and_continuations(self, name: str, seed: int, n: int, offset: int, value: int) -> None:
        data = memoryview(np.random.default_rng(seed).integers(0, 256, n + offset, np.uint8).tobytes())[offset:]
        assert _codec.crc32c_with(name, data, value) == _codec.crc32c_with("tables", data, value)

    def test_large_buffers_without_the_gil(self) -> None:
        data = np.random.default_rng(3).integers(0, 256, 5 << 20, np.uint8).tobytes()
        wanted = _codec.crc32c_with("tables", data)
        assert codec.crc32c(data) == wanted
        assert codec.crc32c(memoryview(data)) == wanted

    @each_row("wrong", [None, "text", 5])
    def test_not_a_buffer(self, wrong: object) -> None:
        with pytest.raises(TypeError):
            codec.crc32c(wrong)  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [-1, 2**32])
    def test_start_value_outside_32_bits(self, value: int) -> None:
        with pytest.raises(OverflowError):
            codec.crc32c(b"", value)

    def test_strided_view_is_refused(self) -> None:
        with pytest.raises(BufferError):
            codec.crc32c(memoryview(b"abcdef")[::2])


class TestMurmur2:
    @each_row(("data", "value"), MURMUR2_GOLDEN.items())
    def test_golden(self, data: bytes, value: int) -> None:
        assert codec.murmur2(data) == value
        assert codec.murmur2(bytearray(data)) == value

    @given(st.binary(max_size=70))
    def test_agrees_with_kafka_python(self, data: bytes) -> None:
        default = pytest.importorskip("kafka.partitioner.default")
        assert codec.murmur2(data) & 0xFFFFFFFF == default.murmur2(data) & 0xFFFFFFFF


class TestVarint:
    @each_row(("value", "data"), ZIGZAG_GOLDEN.items())
    def test_golden(self, value: int, data: str) -> None:
        encoded = bytes.fromhex(data)
        assert codec.encode_varint(value) == encoded
        assert codec.decode_varint(encoded) == (value, len(encoded))
        assert codec.decode_varint(bytearray(b"\xff" + encoded + b"\xff"), 1) == (value, 1 + len(encoded))

    @each_row(("value", "data"), UNSIGNED_GOLDEN.items())
    def test_golden_unsigned(self, value: int, data: str) -> None:
        encoded = bytes.fromhex(data)
        assert codec.encode_unsigned_varint(value) == encoded
        assert codec.decode_unsigned_varint(encoded) == (value, len(encoded))
        assert codec.decode_unsigned_varint(memoryview(b"\xff" + encoded + b"\xff"), 1) == (value, 1 + len(encoded))

    @given(INT64 | SPREAD)
    def test_round_trip(self, value: int) -> None:
        encoded = codec.encode_varint(value)
        assert encoded == reference_varint(zigzag(value))
        assert codec.decode_varint(encoded) == (value, len(encoded))

    @given(UINT64 | SPREAD_UNSIGNED)
    def test_round_trip_unsigned(self, value: int) -> None:
        encoded = codec.encode_unsigned_varint(value)
        assert encoded == reference_varint(value)
        assert codec.decode_unsigned_varint(encoded) == (value, len(encoded))

    @each_row("value", [*ZIGZAG_GOLDEN])
    def test_every_truncation(self, value: int) -> None:
        encoded = codec.encode_varint(value)
        for n in range(len(encoded)):
            for decode in (codec.decode_varint, codec.decode_unsigned_varint):
                with pytest.raises(CorruptDataError, match="truncated") as caught:
                    decode(b"\x00\x00" + encoded[:n], 2)
                assert caught.value.offset == 2

    @each_row("data", BROKEN_VARINTS)
    def test_too_long(self, data: bytes) -> None:
        for decode in (codec.decode_varint, codec.decode_unsigned_varint):
            for buffer in (data, bytearray(data)):
                with pytest.raises(CorruptDataError, match="64 bits"):
                    decode(buffer)

    @each_row("value", [2**63, -(2**63) - 1, 2**200])
    def test_value_too_large(self, value: int) -> None:
        with pytest.raises(OverflowError):
            codec.encode_varint(value)

    @pytest.mark.parametrize("value", [-1, 2**64])
    def test_unsigned_value_out_of_range(self, value: int) -> None:
        with pytest.raises(OverflowError):
            codec.encode_unsigned_varint(value)

    @each_row("pos", [-1, 3, 2**62])
    def test_position_outside(self, pos: int) -> None:
        for buffer in (b"\x00\x00", bytearray(2)):
            with pytest.raises(ValueError, match="not in a buffer of 2 bytes"):
                codec.decode_varint(buffer, pos)


class TestVarintArrays:
    @given(st.lists(INT64 | SPREAD | st.integers(-64, 63), max_size=80), st.binary(max_size=9))
    def test_same_as_one_by_one(self, values: list[int], after: bytes) -> None:
        encoded = codec.encode_varints(np.array(values, np.int64))
        assert encoded == b"".join(map(codec.encode_varint, values))
        assert codec.encode_varints(values) == encoded
        decoded, pos = codec.decode_varints(encoded + after, len(values))
        assert decoded.dtype == np.int64
        assert decoded.tolist() == values
        assert pos == len(encoded)

    @given(st.lists(UINT64 | SPREAD_UNSIGNED | st.integers(0, 127), max_size=80), st.binary(max_size=9))
    def test_unsigned_same_as_one_by_one(self, values: list[int], after: bytes) -> None:
        encoded = codec.encode_unsigned_varints(np.array(values, np.uint64))
        assert encoded == b"".join(map(codec.encode_unsigned_varint, values))
        decoded, pos = codec.decode_unsigned_varints(b"\x80" + encoded + after, len(values), 1)
        assert decoded.dtype == np.uint64
        assert decoded.tolist() == values
        assert pos == len(encoded) + 1

    @given(st.lists(SPREAD, min_size=1, max_size=20), st.data())
    def test_every_truncation(self, values: list[int], data: st.DataObject) -> None:
        encoded = codec.encode_varints(values)
        with pytest.raises(CorruptDataError):
            codec.decode_varints(encoded[: data.draw(st.integers(0, len(encoded) - 1))], len(values))

    @each_row("before", range(17))
    @each_row("broken", BROKEN_VARINTS)
    def test_offset_of_the_broken_one(self, before: int, broken: bytes) -> None:
        with pytest.raises(CorruptDataError, match="64 bits") as caught:
            codec.decode_varints(b"\x05" * before + broken, before + 1)
        assert caught.value.offset == before

    def test_count_is_checked_before_anything_is_allocated(self) -> None:
        with pytest.raises(CorruptDataError, match="do not fit the 3 bytes left"):
            codec.decode_varints(b"\x00\x00\x00", 2**60)

    def test_empty(self) -> None:
        assert codec.encode_varints([]) == b""
        assert codec.encode_unsigned_varints(np.empty(0, np.uint64)) == b""
        values, pos = codec.decode_varints(b"", 0)
        assert values.size == 0
        assert pos == 0

    def test_other_integer_types_and_strides(self) -> None:
        wanted = codec.encode_varints([1, 3, 5])
        for dtype in (np.int8, np.int32, np.uint16, np.uint64, ">i8"):
            assert codec.encode_varints(np.array([1, 3, 5], dtype)) == wanted
        assert codec.encode_varints(np.arange(6)[1::2]) == wanted

    def test_caller_errors(self) -> None:
        with pytest.raises(TypeError, match="integers wanted"):
            codec.encode_varints([1.5])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="one dimension"):
            codec.encode_varints(np.zeros((2, 2), np.int64))
        with pytest.raises(OverflowError):
            codec.encode_varints(np.array([2**63], np.uint64))
        with pytest.raises(OverflowError):
            codec.encode_unsigned_varints([1, -1])
        with pytest.raises(ValueError, match="count"):
            codec.decode_varints(b"", -1)
        with pytest.raises(ValueError, match="pos"):
            codec.decode_varints(b"", 0, 1)
