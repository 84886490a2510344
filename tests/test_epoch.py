"""Times as callers write them, against numpy's, Arrow's and Python's own arithmetic; the refusals name the argument."""

import datetime
import time
import zoneinfo
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import KafkaProducer
from kafkacore.epoch import epoch_column_ms, epoch_ms
from kafkacore.errors import UsageError
from kafkacore.producer.many_call import partition_numbers
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.reached import Reached
from tests.kit.rows import each_row

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12}
SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60}
UTC = datetime.UTC


rounded = Reached("before 1970", "between two milliseconds", "between two of them before 1970")


@rounded.by
@given(st.sampled_from(["us", "ns", *PER_SECOND, *SECONDS]), st.lists(st.integers(-2, 2) | st.integers(-(2**33), 2**33), max_size=5))
def test_datetime64_of_any_unit_is_rounded_down_to_milliseconds(unit: str, counts: list[int]) -> None:
    wanted = [n * SECONDS[unit] * 1000 if unit in SECONDS else n * 1000 // PER_SECOND[unit] for n in counts]
    finer = PER_SECOND.get(unit, 1) > 1000
    rounded("before 1970", any(n < 0 for n in counts))
    rounded("between two milliseconds", finer and any(n * 1000 % PER_SECOND[unit] for n in counts))
    rounded("between two of them before 1970", finer and any(n < 0 and n * 1000 % PER_SECOND[unit] for n in counts))
    column = np.array(counts, np.int64).view(f"datetime64[{unit}]")
    assert epoch_column_ms(column, "t").tolist() == wanted
    assert [epoch_ms(item, "t") for item in column] == wanted
    assert epoch_column_ms(list(column), "t").tolist() == wanted
    assert epoch_column_ms(column[::-1], "t").tolist() == wanted[::-1]
    swapped = column.astype(column.dtype.newbyteorder("S"))
    assert epoch_column_ms(swapped, "t").tolist() == wanted


@pytest.mark.parametrize("unit", ["Y", "M"])
def test_years_and_months_begin_on_their_first_day(unit: str) -> None:
    days = np.array(["2024-01-01", "1970-02-01" if unit == "M" else "1971-01-01"], "datetime64[D]")
    assert epoch_column_ms(days.astype(f"datetime64[{unit}]"), "t").tolist() == epoch_column_ms(days, "t").tolist()


@given(
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from([None, "UTC", "Europe/Berlin", "-03:00"]),
    st.lists(st.integers(-(2**33), 2**33), min_size=1, max_size=5),
)
def test_arrow_timestamps_are_what_arrow_casts_them_to(unit: str, zone: str | None, counts: list[int]) -> None:
    array = pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone))
    wanted = [n * 1000 // PER_SECOND[unit] for n in counts]
    floored = pa.compute.floor_temporal(array.cast(pa.timestamp("ns", zone)), unit="millisecond")
    assert floored.cast(pa.timestamp("ms", zone)).cast(pa.int64()).to_pylist() == wanted
    assert epoch_column_ms(array, "t").tolist() == wanted
    assert epoch_column_ms(pa.chunked_array([array, array]), "t").tolist() == wanted * 2


def test_a_datetime_counts_from_1970() -> None:
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1, 1_999, UTC)
    assert (epoch_ms(moment, "t"), epoch_ms(moment - datetime.timedelta(seconds=2), "t")) == (1_001, -999)


def test_arrow_dates_are_midnights() -> None:
    day = datetime.date(2024, 2, 29)
    for kind in (pa.date32(), pa.date64()):
        assert epoch_column_ms(pa.array([day], kind), "t").tolist() == [1_709_164_800_000]


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_a_datetime_with_a_zone_is_that_instant(when: datetime.datetime) -> None:
    delta = when.astimezone(UTC) - datetime.datetime(1970, 1, 1, tzinfo=UTC)
    wanted = delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
    assert epoch_ms(when, "t") == wanted
    assert epoch_column_ms([when], "t").tolist() == [wanted]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
