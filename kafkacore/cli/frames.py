"""`export`: a topic into a file of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafkacore.cli.options import DEFAULT_BOOTSTRAP, PATIENCE_MS, Bootstrap, Failure, Settings, client_settings


def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read, up to where it ends now.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The Parquet file to write: NAME.parquet.")],
    text: Annotated[bool, typer.Option("--text", help="Write keys and values as text columns; they must be UTF-8.")] = False,
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the last N offsets of each partition.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
) -> None:
    """Write a topic into a Parquet file. Memory holds one answer of a broker, however large the topic is."""
    from kafkacore import KafkaConsumer

    if file.suffix != ".parquet":
        raise typer.BadParameter(f"{file} is no NAME.parquet", param_hint="FILE")
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise Failure("export takes pyarrow: pip install pyarrow") from None
    kind = "string" if text else "binary"
    with KafkaConsumer(client_settings(bootstrap_server, settings, **{"default.api.timeout.ms": PATIENCE_MS})) as consumer:
        stream = consumer.read(topic, None if last is None else -last, key=kind, value=kind)  # type: ignore[arg-type]
        records = 0
        unfinished = file.with_name(file.name + ".part")
        try:
            with parquet.ParquetWriter(unfinished, stream.schema(), compression="zstd") as writer:
                for batch in stream:
                    writer.write_batch(batch)
                    records += len(batch)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    typer.echo(f"{records:,} records of {topic} in {file}")
