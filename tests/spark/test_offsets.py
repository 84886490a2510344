"""Offset arithmetic of the Spark source: JSON, admission control, splitting, losses."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkacore.errors import ConfigError
from kafkacore.spark import offsets
from kafkacore.spark.offsets import OffsetRange
from tests.kit.reached import Reached
from tests.kit.rows import each_row

partitions = st.tuples(st.sampled_from(["a", "b.c", "über"]), st.integers(0, 12))
offset_maps = st.dictionaries(partitions, st.integers(0, 2**62), max_size=8)


def test_json_is_the_connectors() -> None:
    # as seen in a checkpoint of spark-sql-kafka-0-10
    text = '{"topic":{"0":300,"1":300}}'
    assert json.dumps(offsets.to_json(offsets.from_json(text)), separators=(",", ":")) == text


@given(offset_maps)
def test_json_goes_both_ways(given_offsets: dict[tuple[str, int], int]) -> None:
    assert offsets.from_json(json.loads(json.dumps(offsets.to_json(given_offsets)))) == given_offsets


@each_row("bad", ["{bad", "word", "[]", '{"t":5}', '{"t":{"x":1}}', '{"t":{"0":"1"}}', '{"t":{"0":true}}', '{"t":{"-1":1}}'])
def test_other_json_is_refused_with_an_example(bad: str) -> None:
    with pytest.raises(ConfigError, match=r'option startingOffsets: expected JSON like {"topicA"') as error:
        offsets.from_json(bad, "startingOffsets")
    assert str(error.value).endswith(f", got {bad.replace(':', ': ')}")


def test_limit_is_shared_out_by_backlog() -> None:
    start, end = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 500, ("t", 1): 500}
    assert offsets.limited(start, end, 600) == {("t", 0): 300, ("t", 1): 300}
    assert offsets.limited({("t", 0): 0, ("t", 1): 0}, {("t", 0): 10_000, ("t", 1): 1}, 100) == {("t", 0): 99, ("t", 1): 1}


limits = Reached("all", "limited", "a share below one", "nothing in a partition")


@limits.by
@given(st.dictionaries(partitions, st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 70])), min_size=1, max_size=5), st.integers(1, 40))
def test_limit_keeps_within_bounds_and_always_moves(backlogs: dict[tuple[str, int], tuple[int, int]], most: int) -> None:
    start = {each: low for each, (low, _) in backlogs.items()}
    end = {each: low + size for each, (low, size) in backlogs.items()}
    until = offsets.limited(start, end, most)
    assert until.keys() == end.keys()
    assert all(start[each] <= until[each] <= end[each] for each in end)
    assert sum(until[each] - start[each] for each in end) <= most + len(end)
    assert until == end or any(until[each] > start[each] for each in end)
    assert all(until[each] > start[each] for each in end if end[each] > start[each])
    sizes = [size for _, size in backlogs.values()]
    limits("all" if until == end else "limited")
    limits("a share below one", any(0 < size * most < sum(sizes) for size in sizes))
    limits("nothing in a partition", until != end and 0 in sizes)


def ranges_of(*sizes: int, least: int = 0) -> st.SearchStrategy[list[OffsetRange]]:
    drawn = st.lists(st.sampled_from(sizes), min_size=least, max_size=8)
    return drawn.map(ranges_with)


def ranges_with(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", partition, partition, partition + size) for partition, size in enumerate(sizes)]


cuts = Reached("by records", "to have tasks enough", "a small one stays whole", "an empty one")


@cuts.by
@given(ranges_of(0, 1, 9, 1_000, least=2), st.sampled_from([None, 4, 9, 12]), st.sampled_from([None, None, 5, 90]))
@example(ranges_with([9, 1_000]), 9, None)
def test_pieces_cover_every_offset_once_in_order(wanted: list[OffsetRange], least: int | None, most: int | None) -> None:
    pieces = offsets.split(wanted, least, most)
    joined: dict[int, list[int]] = {}
    for piece in pieces:
        assert piece.size > 0
        assert most is None or piece.size <= most
        bounds = joined.setdefault(piece.partition, [piece.start, piece.start])
        assert bounds[1] == piece.start
        bounds[1] = piece.end
    whole = {each.partition: [each.start, each.end] for each in wanted if each.size}
    assert joined == whole
    assert pieces == offsets.split(list(reversed(wanted)), least, most)
    if least is not None and sum(each.size for each in wanted) >= 100 * least and most is None:
        assert len(pieces) >= least - len(wanted)
    for_tasks = most is None and len(pieces) > len(whole)
    cuts("by records", most is not None and len(pieces) > len(whole))
    cuts("to have tasks enough", for_tasks)
    cuts("a small one stays whole", for_tasks and any(each in pieces for each in wanted))
    cuts("an empty one", len(whole) < len(wanted))


shares = Reached("shared", "more than a task holds", "fewer pieces than tasks", "tasks for every core")


@shares.by
@given(ranges_of(1, 1, 300, 999, offsets.TASK_OFFSETS + 1, least=3), st.integers(2, 6))
@example(ranges_with([1, 1, 1]), 6)
def test_small_pieces_share_a_task_in_their_order_and_leave_tasks_enough(wanted: list[OffsetRange], least: int) -> None:
    pieces = sorted(wanted)
    tasks = offsets.joined(pieces, least)
    sizes = [sum(each.size for each in task) for task in tasks]
    assert [each for task in tasks for each in task] == pieces
    assert all(size <= offsets.TASK_OFFSETS or len(task) == 1 for task, size in zip(tasks, sizes, strict=True))
    assert len(tasks) >= min(least, len(pieces))
    fewest = offsets.joined(pieces, 1)
    fewest_sizes = [sum(each.size for each in task) for task in fewest]
    assert all(size + task[0].size > offsets.TASK_OFFSETS for size, task in zip(fewest_sizes, fewest[1:], strict=False))
    assert len(tasks) >= len(fewest)
    shares("shared", len(tasks) < len(pieces))
    shares("more than a task holds", max(sizes, default=0) > offsets.TASK_OFFSETS)
    shares("fewer pieces than tasks", len(pieces) < least)
    shares("tasks for every core", len(fewest) < len(tasks) < len(pieces))


def test_eight_small_partitions_are_a_task_for_every_core() -> None:
    pieces = [OffsetRange("t", partition, 0, 100) for partition in range(8)]
    assert [len(offsets.joined(pieces, least)) for least in (1, 2, 4, 8, 9)] == [1, 2, 4, 8, 8]
    lopsided = [OffsetRange("t", 0, 0, 900), *(OffsetRange("t", partition, 0, 1) for partition in range(1, 8))]
    assert len(offsets.joined(lopsided, 4)) >= 4


def test_large_ranges_are_cut_and_small_ones_left_whole() -> None:
    pieces = offsets.split([OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 0, 10)], 4, None)
    assert [each.partition for each in pieces] == [0, 0, 0, 1]


def test_losses_name_what_happened() -> None:
    start = {("t", 0): 500, ("t", 1): 500, ("t", 2): 500, ("t", 3): 5}
    earliest, latest = {("t", 0): 600, ("t", 1): 0, ("t", 3): 0}, {("t", 0): 900, ("t", 1): 50, ("t", 3): 9}
    found = offsets.losses(start, earliest, latest)
    assert [(each.partition, each.earliest, each.latest) for each in found] == [(0, 600, 900), (1, 0, 50), (2, None, None)]
    assert "offsets 500 to 599 have aged out" in str(found[0])
    assert "its end 50 lies before offset 500" in str(found[1])
    assert "the partition no longer exists" in str(found[2])
    assert offsets.repaired(start, found, skip=False) == {("t", 0): 600, ("t", 1): 0, ("t", 3): 5}
    assert offsets.repaired(start, found, skip=True) == {("t", 0): 600, ("t", 1): 50, ("t", 3): 5}


def test_a_partition_that_the_options_do_not_name_is_not_called_deleted() -> None:
    start = {("left", 0): 5, ("t", 0): 5}
    found = offsets.losses(start, {}, {}, names=lambda topic, partition: topic == "t")
    assert [str(each) for each in found] == [
        "left-0: it is not subscribed any longer: the options of the query do not name it (the query is at offset 5)",
        "t-0: the partition no longer exists: the topic was deleted, or has fewer partitions (the query is at offset 5)",
    ]


def test_a_topic_made_anew_is_a_loss_even_if_it_has_grown_past_the_query() -> None:
    [loss] = offsets.losses({("t", 0): 500}, {("t", 0): 0}, {("t", 0): 800}, renewed={"t": offsets.created_again(b"a" * 16, b"b" * 16)})
    assert "created again" in str(loss)
    assert offsets.repaired({("t", 0): 500}, [loss], skip=False) == {("t", 0): 0}


def tasks_needed(sizes: list[int], largest: int) -> float:
    """How many neighbours-in-a-row there are of at most this size each."""
    if max(sizes) > largest:
        return math.inf
    count, room = 0, 0
    for size in sizes:
        if size > room:
            count, room = count + 1, largest
        room -= size
    return count


few = Reached("as they are", "fewer", "more tasks than the sizes ask for")


@few.by
@given(st.lists(st.sampled_from([1, 2, 500]), min_size=3, max_size=12), st.integers(2, 8))
@example([500, 1, 1, 1, 1], 4)
def test_no_more_tasks_than_are_wanted(sizes: list[int], most: int) -> None:
    pieces = [OffsetRange("t", i, 0, size) for i, size in enumerate(sizes)]
    tasks = offsets.at_most([[each] for each in pieces], most)
    assert [each for task in tasks for each in task] == pieces  # nothing is lost, cut or moved
    assert len(tasks) == min(most, len(sizes)) and all(tasks)
    found = [sum(each.size for each in task) for task in tasks]
    sums = {sum(sizes[low:high]) for low in range(len(sizes)) for high in range(low + 1, len(sizes) + 1)}
    assert len(sizes) <= most or max(found) == min(each for each in sums if tasks_needed(sizes, each) <= most)
    few("as they are" if len(sizes) <= most else "fewer")
    few("more tasks than the sizes ask for", len(sizes) > most and any(one + two <= max(found) for one, two in itertools.pairwise(found)))


def test_the_largest_of_few_tasks_is_as_small_as_possible() -> None:
    pieces = [[OffsetRange("t", i, 0, size)] for i, size in enumerate([5, 1, 1, 1, 5, 9])]
    assert [[each.size for each in task] for task in offsets.at_most(pieces, 3)] == [[5, 1, 1, 1], [5], [9]]
    assert [[each.size for each in task] for task in offsets.at_most(pieces, 4)] == [[5, 1], [1, 1], [5], [9]]
    assert [len(offsets.at_most(pieces, most)) for most in (1, 2, 5, 6, 7)] == [1, 2, 5, 6, 6]
    assert offsets.at_most(pieces, 6) is pieces


# ---- where batches end


ends = Reached("limited", "waits", "waits no longer", "a goal", "nothing at first")


@ends.by
@given(
    st.dictionaries(partitions, st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 40])), min_size=1, max_size=4),
    st.sampled_from([None, 3, 10, 30]),
    st.sampled_from([None, 30, 60]),
    st.sampled_from([False, False, True]),
)
def test_batches_reach_the_end_and_never_pass_the_goal(
    backlogs: dict[tuple[str, int], tuple[int, int]], most: int | None, least: int | None, with_goal: bool
) -> None:
    admission = offsets.Admission(least, 1_000)
    begin = {each: low for each, (low, _) in backlogs.items()}
    newest = {each: low + size for each, (low, size) in backlogs.items()}
    admission.goal = dict(newest) if with_goal else None
    later = {each: offset + 10 for each, offset in newest.items()} | {("new", 0): 5} if with_goal else newest
    ends("nothing at first", begin == newest)
    now_ms, last_ms = 0, -1_000
    while True:
        end = admission.end(begin, later, most, True, now_ms)
        assert end.keys() == newest.keys() and all(begin[each] <= end[each] <= newest[each] for each in end)
        left = sum(newest[each] - begin[each] for each in begin)
        short = least is not None and left < least
        if end == begin:
            if not left:
                break
            assert short and not with_goal and 0 < now_ms - last_ms < 1_000
            ends("waits")
            now_ms += 500
            continue
        assert with_goal or not short or now_ms - last_ms >= 1_000
        took = sum(end[each] - begin[each] for each in end)
        assert most is None or took <= most + len(end)
        ends("limited", took < left)
        ends("waits no longer", short and last_ms >= 0)
        ends("a goal", with_goal)
        begin, last_ms, now_ms = end, now_ms, now_ms + 500
    assert begin == newest


def test_a_partition_that_goes_keeps_its_offset_and_a_new_one_begins_at_zero() -> None:
    admission = offsets.Admission(None, 0)
    assert admission.end({("t", 0): 7, ("t", 1): 9}, {("t", 1): 12, ("t", 2): 4}, None, True, 0) == {("t", 0): 7, ("t", 1): 12, ("t", 2): 4}
    assert admission.end({("t", 0): 7}, {("t", 0): 7, ("t", 1): 0}, None, True, 0) == {("t", 0): 7, ("t", 1): 0}


# ---- exact answers


def test_shares_and_pieces_are_rounded_down() -> None:
    assert offsets.limited({("t", 0): 1, ("t", 1): 0}, {("t", 0): 4, ("t", 1): 7}, 5) == {("t", 0): 2, ("t", 1): 3}
    assert offsets.limited({("t", 0): 9, ("t", 1): 0}, {("t", 0): 4, ("t", 1): 7}, 5) == {("t", 0): 9, ("t", 1): 5}
    pieces = offsets.split([OffsetRange("t", 0, 5, 15), OffsetRange("t", 1, 0, 4)], None, 4)
    assert [each[1:] for each in pieces] == [(0, 5, 8), (0, 8, 11), (0, 11, 15), (1, 0, 4)]
    assert [each[1:] for each in offsets.split([OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 30)], 4, None)] == [
        *((0, 0, 30), (0, 30, 60), (0, 60, 90)),
        (1, 0, 30),
    ]


def test_how_far_a_query_is_behind() -> None:
    found = offsets.behind_latest({("t", 0): 3, ("t", 2): 8}, {("t", 0): 10, ("t", 1): 4, ("t", 2): 9})
    assert found == {"minOffsetsBehindLatest": "1", "maxOffsetsBehindLatest": "7", "avgOffsetsBehindLatest": "4.0"}
    assert offsets.behind_latest({("t", 0): 3}, {}) == {}


def test_ids_of_topics_stand_beside_their_offsets() -> None:
    ids = {"a": bytes(16), "b": b"\xff" * 16, "unread": b"u" * 16}
    data = offsets.to_json({("b", 1): 5, ("b", 0): 4, ("a", 0): 3, ("none", 0): 2}, ids)
    assert list(data) == ["a", "b", "none", f"a@{'A' * 22}", f"b@{'_' * 21}w"] and data["b"] == {"0": 4, "1": 5}
    assert offsets.topic_ids(data) == {"a": ids["a"], "b": ids["b"]}
    assert offsets.from_json(data) == {("a", 0): 3, ("b", 0): 4, ("b", 1): 5, ("none", 0): 2}
    for wrong in ("A" * 21, "A" * 23, "=" * 22):
        with pytest.raises(ConfigError, match="option offsets: expected JSON"):
            offsets.topic_ids({"a": {}, f"b@{wrong}": {}})


def test_nothing_is_lost_at_the_borders_of_a_log() -> None:
    at = {("t", 0): 5, ("t", 1): 9}
    assert offsets.losses(at, {("t", 0): 5, ("t", 1): 5}, {("t", 0): 9, ("t", 1): 9}, renewed={"other": ""}) == []
    lost = offsets.losses({("t", 0): 4, ("t", 1): 10}, {("t", 0): 5, ("t", 1): 5}, {("t", 0): 9, ("t", 1): 9})
    assert [str(each).partition(" aged")[0] for each in lost] == [
        "t-0: the offsets 4 to 4 have",
        "t-1: its end 9 lies before offset 10, where the query stands: the topic was created again, or lost records",
    ]
    lost = offsets.losses({("t", 0): 5, ("u", 0): 5}, {("t", 0): 5}, {("t", 0): 9, ("u", 0): 9}, renewed={"t": "renewed"})
    assert [each.reason.partition(":")[0] for each in lost] == [
        "renewed; it holds the offsets 5 to 9 (the query is at offset 5)",
        "the partition no longer exists",
    ]
    assert offsets.repaired(at, lost[:1], skip=True) == {("t", 0): 9, ("t", 1): 9}
    known, none = b"k" * 16, bytes(16)
    assert [("its id was" in offsets.created_again(*ids)) for ids in ((known, known), (known, none), (none, known))] == [True, False, False]
