"""`kafkacore consume --group`: reads as a member of a group and commits what was printed, not what was only fetched.

The position of every partition follows what was printed: what was fetched and not printed is sought back to. So a commit of the positions
is a commit of what was printed, whatever ends the command.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, NoReturn

import typer

from kafkacore import ConsumerRecord, KafkaConsumer, TopicPartition, errors
from kafkacore.cli.options import say
from kafkacore.cli.pipe_end import PipeEnd, descriptor_of
from kafkacore.cli.places import Place, ends_of
from kafkacore.cli.record_choice import Choice, Lines
from kafkacore.cli.terminal import messages, record_progress
from kafkacore.config import ConsumerConfig
from kafkacore.consumer import RebalanceListener
from kafkacore.plurals import counted

MOST_AT_ONCE = 10_000
_PIPE_BUF = 4096  # select(2) says a pipe is writable when it takes so many bytes without blocking
_GOODBYE_S = 5.0


class Stop:
    """Ctrl+C and SIGTERM as something to look at: what is being printed ends with a whole record, and the commit is not interrupted.

    A second signal ends the command at once.

    Attributes:
        signal: the number of the signal that came; 0 before.
        woken: while set, called when a signal comes.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.woken: Callable[[], None] | None = None
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        """Readable once a signal has come."""
        return self._read

    def _note(self, number: int, frame: object) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        os.write(self._write, b"x")
        if self.woken is not None:
            self.woken()

    def end(self) -> NoReturn:
        """Ends the command in the way of the signal that came.

        Raises:
            KeyboardInterrupt: SIGINT; typer.Exit: SIGTERM.
        """
        if self.signal == signal.SIGTERM:
            raise typer.Exit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[Stop]:
        """Signals are noted within the block. Python takes them on the main thread alone: on another one nothing changes."""
        before: dict[int, Any] = {}
        try:
            if threading.current_thread() is threading.main_thread():
                before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._read)
            os.close(self._write)


class Output:
    """Standard output that knows how many records went out whole, also when a signal comes or the reader leaves.

    Args:
        stream: what is written to.
        stop: ends the writing.
        end: the other end of the stream; `write` finds out, too, that it is closed.
    """

    def __init__(self, stream: BinaryIO, stop: Stop, end: PipeEnd) -> None:
        self._raw: Any = getattr(stream, "raw", stream)
        self._stop = stop
        self._descriptor = descriptor_of(self._raw)
        self._end = end

    def write(self, lines: list[bytes]) -> int:
        """Writes lines.

        Returns:
            How many went out whole. Fewer than all when a signal came or the reader has left.
        """
        data = memoryview(b"".join(lines))
        if self._descriptor is None:
            self._raw.write(data)
            return len(lines)
        ends = list(itertools.accumulate(map(len, lines)))
        end, done = len(data), 0
        try:
            while done < end:
                stopped, writable, _ = select.select([self._stop], [self._descriptor], [])
                if stopped:  # the line under way is still written, if the reader takes it
                    end = next((each for each in ends if each >= done), end)
                if done == end or not writable:
                    break
                done += self._raw.write(data[done : min(done + _PIPE_BUF, end)]) or 0
        except BrokenPipeError:
            self._end.closed = True
        return sum(each <= done for each in ends)