def test_a_datetime_without_a_zone_is_local_time(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            for when in (datetime.datetime(2024, 1, 1, 0, 0, 1, 1000), datetime.datetime(2024, 7, 1, 12, 0, 0, 999_999)):
                assert epoch_ms(when, "t") == epoch_ms(when.replace(tzinfo=zoneinfo.ZoneInfo(zone)), "t")
    finally:
        time.tzset()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_whole_numbers_stay(numbers: list[int]) -> None:
    assert epoch_column_ms(numbers, "t").tolist() == numbers
    assert [epoch_ms(np.int64(n), "t") for n in numbers] == numbers == [epoch_ms(n, "t") for n in numbers]
    assert epoch_column_ms(pa.array(numbers, pa.int64()), "t").tolist() == numbers


def test_pandas_and_polars_series() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    wanted = [1_704_067_200_123, 1_709_251_199_999]
    for zone in (None, "UTC", "Asia/Kolkata"):
        series = pandas.Series(pandas.to_datetime(wanted, unit="ms", utc=True).tz_convert(zone))
        assert epoch_column_ms(series, "t").tolist() == wanted
        assert [epoch_ms(item, "t") for item in series] == wanted
        frame = polars.Series(wanted, dtype=polars.Int64).cast(polars.Datetime("us")) if zone is None else None
        if frame is not None:
            frame = polars.Series([n * 1000 for n in wanted]).cast(polars.Datetime("us"))
            assert epoch_column_ms(frame, "t").tolist() == wanted
    with pytest.raises(ValueError, match="t has NaT"):
        epoch_ms(pandas.NaT, "t")


@each_row(
    "wrong",
    [1.5, 1_795_433_039.7, np.float64(3), True, np.True_, "1", b"1", None, datetime.date(2024, 1, 1), np.timedelta64(1, "s")],
)
def test_what_is_no_time_is_refused_by_the_name_of_the_argument(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^when must be epoch milliseconds"):
        epoch_ms(wrong, "when")
    with pytest.raises((TypeError, ValueError), match=r"^when"):
        epoch_column_ms([wrong], "when")


@each_row(
    "wrong, says",
    lambda: [
        (np.array([1.0]), r"when\[0\] must be epoch milliseconds.*seconds, as time.time\(\) gives them"),
        (np.array(["NaT"], "datetime64[us]"), "when has NaT at 0"),
        (np.array(["2024", "NaT"], "datetime64"), "when has NaT at 1"),
        (np.array([2**62], "datetime64[D]"), "when has a time that does not fit"),
        (np.array([2**63], np.uint64), "when does not fit 64 bits"),
        ([2**70], r"when\[0\] does not fit 64 bits"),
        ([datetime.datetime(2024, 1, 1), None], r"when\[1\] must be"),
        (np.zeros((2, 2), np.int64), "when must have one dimension"),
        (pa.array([1, None]), "when has nulls"),
        (pa.array([0, None], pa.timestamp("s")), "when has NaT at 1"),
        (np.ma.masked_array([1, 2], [False, True]), "when has masked items"),
        ("2024-01-01", "when must be epoch milliseconds"),
        (["2024-01-01"], r"when\[0\] must be"),
    ],
)
def test_columns_that_hold_no_times_are_refused(wrong: object, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        epoch_column_ms(wrong, "when")


cluster = embedded({"t": 2})


@pytest.fixture
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        yield producer


@each_row(
    "wrong",
    lambda: [1.5, [1.5], np.array([1.5]), 1_795_433_039.7, pa.array([1.5]), np.array(["NaT"], "datetime64[us]"), [None], "1", [-1]],
)
def test_send_many_refuses_what_is_no_time_and_queues_nothing(producer: KafkaProducer, wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^timestamps_ms") as refused:
        producer.send_many("t", [b"x"], timestamps_ms=wrong)
    assert refused.value.appended == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", ["0", ["0"], [0.0], 0.5, [True]])
def test_send_many_refuses_partitions_that_are_no_numbers(producer: KafkaProducer, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^partitions must be whole numbers"):
        producer.send_many("t", [b"x"], partitions=wrong)
    with pytest.raises(UsageError, match="partitions have 31 bits"):
        producer.send_many("t", [b"x"], partitions=[2**32])


def test_nulls_among_partitions_leave_the_choice_in_every_kind_of_column(producer: KafkaProducer) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    given = [1, None, 1]
    for column in (
        pa.array(given, pa.int64()),
        pa.chunked_array([given], pa.int64()),
        polars.Series(given),
        pandas.Series(given, dtype="Int64"),
    ):
        numbers, named = partition_numbers(column)
        assert (numbers.tolist(), named.tolist()) == ([1, -1, 1], [1, 1])
        assert producer.send_many("t", [b"x"] * 3, partitions=column).result(30).partitions[0] == 1
    assert partition_numbers(pa.array([None, None], pa.int32())) == (None, None)


def test_send_many_names_the_value_that_is_no_bytes(producer: KafkaProducer) -> None:
    with pytest.raises(TypeError, match=r"values\[1\] must be bytes-like, str or None, not int; give a value_serializer"):
        producer.send_many("t", [b"a", 1])
    with pytest.raises(TypeError, match=r"keys\[0\] must be bytes-like, str or None, not float; give a key_serializer"):
        producer.send_many("t", [b"a"], keys=[1.5])
    with pytest.raises(TypeError, match=r"^values: .*<U1"):
        producer.send_many("t", np.array(["a"]))
