"""Records and futures under another class: in place, and safe (native/recast.pxi)."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from kafkacore._codec import ConsumerRecord, ProducerCore, RecastSend, RecordFuture, recast_records, recastable


@recastable
class Other(ConsumerRecord):
    """Another name for the value."""

    __slots__ = ()
    answer = 42
    contents = ConsumerRecord.value

    @property
    def twice(self) -> Any:
        return self.value * 2


@recastable
class Another(ConsumerRecord):
    __slots__ = ()


def new_record(value: Any = b"v") -> ConsumerRecord:
    return ConsumerRecord(topic="t", partition=1, offset=2, timestamp_ms=3, key=b"k", value=value, headers=[("h", b"1")], leader_epoch=4)


def test_objects_change_their_class_and_stay_what_they_are() -> None:
    records: list[Any] = [new_record(), "no record", new_record(b"w")]
    first, before = records[0], records[0].value
    recast_records(records, Other)
    assert records[0] is first
    assert type(records[0]) is type(records[2]) is Other
    assert (first.value, first.contents, first.twice, first.answer, first.offset, first.topic) == (before, before, b"vv", 42, 2, "t")
    assert records[1] == "no record"
    recast_records(records, Another)  # those of another class stay
    assert type(records[0]) is Other


def test_references_are_counted() -> None:
    value = b"value" * 100
    held, types = sys.getrefcount(value), sys.getrefcount(Other)
    for _ in range(3_000):  # more than the free list keeps
        records = [new_record(value) for _ in range(3)]
        recast_records(records, Other)
        assert sys.getrefcount(Other) >= types + 3
        del records
    gc.collect()
    assert sys.getrefcount(value) == held
    assert sys.getrefcount(Other) == types
    assert type(new_record()) is ConsumerRecord  # nothing of the other class is on the free list


def test_objects_of_a_further_subclass_end_in_their_own_way() -> None:
    class Further(Other):
        pass

    ended: list[str] = []
    value = b"value" * 100
    held, types = sys.getrefcount(value), (sys.getrefcount(Further), sys.getrefcount(Other))
    for _ in range(2_000):
        made: Any = Further(topic="t", partition=0, offset=1, value=value)
        made.more = made  # a cycle: the collector sees these
        weakref.finalize(made, ended.append, "")
        del made
    gc.collect()
    assert len(ended) == 2_000
    assert (sys.getrefcount(value), sys.getrefcount(Further), sys.getrefcount(Other)) == (held, *types)
    assert type(new_record()) is ConsumerRecord


def test_the_class_is_as_small_and_as_unseen_by_the_collector_as_its_base() -> None:
    records = [new_record()]
    size = sys.getsizeof(records[0])
    recast_records(records, Other)
    assert sys.getsizeof(records[0]) == size
    assert not gc.is_tracked(records[0])
    assert not hasattr(records[0], "__dict__")
    assert (Other.__name__, Other.__module__, Other.__doc__) == ("Other", __name__, "Another name for the value.")


def test_classes_that_are_not_fit_are_refused() -> None:
    class Seen(ConsumerRecord):  # by the collector
        __slots__ = ()

    class Slotted(ConsumerRecord):
        __slots__ = ("more",)

    records = [new_record()]
    for wanted in (Seen, Slotted, str):
        with pytest.raises(TypeError, match="made by recastable"):
            recast_records(records, wanted)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="slots of its own"):
        recastable(Slotted)
    assert type(records[0]) is ConsumerRecord


def test_futures_cannot_be_made_from_outside_under_another_class_either() -> None:
    @recastable
    class Later(RecordFuture):
        __slots__ = ()

    with pytest.raises(TypeError, match="cannot be made from outside"):
        Later()


def test_a_short_cut_needs_an_engine_and_a_class_that_is_fit() -> None:
    engine = ProducerCore()
    with pytest.raises(TypeError, match="made by recastable"):
        RecastSend(engine, Other, print)
    with pytest.raises(TypeError):
        RecastSend(None, Other, print)  # type: ignore[arg-type]