class GroupReader(RebalanceListener):
    """A member of a group that prints.

    Args:
        consumer: with a group and without automatic commits.
        output: where records go.
        end: its other end.
        choice: records as they are printed.
        start: where a partition begins for which the group has committed none; None leaves that to auto.offset.reset.
        commits: False only reads.
        to: where to stop, no further than what was there when a partition was assigned; None for no end.

    Attributes:
        count: records printed.
        failed: what was printed last could not be committed.
        cut_off: the reader of the output left before everything was printed.
    """

    def __init__(
        self,
        consumer: KafkaConsumer,
        output: Output,
        end: PipeEnd,
        choice: Choice,
        *,
        start: Place | None,
        commits: bool,
        to: str | Place | None,
    ) -> None:
        self._consumer = consumer
        self._output = output
        self._end = end
        self._choice = choice
        self._start = start
        self._commits = commits
        self._to = to
        self._ends: dict[TopicPartition, int] | None = None if to is None else {}
        self._assigned = False
        self.failed = self.cut_off = False
        self._commit_at = 0.0
        self.count = 0

    # -- what the group gives and takes -------------------------------------------------------------------------------------------

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions without a committed offset begin where --from says."""
        self._assigned = True
        if not partitions:
            return
        consumer = self._consumer
        if self._start is not None:
            committed = _again(lambda: consumer.committed(partitions))
            fresh = [tp for tp in partitions if committed[tp] is None]
            for topic in sorted({tp.topic for tp in fresh}):
                seek_to(consumer, [tp for tp in fresh if tp.topic == topic], self._start)
        if self._ends is not None and self._to is not None:
            to = self._to
            self._ends.update(_again(lambda: ends_of(consumer, partitions, to)))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """What was printed is committed before other members go on there, and before this member leaves.

        A failure is a warning: all that it costs is that records are read again.
        """
        if not self._commits:
            return
        try:
            _again(lambda: self._consumer.commit(timeout=_GOODBYE_S))
            self.failed = False
        except errors.KafkaError as error:
            self._warn(str(error))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing can be committed for them any more."""
        if self._commits:
            self._warn("other members have these partitions already")

    def _warn(self, why: str) -> None:
        self.failed = True
        messages.print(f"kafkacore: warning: what was printed since the last commit will be read again: {why}")

    # -- reading ------------------------------------------------------------------------------------------------------------------

    def read(self, stop: Stop, most: int | None, bar: Any) -> None:
        """Prints until a signal, `most` records or the end, or until the reader of the output has left."""
        consumer = self._consumer
        interval_s = consumer.config.auto_commit_interval_ms / 1000
        self._commit_at = time.monotonic() + interval_s
        while not stop.signal and (most is None or self.count < most) and not self._at_end():
            if self._end.closed:
                self.cut_off = True
                return
            polled: dict[TopicPartition, list[ConsumerRecord]] = {}
            stop.woken = self._end.notify = consumer.wakeup
            try:
                if not stop.signal and not self._end.closed:
                    left = MOST_AT_ONCE if most is None or self._choice.chooses else min(MOST_AT_ONCE, most - self.count)
                    polled = consumer.poll(min(interval_s, 1.0), left)
            except errors.WakeupError:
                pass
            except errors.MaxPollExceeded as error:  # the reader took nothing for so long; the next poll joins again
                messages.print(f"kafkacore: warning: {error}")
            finally:
                stop.woken = self._end.notify = None
            self._print(polled, most)
            bar.update(bar.task_ids[0], completed=self.count)
            if self._commits and (now := time.monotonic()) >= self._commit_at:
                self._commit_at = now + interval_s
                with contextlib.suppress(errors.CommitFailed):  # the next poll joins again
                    consumer.commit_async()

    def _print(self, polled: dict[TopicPartition, list[ConsumerRecord]], most: int | None) -> None:
        """Prints what was polled; the position goes back to what could not be printed."""
        stopped = False
        failure: Exception | None = None
        for tp, records in polled.items():
            wanted = records
            if self._ends is not None:
                wanted = [record for record in records if record.offset < self._ends[tp]]
            chosen = self._choice(wanted) if not stopped else Lines([], [], 0)
            room = len(chosen.lines) if most is None else most - self.count
            lines = chosen.lines[:room]
            written = 0
            try:
                written = self._output.write(lines) if lines else 0
            except OSError as error:  # a full disk: how much of the lines is in the file is not known
                failure = error
            self.count += written
            done = chosen.end if written == len(chosen.lines) else chosen.rows[written]
            failure = failure or (chosen.failure if written == len(chosen.lines) else None)
            stopped = stopped or written < len(chosen.lines) or chosen.failure is not None
            if done < len(records):
                self._consumer.seek(tp, records[done].offset)
        if failure is not None:
            raise failure

    def _at_end(self) -> bool:
        if self._ends is None or not self._assigned:
            return False
        owned = self._consumer.assignment()
        reached = [tp for tp in owned if _again(lambda tp=tp: self._consumer.position(tp)) >= self._ends[tp]]  # type: ignore[misc]
        self._consumer.pause(*reached)
        return len(reached) == len(owned)


