"""`kafkacore produce` and `kafkacore consume`: lines in, lines out."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore.cli import completion
from kafkacore.cli.member import MOST_AT_ONCE, Output, Stop, consume_as_member, describe, seek_to
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    PATIENCE_MS,
    Bootstrap,
    Failure,
    Json,
    Settings,
    admin_client,
    client_settings,
    print_json,
    registry_of,
    say,
    sentence,
    separator_of,
)
from kafkacore.cli.pipe_end import PipeEnd
from kafkacore.cli.places import HELP as PLACES
from kafkacore.cli.places import Place, ends_of, place_of
from kafkacore.cli.record_choice import COLUMNS, Choice, Where
from kafkacore.cli.record_text import TEMPLATES, LineReader, ObjectReader, Wrong, line_maker, template_of
from kafkacore.cli.registry_text import FORMATS, RegistryText
from kafkacore.cli.setting_files import was_typed
from kafkacore.cli.terminal import byte_progress, messages, record_progress
from kafkacore.config import ConsumerConfig, ProducerConfig
from kafkacore.plurals import counted
from kafkacore.producer import BatchFuture

CHUNK_BYTES = 1 << 20
_AS_JSON = "avro, protobuf, json: values of a schema registry's wire format, printed as JSON; each names its schema."
STANDARD_INPUT = Path("-")
_GOODBYE_S = 5.0


def _chunks_of_lines(source: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """Whole lines of a stream, many at a time, with the bytes they took. A pipe gives what is there, not only full chunks."""
    read = getattr(source, "read1", source.read)
    rest = b""
    while piece := read(CHUNK_BYTES):
        head, newline, tail = piece.rpartition(b"\n")
        if not newline:
            rest += piece
            continue
        lines = (rest + head).split(b"\n")
        rest = tail
        yield lines, sum(map(len, lines)) + len(lines)
    if rest:
        yield [rest], len(rest)


class _Delivery:
    """What of the records sent so far has been acknowledged."""

    def __init__(self) -> None:
        self._waiting: deque[BatchFuture] = deque()
        self.records = 0

    def add(self, batch: BatchFuture) -> None:
        """Waits for one more; looks at those that are settled."""
        self._waiting.append(batch)
        while self._waiting and self._waiting[0].done():
            self._take(0)

    def finish(self, timeout: float | None = None) -> None:
        """Waits for all."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._waiting:
            self._take(None if end is None else max(0.0, end - time.monotonic()))

    def _take(self, timeout: float | None) -> None:
        result: Any = self._waiting[0].result(timeout)
        self._waiting.popleft()
        self.records += len(result) - len(result.errors)
        if result.errors:
            first = next(iter(result.errors.values()))
            verb = "was" if len(result.errors) == 1 else "were"
            raise Failure(f"{len(result.errors):,} of the last {counted(len(result), 'record')} {verb} not delivered: {first}")

    def at_last(self) -> str:
        """How many were delivered when the command ends early, for a message; waits a little for those under way."""
        with suppress(errors.KafkaError, KeyboardInterrupt):
            end = time.monotonic() + _GOODBYE_S
            while self._waiting:
                with suppress(Failure):
                    self.finish(max(0.0, end - time.monotonic()))
        return counted(self.records, "record")


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.", autocompletion=completion.topics)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Files of lines, one record each; standard input for -, or when none is named."),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("-k", "--key-separator", metavar="TEXT", help="What stands between key and value; no keys without it.")
    ] = None,
    compression: Annotated[
        str, typer.Option("-c", "--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.", autocompletion=completion.CODECS)
    ] = "none",
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            help="Send each file in a transaction of its own under this name: readers of committed data see the whole file, or nothing "
            "of it. Another command with the same name is fenced.",
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="raw|json",
            autocompletion=completion.words("raw", "json"),
            help="raw: lines are values. json: an object each, as consume --json prints it.",
        ),
    ] = "raw",
    key: Annotated[str | None, typer.Option("--key", help="The key of every record.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", metavar="NAME=VALUE", help="A header of every record, behind those of an object; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("-p", "--partition", min=-1, help="The partition of every record; without it, or with -1, the key decides."),
    ] = None,
    keep_partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="With --format json: records go to the partitions that their objects name."),
    ] = False,
    timestamp_ms: Annotated[
        int | None, typer.Option("--timestamp", metavar="MS", min=0, help="The time of every record, in milliseconds since 1970.")
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="The text that means a null key or value (a tombstone); '' for empty ones.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Send the lines of files, or of standard input, to a topic: one record a line.

    Dead letters once more: `kafkacore consume dead -e --from earliest --json | kafkacore produce flights --format json -H replayed=1`.
    """
    reader = _reader(form, key_separator, key, header, partition, timestamp_ms, null, keep_partitions)
    sources: list[Path | None] = [None if file == STANDARD_INPUT else file for file in files or [STANDARD_INPUT]]
    if sources.count(None) > 1:
        raise typer.BadParameter("standard input can be read once", param_hint="FILE")
    sizes = [file.stat().st_size for file in sources if file is not None]  # a missing file is found before anything is sent
    total_bytes = None if None in sources else sum(sizes)
    sent = sent_bytes = 0
    start = time.monotonic()
    mine = {"compression.type": compression} if was_typed("compression") else {}
    if transactional_id is not None:
        mine["transactional.id"] = transactional_id
    settings = client_settings(bootstrap_server, setting, kind=ProducerConfig, typed=mine, **{"max.block.ms": PATIENCE_MS})
    typed = None in sources and sys.stdin.isatty()
    with KafkaProducer(settings) as producer, byte_progress(topic, total_bytes or None, visible=not (json or typed)) as bar:
        transactional = producer.config.transactional_id is not None
        if transactional:
            producer.init_transactions()
        if typed:
            say("each line is a record; Ctrl+D ends", err=True)
        delivery = _Delivery()
        committed = 0
        compared: set[str] = set()
        try:
            for source in sources:
                name, line_number = ("standard input", 1) if source is None else (str(source), 1)
                stream: BinaryIO = sys.stdin.buffer if source is None else source.open("rb")
                with stream, producer.transaction() if transactional else nullcontext():
                    for lines, size in _chunks_of_lines(stream):
                        if form == "raw" and not sent and _is_of_consume(lines[0]):
                            say(f"the lines, as those of consume --json, are sent as values; {OF_CONSUME}", err=True)
                        try:
                            for call in reader.calls(lines):
                                delivery.add(producer.send_many(topic, **call))
                                line_number += len(call["values"])
                        except Wrong as wrong:
                            raise Failure(f"{name}, line {line_number:,}: {wrong}") from None
                        if isinstance(reader, ObjectReader) and (new := reader.sources - compared):
                            if keep_partitions:
                                _compare_partitions(topic, new, bootstrap_server, setting)
                            elif not compared and partition is None and reader.left_out and len(producer.partitions_for(topic)) > 1:
                                say("keys decide on partitions; --keep-partitions sends records to those that they came from", err=True)
                            compared |= new
                        sent += len(lines)
                        sent_bytes += size
                        bar.update(bar.task_ids[0], advance=size, records=counted(sent, "record"))
                committed += 1
            delivery.finish()
        except (Failure, errors.KafkaError, OSError, KeyboardInterrupt) as ended:
            # What a transaction wrote and did not commit, nobody reads.
            arrived = f"{counted(committed, 'file')} committed" if transactional else f"{delivery.at_last()} delivered"
            if isinstance(ended, KeyboardInterrupt):
                say(f"{arrived} to {topic}", err=True)
                raise
            raise Failure(f"{_reason(ended)}; {arrived} before") from ended
    seconds = time.monotonic() - start
    if json:
        done = {"transactions": len(sources)} if transactional else {}
        print_json({"topic": topic, "records": sent, "bytes": sent_bytes, "seconds": round(seconds, 6), **done})
    else:
        messages.print(f"{counted(sent, 'record')}, {counted(sent_bytes, 'byte')} to {topic} in {seconds:.2f} s")


def _compare_partitions(topic: str, sources: set[str], bootstrap_server: str, setting: list[str] | None) -> None:
    """Says which topics have not as many partitions as the one that records go to with their numbers: keys would be found elsewhere."""
    with admin_client(bootstrap_server, setting) as admin:
        infos = admin.describe_topics([topic, *sorted(sources - {topic})]).succeeded
    counts = {name: len(info.partitions) for name, info in infos.items()}
    for source in sorted(sources - {topic}):
        if topic in counts and counts.get(source, counts[topic]) != counts[topic]:
            here = f"{topic} has {counts[topic]:,}"
            say(f"{source} has {counted(counts[source], 'partition')}, {here}: without --keep-partitions keys decide", err=True)


OF_CONSUME = "with --format json their keys, values and headers are"


def _is_of_consume(line: bytes) -> bool:
    """Whether `consume --json` has printed it: with --json alone, which here is the summary's form, it would be a value."""
    return line.startswith(b'{"topic":"') and b'","partition":' in line and b',"offset":' in line and b',"timestamp_ms":' in line


def _reader(
    form: str,
    key_separator: str | None,
    key: str | None,
    header: list[str] | None,
    partition: int | None,
    timestamp_ms: int | None,
    null: str | None,
    keep_partitions: bool,
) -> LineReader | ObjectReader:
    """What makes lines records."""
    if form not in ("raw", "json"):
        raise typer.BadParameter("must be raw or json", param_hint="--format")
    partition = None if partition == -1 else partition
    if keep_partitions and (form != "json" or partition is not None):
        raise typer.BadParameter("is for --format json, without --partition", param_hint="--keep-partitions")
    if form == "json":
        given: dict[str, Any] = {"--key-separator": key_separator, "--key": key, "--timestamp": timestamp_ms, "--null": null}
        for name, value in given.items():
            if value is not None:
                raise typer.BadParameter("with --format json the objects say it", param_hint=name)
        return ObjectReader(partition, keep_partitions=keep_partitions, headers=_headers(header))
    if key is not None and key_separator is not None:
        raise typer.BadParameter("either a key for all, or one before the separator in each line", param_hint="--key")
    return LineReader(
        separator=None if key_separator is None else separator_of(key_separator),
        key=None if key is None else os.fsencode(key),
        null=None if null is None else os.fsencode(null),
        headers=_headers(header),
        partition=partition,
        timestamp_ms=timestamp_ms,
    )


def _headers(words: list[str] | None) -> list[tuple[str, bytes | None]]:
    """Of NAME=VALUE words; a name may stand twice."""
    headers: list[tuple[str, bytes | None]] = []
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--header")
        headers.append((name, os.fsencode(value)))
    return headers


def _reason(ended: BaseException) -> str:
    if isinstance(ended, OSError) and not isinstance(ended, errors.KafkaError):
        return f"{ended.filename}: {ended.strerror}" if ended.filename else str(ended.strerror or ended)
    return sentence(ended)


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to read.", autocompletion=completion.topics)],
    group: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--group",
            metavar="GROUP",
            autocompletion=completion.groups,
            help="Read as a member of this group and commit what was printed (not with -X enable.auto.commit=false).",
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            autocompletion=completion.words("earliest", "latest"),
            help=f"Where to begin in every partition. {PLACES}. One that does not hold the offset is "
            "read from its nearest, and said so. With --group it counts where the group has committed no offset.",
        ),
    ] = "latest",
    most: Annotated[int | None, typer.Option("-n", "--max", min=1, help="Stop after so many records.")] = None,
    partition: Annotated[int | None, typer.Option("-p", "--partition", min=0, help="Only this partition.")] = None,
    exit_at_end: Annotated[bool, typer.Option("-e", "--exit-at-end", help="Stop at the records that are there at the start.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            autocompletion=completion.words("latest"),
            help="Stop before this place, written as for --from, and no further than what is there at the start.",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="Only records with this key.")] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Only records with this pattern of Python's in the text of key or value.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="SQL", help=f"Only records for which this is true, as \"json->>'carrier' = 'UA'\". Columns: {COLUMNS}."
        ),
    ] = None,
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="URL", help="A schema registry, for --value-format and --key-format.")
    ] = None,
    value_format: Annotated[
        str | None, typer.Option("--value-format", metavar="FORM", autocompletion=completion.words(*FORMATS), help=_AS_JSON)
    ] = None,
    key_format: Annotated[
        str | None, typer.Option("--key-format", metavar="FORM", autocompletion=completion.words(*FORMATS), help="The same for keys.")
    ] = None,
    on_error: Annotated[
        str, typer.Option("--on-error", metavar="raise|null|skip", help="What one that cannot be decoded is: a failure, null, no record.")
    ] = "raise",
    isolation: Annotated[
        str | None,
        typer.Option(
            "--isolation",
            metavar="LEVEL",
            autocompletion=completion.ISOLATION,
            help="read_committed: nothing of transactions that are open or were aborted. read_uncommitted: all.",
        ),
    ] = None,
    key_separator: Annotated[str | None, typer.Option("-k", "--key-separator", help="Print keys, this between key and value.")] = None,
    form: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar="raw|json|TEMPLATE",
            autocompletion=completion.words("raw", "json"),
            help=f"raw: values as they are, a line each. json: an object each. A text with % signs, as '%k %v\\n': {TEMPLATES}.",
        ),
    ] = "raw",
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="What is printed for a null key or value; nothing without it.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Annotated[bool, typer.Option("--json", help="As --format json, and no summary on stderr.")] = False,
) -> None:
    """Print the records of topics, until Ctrl+C, --max, --to or the end; several commands with one --group share their partitions.

    The last hour's with UA in them: `kafkacore consume flights --from @-1h --to latest --grep UA`.

    Late ones of Avro: `kafkacore consume flights --from earliest -e --registry URL --value-format avro
    --filter "(json->>'delay')::int > 60"`.
    """
    if form not in ("raw", "json") and "%" not in form:
        raise typer.BadParameter("must be raw, json or a text with % signs", param_hint="--format")
    if "%" in form and (json or key_separator is not None):
        raise typer.BadParameter("with --format a key or an object has its place in it", param_hint="--json" if json else "--key-separator")
    place = place_of(start)
    shown = b"" if null is None else os.fsencode(null)
    texts, setting = _registry_texts(registry, setting, key_format, value_format, on_error)
    if "%" in form:
        line_of = template_of(form, shown)
    else:
        separator = None if key_separator is None else separator_of(key_separator)
        line_of = line_maker(json or form == "json", separator, shown, decoded=bool(texts))
    if to is not None and exit_at_end:
        raise typer.BadParameter("says where to stop: leave --exit-at-end out", param_hint="--to")
    end = place_of(to, "--to") if to is not None else "latest" if exit_at_end else None
    choice = Choice(
        line_of,
        key=None if key is None else os.fsencode(key),
        grep=None if grep is None else _pattern(grep),
        where=None if where is None else Where(where),
        texts=texts,
        on_error=on_error,
    )
    reset, begin = (place, None) if isinstance(place, str) else ("none", place)
    if isolation not in (None, "read_committed", "read_uncommitted"):
        raise typer.BadParameter("must be read_committed or read_uncommitted", param_hint="--isolation")
    mine = {"auto.offset.reset": reset} if was_typed("start") else {}
    if isolation is not None:
        mine["isolation.level"] = isolation
    own = {"auto.offset.reset": reset, "allow.auto.create.topics": False, "default.api.timeout.ms": PATIENCE_MS}
    settings = client_settings(bootstrap_server, setting, kind=ConsumerConfig, typed=mine, **own)
    if group is not None:
        settings = {name: value for name, value in settings.items() if name not in ("group.id", "group_id")} | {"group.id": group}
    config = ConsumerConfig.from_user(settings)
    topics = list(dict.fromkeys(topics))
    if config.group_id is not None:
        if partition is not None:
            raise typer.BadParameter("a group says who reads which partition: leave it out, or --group", param_hint="--partition")
        count, committed = consume_as_member(config, topics, choice, start=begin, most=most, to=end, quiet=json)
        what = describe(topics, config, committed)
    else:
        printed = _Printed()
        what = ", ".join(topics)
        try:
            _consume_alone(settings, topics, choice, begin, most, partition, end, printed)
        except (KeyboardInterrupt, typer.Exit):
            if not sys.stdout.isatty() and not json:
                messages.print(f"{counted(printed.count, 'record')} of {what}")
            raise
        except (errors.KafkaError, Failure) as failed:
            if not printed.count:
                raise
            raise Failure(f"{sentence(failed)}; {counted(printed.count, 'record')} printed before") from failed
        count = printed.count
        if not count and end is not None and begin is None and config.auto_offset_reset == "latest":
            say("began at the end of each partition: --from earliest reads what is there", err=True)
    if choice.skipped:
        say(f"{counted(choice.skipped, 'record')} could not be decoded", err=True)
    if not sys.stdout.isatty() and not json:
        messages.print(f"{counted(count, 'record')} of {what}")


