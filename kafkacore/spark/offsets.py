"""Offsets of a query: their JSON, admission control, splitting, data loss. Pure functions; replays of a batch must get the same answer.

The JSON is that of Spark's own Kafka source, `{"topic":{"0":123}}`, so that a checkpoint written by one is read by the other. The id of
a topic may stand beside it, in the form of a topic without partitions: `"topic@wZ4dAfsRTfWrjyXu4F5S6Q":{}`. Spark's source reads over that,
and no topic can have such a name.

Source: org.apache.spark.sql.kafka010.{JsonUtils, KafkaMicroBatchStream, KafkaOffsetRangeCalculator}.
"""

from __future__ import annotations

import base64
import contextlib
import heapq
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkacore.errors import ConfigError
from kafkacore.types import topic_id_text

LATEST = -1
EARLIEST = -2
TASK_OFFSETS = 1_000
ID_MARK = "@"

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]


class OffsetRange(NamedTuple):
    """Offsets start..end - 1 of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in it; records may be fewer."""
        return self.end - self.start


def to_json(offsets: Offsets, topic_ids: Mapping[str, bytes] | None = None) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them, topics and partitions sorted.

    Args:
        offsets: by partition.
        topic_ids: ids of topics; those of the topics that the offsets name are written, too.
    """
    out: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        out.setdefault(topic, {})[str(partition)] = offset
    if topic_ids is not None:
        out.update({f"{topic}{ID_MARK}{topic_id_text(topic_ids[topic])}": {} for topic in list(out) if topic in topic_ids})
    return out


def topic_ids(data: Mapping[str, object]) -> dict[str, bytes]:
    """The ids of topics in offsets as Spark keeps them, by name; those written by Spark's own source have none.

    Raises:
        ConfigError: an id is malformed.
    """
    found: dict[str, bytes] = {}
    for name in data:
        topic, mark, text = name.partition(ID_MARK)
        if mark:
            if not re.fullmatch(r"[A-Za-z0-9_-]{22}", text):
                raise _malformed("offsets", data)
            found[topic] = base64.urlsafe_b64decode(f"{text}==")
    return found


def from_json(data: object, option: str = "offsets") -> dict[Partition, int]:
    """Reads `{"topic": {"0": 23}}`, as a string or parsed.

    Args:
        data: the JSON.
        option: where it is from, for the error message.

    Raises:
        ConfigError: it has another form.
    """
    if isinstance(data, str):
        with contextlib.suppress(ValueError):
            data = json.loads(data)
    if not isinstance(data, Mapping):
        raise _malformed(option, data)
    out: dict[Partition, int] = {}
    for topic, partitions in data.items():
        if not isinstance(partitions, Mapping):
            raise _malformed(option, data)
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise _malformed(option, data)
            out[str(topic), int(partition)] = offset
    return out


def _malformed(option: str, data: object) -> ConfigError:
    text = data if isinstance(data, str) else json.dumps(data)
    return ConfigError(f'option {option}: expected JSON like {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {text}')


def behind_latest(consumed: Offsets, latest: Offsets) -> dict[str, str]:
    """How far a query is behind, as text under the names of Spark's own source.

    Args:
        consumed: where it stands.
        latest: the ends of the partitions; one that it has not met yet counts from offset 0.

    Returns:
        minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest; empty without partitions.
    """
    behind = [end - consumed.get(each, 0) for each, end in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def limited(start: Offsets, end: Offsets, max_offsets: int) -> dict[Partition, int]:
    """Where a batch ends that takes at most so many offsets, shared out by each partition's backlog.

    Args:
        start: where each partition begins.
        end: where it could end; partitions that shrank stay at their start.
        max_offsets: the limit. A partition with a small share still moves by one, so the sum may be a little more.
    """
    backlog = {each: end[each] - start[each] for each in end if end[each] > start[each]}
    total = sum(backlog.values())
    if total <= max_offsets:
        return dict(end)
    out = {}
    for each, last in end.items():
        if each not in backlog:
            out[each] = start[each]
            continue
        share = max_offsets * backlog[each] / total
        out[each] = min(last, start[each] + (math.ceil(share) if share < 1 else math.floor(share)))
    return out


class Admission:
    """Where the batches of a stream end: as far as there is something, within minOffsetsPerTrigger, maxTriggerDelay and a limit.

    Attributes:
        goal: ends beyond which nothing is taken (Trigger.AvailableNow); None without. With a goal no batch waits to grow.
    """

    def __init__(self, min_offsets: int | None, max_delay_ms: int) -> None:
        """Remembers when a batch was let through; the first one never waits.

        Args:
            min_offsets: a batch waits for so many offsets,
            max_delay_ms: and for no longer than this after the one before.
        """
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None
        self.goal: dict[Partition, int] | None = None

    def end(self, begin: Offsets, newest: Offsets, max_offsets: int | None, may_wait: bool, now_ms: int) -> dict[Partition, int]:
        """The end of the next batch; equal to `begin` while no batch is ready.

        Args:
            begin: where it begins. Partitions it does not name are new and begin at 0.
            newest: the ends of all partitions that are read; none lies before `begin`.
            max_offsets: how much it may take.
            may_wait: whether min_offsets counts.
            now_ms: the time.
        """
        target = dict(newest)
        if self.goal is not None:
            target = {each: min(offset, self.goal[each]) for each, offset in newest.items() if each in self.goal}
        whole = {**dict.fromkeys(target, 0), **begin}
        grown = sum(max(0, offset - whole[each]) for each, offset in target.items())
        if not grown and target.keys() <= begin.keys():
            return dict(begin)
        if (
            may_wait
            and self.goal is None
            and self._min_offsets is not None
            and grown < self._min_offsets
            and self._last_ms is not None
            and now_ms - self._last_ms < self._max_delay_ms
        ):
            return dict(begin)
        self._last_ms = now_ms
        ends = target if max_offsets is None else limited(whole, target, max_offsets)
        # A partition that is not there any more stays as it is: dropped, it would be taken for a new one if it came back.
        return {**begin, **{each: max(offset, whole[each]) for each, offset in ends.items()}}


def split(ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Cuts ranges into tasks: a pure function of what it is given, because a replayed batch must be cut the same way.

    Args:
        ranges: one per partition; empty ones are left out.
        min_partitions: at least about so many pieces; large ranges are cut in proportion to their sizes.
        max_records: no piece spans more offsets.
    """
    pieces = [each for each in sorted(ranges) if each.size > 0]
    if max_records is not None:
        pieces = [part for each in pieces for part in _cut(each, -(-each.size // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions or not pieces:
        return pieces
    # Those below the average get one piece each and leave the others their share.
    small: set[OffsetRange] = set()
    while True:
        total = sum(each.size for each in pieces if each not in small)
        wanted = min_partitions - len(small)
        too_small = {each for each in pieces if each not in small and each.size * wanted < total}
        if not too_small:
            break
        small |= too_small
    return [part for each in pieces for part in _cut(each, 1 if each in small else max(1, round(each.size * wanted / total)))]


def joined(pieces: Sequence[OffsetRange], least: int) -> list[list[OffsetRange]]:
    """Has one task read several pieces where each has few offsets: a task costs Spark about as much as some ten thousand rows.

    A pure function, too. Pieces keep their order, and only neighbours are joined. Records are counted, since nothing is known of their
    sizes when a batch is planned: so there must be tasks enough left for every core, in case that a record takes long.

    Args:
        pieces: from `split`.
        least: how many tasks are left at least, if there are so many pieces.

    Returns:
        The pieces of each task.
    """
    low, high = 0, TASK_OFFSETS
    while low < high:                                           # the largest limit that leaves tasks enough: the larger, the fewer
        limit = (low + high + 1) // 2
        if len(_grouped(pieces, limit)) >= least:
            low = limit
        else:
            high = limit - 1
    return _grouped(pieces, low)


def at_most(tasks: Sequence[list[OffsetRange]], most: int) -> Sequence[list[OffsetRange]]:
    """Has neighbours share tasks until there are no more than so many, the largest of which is as small as possible.

    A pure function, too. Pieces keep their order, and none is cut. Beside a large piece all small ones could share one task: they are
    spread over as many tasks as there may be, as each partition is a question to a broker.

    Args:
        tasks: from `split` or `joined`.
        most: how many there may be.
    """
    if len(tasks) <= most:
        return tasks
    pieces = [each for task in tasks for each in task]
    low, high = max(each.size for each in pieces), sum(each.size for each in pieces)
    while low < high:
        limit = (low + high) // 2
        if len(_grouped(pieces, limit)) <= most:
            high = limit
        else:
            low = limit + 1
    queue = [(-len(task), task) for task in _grouped(pieces, low)]
    heapq.heapify(queue)
    while len(queue) < most:
        _, task = heapq.heappop(queue)                          # that of most pieces
        half = len(task) // 2
        for part in (task[:half], task[half:]):
            heapq.heappush(queue, (-len(part), part))
    return sorted(task for _, task in queue)


def _grouped(pieces: Iterable[OffsetRange], limit: int) -> list[list[OffsetRange]]:
    """Neighbours in groups of at most so many offsets, as few as possible; a larger piece is a group of its own."""
    tasks: list[list[OffsetRange]] = []
    size = limit
    for each in pieces:
        if size + each.size <= limit and tasks:
            tasks[-1].append(each)
            size += each.size
        else:
            tasks.append([each])
            size = each.size
    return tasks


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = max(1, min(count, whole.size))
    bounds = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [OffsetRange(whole.topic, whole.partition, low, high) for low, high in itertools.pairwise(bounds)]


@dataclass(frozen=True)
class Loss:
    """Offsets a query should read and cannot.

    Attributes:
        topic, partition: of which.
        wanted: the offset the query stands at; 0 for a partition that came after its start.
        earliest, latest: what the broker has; None if the partition is gone.
        reason: in words.
    """

    topic: str
    partition: int
    wanted: int
    earliest: int | None
    latest: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.reason}"


def created_again(former: bytes, topic_id: bytes) -> str:
    """What is said of a topic whose id is no longer the one it was; zeros where brokers are too old for ids."""
    ids = f" (its id was {topic_id_text(former)} and is {topic_id_text(topic_id)})" if any(former) and any(topic_id) else ""
    return f"the topic was deleted and created again{ids}"


def losses(
    start: Offsets,
    earliest: Offsets,
    latest: Offsets,
    renewed: Mapping[str, str] | None = None,
    names: Callable[[str, int], bool] = lambda topic, partition: True,
) -> list[Loss]:
    """What cannot be read any more of what follows a query's offsets.

    Args:
        start: the offsets the query stands at.
        earliest: the first offset there is, by partition that exists.
        latest: the end, by partition that exists.
        renewed: topics that were deleted and created again since the query looked last, and what is said of them.
        names: whether the query's options name a partition: one that they do not name may well exist.
    """
    found = []
    for (topic, partition), wanted in sorted(start.items()):
        low, high = earliest.get((topic, partition)), latest.get((topic, partition))
        reason = None
        if (low is None or high is None) and not names(topic, partition):
            reason = f"it is not subscribed any longer: the options of the query do not name it (the query is at offset {wanted})"
        elif low is None or high is None:
            reason = f"the partition no longer exists: the topic was deleted, or has fewer partitions (the query is at offset {wanted})"
        elif renewed and topic in renewed:
            reason = f"{renewed[topic]}; it holds the offsets {low} to {high} (the query is at offset {wanted})"
        elif wanted > high:
            reason = f"its end {high} lies before offset {wanted}, where the query stands: the topic was created again, or lost records"
        elif wanted < low:
            reason = f"the offsets {wanted} to {low - 1} have aged out or were deleted; the log begins at {low}"
        if reason is not None:
            found.append(Loss(topic, partition, wanted, low, high, reason))
    return found


def repaired(start: Offsets, lost: Sequence[Loss], skip: bool) -> dict[Partition, int]:
    """Where a query goes on that tolerates loss.

    Args:
        start: where it stands.
        lost: from `losses`.
        skip: a partition that begins again is read from its end; otherwise from its beginning.

    Returns:
        The offsets to read from; partitions that are gone are left out.
    """
    out = dict(start)
    for each in lost:
        key = each.topic, each.partition
        if each.earliest is None or each.latest is None:
            del out[key]
        elif each.wanted < each.earliest:
            out[key] = each.earliest
        else:
            out[key] = each.latest if skip else each.earliest
    return out