def _again(call: Callable[[], Any]) -> Any:
    """Calls; once more if a signal that came shortly before woke it."""
    try:
        return call()
    except errors.WakeupError:
        return call()


def seek_to(consumer: KafkaConsumer, where: list[TopicPartition], wanted: Place) -> None:
    """Moves to a place, in partitions that do not hold it to the nearest they have: others may be longer."""
    places = _again(lambda: wanted.find(consumer, where))
    first, end = _again(lambda: consumer.beginning_offsets(where)), _again(lambda: consumer.end_offsets(where))
    moved = []
    for tp in where:
        offset = min(max(places[tp], first[tp]), end[tp])
        consumer.seek(tp, offset)
        if wanted.kind == "offset" and offset != wanted.number:
            held = f"holds {first[tp]} to {end[tp] - 1}" if first[tp] < end[tp] else "is empty"
            moved.append(f"partition {tp.partition} {held} and is read from {offset} on")
    if moved:
        say(f"kafkacore: {where[0].topic} has no offset {wanted.number} everywhere: {'; '.join(moved)}", err=True)


def consume_as_member(
    config: ConsumerConfig,
    topics: list[str],
    choice: Choice,
    *,
    start: Place | None,
    most: int | None,
    to: str | Place | None,
    quiet: bool,
) -> tuple[int, bool]:
    """Reads topics as a member of `config.group_id` and prints them.

    Args:
        config: the settings; with enable_auto_commit=false nothing is committed.
        topics: names.
        choice, start, to: as for `GroupReader`.
        most: stop after so many records; None for no end.
        quiet: after a signal, do not say what was done.

    Returns:
        How many records were printed, and whether they are committed.

    Raises:
        KeyboardInterrupt: Ctrl+C; typer.Exit: SIGTERM. The member has committed and left.
        BrokenPipeError: the reader of the output has left; likewise.
        errors.KafkaError: reading failed.
    """
    commits = config.enable_auto_commit
    settings = {name: getattr(config, name) for name in config.given} | {"enable_auto_commit": False}
    sys.stdout.flush()
    with Stop().on_signals() as stop, PipeEnd().watched(sys.stdout.buffer) as end:
        output = Output(sys.stdout.buffer, stop, end)
        with KafkaConsumer(settings) as consumer, record_progress(", ".join(topics), most, visible=not sys.stdout.isatty()) as bar:
            stop.woken = consumer.wakeup
            try:
                for topic in topics:
                    consumer.partitions_for(topic)  # one that is not there is an error, not a long wait
            except errors.WakeupError:
                stop.end()
            stop.woken = None
            reader = GroupReader(consumer, output, end, choice, start=start, commits=commits, to=to)
            consumer.subscribe(topics, listener=reader)
            reader.read(stop, most, bar)
            if stop.signal:
                consumer.close(_GOODBYE_S)  # the user waits, and brokers that are down do not answer
        if reader.cut_off:
            raise BrokenPipeError
        if reader.failed and not stop.signal:
            raise typer.Exit(1)
    committed = commits and not reader.failed
    if stop.signal:
        if not quiet and not sys.stdout.isatty():
            messages.print(f"{counted(reader.count, 'record')} of {describe(topics, config, committed)}")
        stop.end()
    return reader.count, committed


def describe(topics: list[str], config: ConsumerConfig, committed: bool) -> str:
    """What was read, for people."""
    return f"{', '.join(topics)}, {'committed' if committed else 'not committed'} for group {config.group_id}"