def _registry_texts(
    url: str | None, setting: list[str] | None, key_format: str | None, value_format: str | None, on_error: str
) -> tuple[dict[str, RegistryText], list[str]]:
    """What makes text of keys and values that a schema registry describes, and the words of -X that are not of it."""
    forms = {name: form for name, form in (("key", key_format), ("value", value_format)) if form is not None}
    for name, form in forms.items():
        if form not in FORMATS:
            raise typer.BadParameter(f"must be one of {', '.join(FORMATS)}", param_hint=f"--{name}-format")
    if on_error not in ("raise", "null", "skip"):
        raise typer.BadParameter("must be raise, null or skip", param_hint="--on-error")
    if on_error != "raise" and not forms:
        raise typer.BadParameter("is for --value-format and --key-format", param_hint="--on-error")
    registry, others = registry_of(url, setting, needed=bool(forms))
    if registry is None or not forms:
        if registry is not None or forms:
            raise typer.BadParameter("goes with --value-format or --key-format, and they with it", param_hint="--registry")
        return {}, others
    return {name: RegistryText(registry, form, on_error != "raise") for name, form in forms.items()}, others


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as wrong:
        raise typer.BadParameter(f"{text!r} is no regular expression: {wrong}", param_hint="--grep") from None


def _holds_records(consumer: KafkaConsumer, where: list[TopicPartition]) -> bool:
    first, end = consumer.beginning_offsets(where), consumer.end_offsets(where)
    return any(first[tp] < end[tp] for tp in where)


