"""`kafkacore dump-log`: the contents of a segment file of a Kafka log, or of its indexes."""

from __future__ import annotations

import datetime
import mmap
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkacore import errors
from kafkacore.broker.log.index import SparseIndex
from kafkacore.cli.options import Failure, JsonLines, print_json
from kafkacore.cli.record_text import as_json
from kafkacore.records import read_batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _batch_facts(batch: Any, position: int) -> dict[str, Any]:
    return {
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "size_bytes": batch.size_bytes,
        "magic": batch.magic,
        "compression": CODECS[batch.compression] if isinstance(batch.compression, int) else batch.compression,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "max_timestamp_ms": batch.max_timestamp_ms,
    }


HEAD = ("position", "offsets", "records", "bytes", "codec", "producer", "sequence", "newest", "flags")
LINE = "{:>12}  {:>23}  {:>8}  {:>10}  {:6}  {:>10}  {:>10}  {:24}  {}"


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"


def _line(facts: dict[str, Any]) -> str:
    producer = "" if facts["producer_id"] < 0 else f"{facts['producer_id']}/{facts['producer_epoch']}"
    sequence = "" if facts["base_sequence"] < 0 else str(facts["base_sequence"])
    flags = " ".join(name for name in ("transactional", "control") if facts[name])
    span = f"{facts['base_offset']}..{facts['last_offset']}"
    newest = _time(facts["max_timestamp_ms"])
    counts = (facts["position"], span, facts["records"], facts["size_bytes"])
    return LINE.format(*counts, facts["compression"], producer, sequence, newest, flags).rstrip()


def dump_log(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Segment files (.log) and their indexes (.index, .timeindex).")],
    records: Annotated[bool, typer.Option("--records", help="Show every record too.")] = False,
    json: JsonLines = False,
) -> None:
    """Show the record batches of log segments, check their CRCs, and with --records every record.

    Of an index: its entries, with whole offsets as in the log."""
    for file in files:
        if file.suffix in NOT_SHOWN:
            raise typer.BadParameter(f"{file} is {NOT_SHOWN[file.suffix]}; what can be shown is .log, .index and .timeindex")
    for file in files:
        if file.suffix in INDEXES:
            _dump_index(file, json)
            continue
        content = _content(file)  # before the heading: no table of what cannot be opened
        if len(content) > MAGIC_AT and content[MAGIC_AT] > NEWEST_MAGIC:
            raise Failure(f"{file} is not a Kafka log segment (unknown magic {content[MAGIC_AT]} at position 0)")
        if not json:
            typer.echo(f"{file}\n{LINE.format(*HEAD)}")
        position = _dump(str(file), content, records, json)
        if position < len(content) and any(content[position:]):
            raise Failure(f"{file}: the last {len(content) - position:,} bytes are no whole batch")


INDEXES = {".index": ("offset", "position"), ".timeindex": ("timestamp_ms", "offset")}
NOT_SHOWN = {".txnindex": "an index of aborted transactions", ".snapshot": "a snapshot of producers"}
MAX_SEGMENT_BYTES = 2**31
MAGIC_AT, NEWEST_MAGIC = 16, 2
"""Where a batch says its format, in all of them; and the newest."""


def _dump_index(file: Path, json: bool) -> None:
    """Prints the entries of an index up to where they stop to rise: a running Kafka has zeros behind them."""
    if not file.stem.isdecimal():
        raise typer.BadParameter(f"{file}: the name of an index is the offset it begins with, which its entries are counted from")
    content = file.read_bytes()
    by_offset = file.suffix == ".index"
    try:
        index = SparseIndex.read(int(file.stem), *((content, b"") if by_offset else (b"", content)), MAX_SEGMENT_BYTES)
    except errors.CorruptDataError as corrupt:
        raise Failure(f"{file}: {corrupt}") from None
    names = INDEXES[file.suffix]
    if not json:
        typer.echo(f"{file}\n{names[0]:>20}  {names[1]:>20}")
    entries = zip(index.offsets, index.positions, strict=True) if by_offset else zip(index.timestamps, index.time_offsets, strict=True)
    for first, second in entries:
        if json:
            print_json({"file": str(file), names[0]: first, names[1]: second})
        else:
            typer.echo(f"{first:>20}  {second:>20}" + ("" if by_offset else f"  {_time(first)}"))


def _content(file: Path) -> memoryview:
    """The file without reading it: segments hold up to a gigabyte. It is unmapped when the last record is gone."""
    with file.open("rb") as opened:
        empty = os.fstat(opened.fileno()).st_size == 0  # which cannot be mapped
        return memoryview(b"" if empty else mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))


def _dump(name: str, content: memoryview, records: bool, json: bool) -> int:
    """Prints every batch.

    Returns:
        Where the last one ends.
    """
    position = 0
    try:
        for batch in read_batches(content, max_decompressed_bytes=MAX_SEGMENT_BYTES - 1):
            facts = _batch_facts(batch, position)
            position += batch.size_bytes
            if json:
                shown = {"file": name, **facts}
                print_json({**shown, "content": [as_json(r) for r in batch.records()]} if records else shown)
                continue
            typer.echo(_line(facts))
            for record in batch.records() if records else ():
                headers = f" {record.headers!r}" if record.headers else ""
                typer.echo(f"{'':12}  {record.offset:>23}  {record.timestamp_ms} {record.key!r} {record.value!r}{headers}")
    except (errors.CorruptDataError, errors.DecompressedTooLarge) as corrupt:
        raise Failure(f"{name}, after byte {position}: {corrupt}") from None
    return position
