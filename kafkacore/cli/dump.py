"""`kafkacore dump-log`: what stands in a segment file of a Kafka log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from kafkacore import errors
from kafkacore.cli.options import Failure, Json, console, print_json
from kafkacore.cli.records import as_json
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


def dump_log(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Segment files (.log).")],
    records: Annotated[bool, typer.Option("--records", help="Show every record too.")] = False,
    json: Json = False,
) -> None:
    """Show the record batches of log segments, check their CRCs, and with --records every record."""
    for file in files:
        content = file.read_bytes()
        table = Table("offsets", "records", "bytes", "codec", "producer", "sequence", "flags", "at", title=str(file), title_justify="left")
        position = 0
        try:
            for batch in read_batches(content):
                facts = _batch_facts(batch, position)
                position += batch.size_bytes
                if json:
                    shown = {"file": str(file), **facts}
                    print_json({**shown, "content": [as_json(r) for r in batch.records()]} if records else shown)
                    continue
                flags = " ".join(name for name in ("transactional", "control") if facts[name])
                producer = "" if batch.producer_id < 0 else f"{batch.producer_id}/{batch.producer_epoch}"
                sequence = "" if batch.base_sequence < 0 else str(batch.base_sequence)
                span = f"{batch.base_offset}..{batch.last_offset}"
                count, size, codec, at = str(batch.record_count), f"{batch.size_bytes:,}", facts["compression"], str(facts["position"])
                table.add_row(span, count, size, codec, producer, sequence, flags, at)
                if records:
                    for record in batch.records():
                        content_cells = (repr(record.key), repr(record.value), repr(record.headers))
                        table.add_row(f"  {record.offset}", "", str(record.timestamp_ms), "", *content_cells, "")
        except errors.CorruptDataError as corrupt:
            if not json:
                console.print(table)
            raise Failure(f"{file}, after byte {position}: {corrupt}") from None
        if not json:
            console.print(table)
        if position < len(content) and any(content[position:]):
            raise Failure(f"{file}: the last {len(content) - position:,} bytes are no whole batch")