class _Printed:
    """How many records have been printed, also when reading ends otherwise than planned."""

    count = 0


def _consume_alone(
    settings: dict[str, Any],
    topics: list[str],
    choice: Choice,
    start: Place | None,
    most: int | None,
    partition: int | None,
    to: str | Place | None,
    printed: _Printed,
) -> None:
    """Prints all partitions, or `partition`, of topics."""
    out = sys.stdout.buffer
    with KafkaConsumer(settings) as consumer, PipeEnd().watched(out) as end:
        where = []
        for topic in topics:
            there = consumer.partitions_for(topic)
            if partition is not None and partition not in there:
                others = f"{there[0]} to {there[-1]}" if len(there) > 1 else f"{there[0]}"
                raise Failure(f"topic {topic} has no partition {partition}, only {others}")
            where += [TopicPartition(topic, p) for p in (there if partition is None else [partition])]
        consumer.assign(where)
        if start is None and to is None and consumer.config.auto_offset_reset == "latest" and _holds_records(consumer, where):
            say("waiting for new records; --from earliest for those that are there", err=True)
        if start is not None:
            for topic in topics:
                seek_to(consumer, [tp for tp in where if tp.topic == topic], start)
        ends = ends_of(consumer, where, to) if to is not None else {}
        total = most if most is not None else sum(max(0, ends[tp] - consumer.position(tp)) for tp in ends) if ends else None
        sys.stdout.flush()
        bar = record_progress(", ".join(topics), total, visible=not sys.stdout.isatty())
        with Stop().on_signals() as stop, bar:
            output = Output(out, stop, end)
            while not stop.signal and (most is None or printed.count < most):
                reached = [tp for tp, last in ends.items() if consumer.position(tp) >= last]
                if ends and len(reached) == len(ends):
                    break
                consumer.pause(*reached)
                left = MOST_AT_ONCE if most is None or choice.chooses else min(MOST_AT_ONCE, most - printed.count)
                stop.woken = end.notify = consumer.wakeup
                try:
                    wanted = not end.closed and not stop.signal
                    polled = consumer.poll(timeout=1.0 if ends else None, max_records=left) if wanted else {}
                except errors.WakeupError:
                    polled = {}
                stop.woken = end.notify = None
                for tp, records in polled.items():
                    found = choice([r for r in records if r.offset < ends[tp]] if ends else records)
                    written = output.write(found.lines if most is None else found.lines[: most - printed.count])
                    printed.count += written
                    if written < len(found.lines):
                        break
                    if found.failure is not None:
                        raise found.failure
                if end.closed:
                    raise BrokenPipeError
                bar.update(bar.task_ids[0], completed=printed.count)
            if stop.signal:
                stop.end()
