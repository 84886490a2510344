"""Records as text: the objects that `consume --format json` prints and `produce --format json` reads, and lines with a key in front.

An object holds bytes as text where they are UTF-8, else as base64 under another name (`value_base64`): nothing is
lost on the way out and back.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import typer

from kafkacore import ConsumerRecord
from kafkacore.cli.options import json_line, unescaped
from kafkacore.printable import printable_json

_MEMBERS = ("topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers")


class Wrong(Exception):
    """A line that is no record; its text says why."""


class Sent(NamedTuple):
    """A record out of a line; None leaves partition and time to the producer."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp_ms: int | None


class Shown(NamedTuple):
    """A record of which key or value was decoded.

    Attributes:
        topic, partition, offset, timestamp_ms, headers: as of a `ConsumerRecord`.
        key, value: bytes as they were, or JSON text.
        coded: which of the two is JSON.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Any
    coded: frozenset[str]


def _text(data: bytes | None, name: str) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def as_json(record: ConsumerRecord) -> dict[str, Any]:
    """A record as `consume --format json` prints it."""
    return {
        **({"topic": record.topic, "partition": record.partition} if record.topic else {}),  # a file does not name its own
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text(record.key, "key"),
        **_text(record.value, "value"),
        "headers": [{"name": name, **_text(value, "value")} for name, value in record.headers],
    }


def _bytes(members: dict[str, Any], name: str, where: str = "") -> bytes | None:
    """The bytes of `name` or of its base64."""
    coded = f"{name}_base64"
    if name in members and coded in members:
        raise Wrong(f"{where}both {name} and {coded}")
    given = members.get(coded if coded in members else name)
    if given is None:
        return None
    if not isinstance(given, str):
        raise Wrong(f"{where}{name} is {json.dumps(given)[:40]}: a string or null")
    try:
        return base64.b64decode(given, validate=True) if coded in members else given.encode()
    except ValueError as error:
        raise Wrong(f"{where}{coded if coded in members else name}: {error}") from None


def _number(members: dict[str, Any], name: str) -> int | None:
    given = members.get(name)
    if given is not None and (type(given) is not int or not -1 <= given < 1 << 63):
        raise Wrong(f"{name} is {json.dumps(given)[:40]}: a number from 0 on, or null")
    return None if given == -1 else given


def _headers(given: Any) -> list[tuple[str, bytes | None]]:
    if not isinstance(given, list):
        raise Wrong("headers is no list of objects with name and value")
    found = []
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or each.keys() - {"name", "value", "value_base64"}:
            raise Wrong("headers is no list of objects with name and value")
        found.append((each["name"], _bytes(each, "value", f"header {each['name']}: ")))
    return found


def from_json(line: bytes, sources: set[str] | None = None) -> Sent:
    """A record out of an object as `as_json` makes it; its topic and offset do not count.

    Args:
        line: the object.
        sources: gets the topic that it names.

    Raises:
        Wrong: no JSON, no object, a member that no record has, or no value.
    """
    try:
        members = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON: {error}") from None
    if not isinstance(members, dict):
        raise Wrong("not a JSON object")
    if unknown := sorted(members.keys() - set(_MEMBERS)):
        raise Wrong(f"a record has no {', '.join(unknown)}, but {', '.join(_MEMBERS)}")
    if "value" not in members and "value_base64" not in members:
        raise Wrong("no value; null is a tombstone's")
    partition, timestamp_ms = _number(members, "partition"), _number(members, "timestamp_ms")
    if partition is not None and partition >= 1 << 31:
        raise Wrong(f"partition is {partition}: no such number")
    if sources is not None and isinstance(source := members.get("topic"), str):
        sources.add(source)
    return Sent(_bytes(members, "key"), _bytes(members, "value"), _headers(members.get("headers") or []), partition, timestamp_ms)


class LineReader:
    """Lines become what `KafkaProducer.send_many` takes.

    Args:
        separator: stands between key and value; None: a line is a value.
        key: of every record.
        null: the text that means a null key or value.
        headers: of every record.
        partition: of every record.
        timestamp_ms: of every record.
    """

    def __init__(
        self,
        *,
        separator: bytes | None = None,
        key: bytes | None = None,
        null: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self._separator = separator
        self._key = key
        self._null = null
        self._fixed = {"headers": headers or None, "partitions": partition, "timestamps_ms": timestamp_ms}

    def calls(self, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        """Arguments of send_many, for all lines in order.

        Raises:
            Wrong: a line is no record; the lines before it are in what came before.
        """
        values: list[bytes | None] = [*lines]
        keys: list[bytes | None] | None = None if self._key is None else [self._key] * len(lines)
        failed = None
        if self._separator is not None:
            parts = [line.partition(self._separator) for line in lines]
            good = next((n for n, (_, found, _) in enumerate(parts) if not found), len(lines))
            if good < len(lines):
                failed = Wrong(f"no key separator {self._separator.decode(errors='replace')!r} in it")
            keys, values = [part[0] for part in parts[:good]], [part[2] for part in parts[:good]]
        if self._null is not None:
            values = [None if value == self._null else value for value in values]
            keys = keys if keys is None else [None if each == self._null else each for each in keys]
        if values:
            yield {"values": values, "keys": keys, **self._fixed}
        if failed is not None:
            raise failed


class ObjectReader:
    """Objects, one a line, become what `KafkaProducer.send_many` takes.

    Args:
        partition: of every record; None leaves it to the partitioner.
        keep_partitions: records go to the partitions that their objects name.
        headers: come behind those of each object.

    Attributes:
        sources: the topics that objects named as theirs.
        left_out: an object named a partition that does not count.
    """

    def __init__(
        self, partition: int | None = None, *, keep_partitions: bool = False, headers: list[tuple[str, bytes | None]] | None = None
    ) -> None:
        self._partition = partition
        self._headers = headers or []
        self._keep = keep_partitions
        self.sources: set[str] = set()
        self.left_out = False

    def calls(self, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        """As `LineReader.calls`."""
        records: list[Sent] = []
        failed = None
        for line in lines:
            try:
                record = from_json(line, self.sources)
            except Wrong as wrong:
                failed = wrong
                break
            if not self._keep:
                self.left_out = self.left_out or record.partition is not None
                record = record._replace(partition=self._partition)
            if self._headers:
                record = record._replace(headers=[*record.headers, *self._headers])
            records.append(record)
        for (placed, dated), run in itertools.groupby(records, lambda each: (each.partition is not None, each.timestamp_ms is not None)):
            keys, values, headers, partitions, times_ms = map(list, zip(*run, strict=True))
            yield {
                "values": values,
                "keys": keys,
                "headers": headers if any(headers) else None,
                "partitions": partitions if placed else None,
                "timestamps_ms": times_ms if dated else None,
            }
        if failed is not None:
            raise failed


def _line_of_decoded(record: Any) -> bytes:
    """An object in which what was decoded is JSON, not text."""
    members = [
        f"{json.dumps(name)}:{data.decode() if name in record.coded and (data := getattr(record, name)) is not None else _compact(value)}"
        for name, value in as_json(record).items()
    ]
    return (printable_json("{" + ",".join(members) + "}") + "\n").encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def line_maker(as_objects: bool, separator: bytes | None, null: bytes = b"", decoded: bool = False) -> Callable[[Any], bytes]:
    """What makes a record the bytes that are printed.

    Args:
        as_objects: as JSON.
        separator: printed between key and value; None prints no keys.
        null: printed for a null key or value.
        decoded: records are `Shown`.
    """
    if as_objects:
        if decoded:
            return _line_of_decoded
        return lambda record: json_line(as_json(record)).encode()
    if separator is None:
        return lambda record: (null if record.value is None else record.value) + b"\n"
    return lambda record: b"".join(
        (null if record.key is None else record.key, separator, null if record.value is None else record.value, b"\n")
    )


TEMPLATES = (
    "%t topic, %p partition, %o offset, %k key, %v or %s value, %K and %S their lengths (-1: null), %T time in ms, %h headers, %% a %"
)


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def template_of(text: str, null: bytes = b"") -> Callable[[ConsumerRecord], bytes]:
    r"""What makes a record the bytes of a template: kcat's `-f`, and rpk's `%v`. No line ends where the template has no `\n`.

    Args:
        text: a template, see `TEMPLATES`; `%R` is the value's length as a signed big-endian number of 32 bits.
        null: printed for a null key, value or header.

    Raises:
        typer.BadParameter: a % sign with an unknown letter.
    """

    def shown(data: bytes | None) -> bytes:
        return null if data is None else data

    fields: dict[bytes, Callable[[ConsumerRecord], bytes]] = {
        b"t": lambda record: record.topic.encode(),
        b"p": lambda record: b"%d" % record.partition,
        b"o": lambda record: b"%d" % record.offset,
        b"k": lambda record: shown(record.key),
        b"v": lambda record: shown(record.value),
        b"s": lambda record: shown(record.value),
        b"K": lambda record: b"%d" % _length(record.key),
        b"S": lambda record: b"%d" % _length(record.value),
        b"R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
        b"T": lambda record: b"%d" % record.timestamp_ms,
        b"h": lambda record: b",".join(name.encode() + b"=" + shown(value) for name, value in record.headers),
        b"%": lambda record: b"%",
    }
    parts: list[Callable[[ConsumerRecord], bytes]] = []
    for n, part in enumerate(re.split(rb"%(.?)", os.fsencode(text), flags=re.DOTALL)):
        if n % 2:
            if part not in fields:
                raise typer.BadParameter(f"no %{os.fsdecode(part)}, but {TEMPLATES}", param_hint="--format")
            parts.append(fields[part])
        elif part:
            literal = unescaped(part)
            parts.append(lambda record, literal=literal: literal)  # type: ignore[misc]
    return lambda record: b"".join([part(record) for part in parts])
