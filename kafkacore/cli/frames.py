"""`export` and `load`: a topic into a file of columns, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    PATIENCE_MS,
    Bootstrap,
    Failure,
    Json,
    Settings,
    admin_client,
    assignments,
    client_settings,
    print_json,
    registry_of_values,
    say,
)
from kafkacore.cli.setting_files import was_typed
from kafkacore.config import ConsumerConfig, ProducerConfig
from kafkacore.plurals import counted
from kafkacore.printable import printable
from kafkacore.producer.frames import is_bytes

_BATCH_ROWS = 32_768
_JSON_LINES = (".jsonl", ".ndjson", ".json")


def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read, up to where it ends now.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The Parquet file to write: NAME.parquet.")],
    text: Annotated[bool, typer.Option("--text", help="Write keys and values as text columns; they must be UTF-8.")] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="FORM", help="binary; json, avro: the fields of values as columns; auto: as they look.")
    ] = "binary",
    schema: Annotated[
        str | None, typer.Option("--schema", help="Columns of JSON values, as 'a INT, b STRING', or an Avro schema; @FILE reads a file.")
    ] = None,
    registry: Annotated[str | None, typer.Option("--registry", metavar="URL", help="A schema registry, for --format json or avro.")] = None,
    on_error: Annotated[
        str, typer.Option("--on-error", metavar="raise|null|skip", help="What a value that cannot be decoded is: a failure, nulls, no row.")
    ] = "raise",
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the last N offsets of each partition.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there, without a question.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
) -> None:
    """Write a topic into a Parquet file. Memory holds some answers of a broker, however large the topic is."""
    from kafkacore import KafkaConsumer
    from kafkacore.cli.query import FORMATS, Options

    if file.suffix != ".parquet":
        raise typer.BadParameter(f"{file} is no NAME.parquet", param_hint="FILE")
    if file.is_symlink():
        raise typer.BadParameter(f"{file} is a link to {file.readlink()}: name the file itself", param_hint="FILE")
    if file.exists() and not file.is_file():
        raise typer.BadParameter(f"{file} is no regular file", param_hint="FILE")
    if form not in FORMATS:
        raise typer.BadParameter(f"must be one of {', '.join(FORMATS)}", param_hint="--format")
    if on_error not in ("raise", "null", "skip"):
        raise typer.BadParameter("must be raise, null or skip", param_hint="--on-error")
    if text and form != "binary":
        raise typer.BadParameter(f"is not for --format {form}", param_hint="--text")
    if form in ("binary", "string") and (schema or on_error != "raise"):
        raise typer.BadParameter("--schema and --on-error are for --format json, avro or auto", param_hint="--format")
    if file.exists() and not force:
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"{file} is there already; --force replaces it", param_hint="FILE")
        typer.confirm(printable(f"Replace {file}?"), abort=True)
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise Failure("export takes pyarrow: pip install pyarrow") from None
    if schema is not None and schema.startswith("@"):
        schema = Path(schema[1:]).read_text(encoding="utf-8")
    place, settings = registry_of_values(registry, settings, form, schema)
    patience: dict[str, Any] = {"default.api.timeout.ms": PATIENCE_MS}
    own = client_settings(bootstrap_server, settings, kind=ConsumerConfig, **patience)
    options = Options(own, "string" if text else form, schema, place, last, on_error)
    with KafkaConsumer(own) as consumer:
        stream = consumer.read(topic, None if last is None else -last, **options.arguments(consumer, topic))
        records = stream.write_parquet(file)
    skipped = f"; {counted(stream.skipped, 'value')} could not be decoded" if stream.skipped else ""
    typer.echo(f"{counted(records, 'record')} of {topic} in {file}{skipped}")


def load(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows to send: NAME.parquet, NAME.csv (with a line of names), NAME.jsonl.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.")],
    key: Annotated[str | None, typer.Option("-k", "--key", metavar="COLUMN", help="Keys; numbers and the like as JSON.")] = None,
    value: Annotated[
        list[str] | None,
        typer.Option("-v", "--value", metavar="COLUMN", help="A column of the values, may be repeated; all others if none is named."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="json|raw", help="json: values are objects of columns. raw: one column of text or bytes.")
    ] = "json",
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="COLUMN", help="Times of the records: times, or milliseconds since 1970.")
    ] = None,
    partition: Annotated[str | None, typer.Option("-p", "--partition", metavar="COLUMN", help="Partitions of the records.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="NAME=COLUMN", help="A header of each record; may be repeated.")
    ] = None,
    null: Annotated[
        list[str] | None, typer.Option("--null", metavar="TEXT", help="CSV: a text that means null, as an empty field; may be repeated.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave columns in the objects that are keys, times, partitions or headers too.")
    ] = False,
    no_nulls: Annotated[bool, typer.Option("--no-nulls", help="Leave null fields out of the objects.")] = False,
    null_keys: Annotated[
        bool, typer.Option("--null-keys", help="Send rows whose key is null without a key; otherwise they are refused.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if it is not there.")] = False,
    partitions: Annotated[int, typer.Option("--partitions", help="With --create: how many; -1 for the broker's default.")] = -1,
    compression: Annotated[str, typer.Option("-c", "--compression", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    json: Json = False,
) -> None:
    """Send the rows of a file of columns to a topic. Memory holds some megabytes of it, however long it is."""
    from kafkacore import KafkaProducer, errors
    from kafkacore.cli.terminal import record_progress

    if form not in ("json", "raw"):
        raise typer.BadParameter("must be json or raw", param_hint="--format")
    if form == "raw" and len(value or ()) != 1:
        raise typer.BadParameter("--format raw takes one --value COLUMN", param_hint="--value")
    if keep and value:
        raise typer.BadParameter("--value says which columns there are", param_hint="--keep")
    if null_keys and key is None:
        raise typer.BadParameter("is for --key", param_hint="--null-keys")
    if partitions != -1 and not create:
        raise typer.BadParameter("is for --create", param_hint="--partitions")
    if null and file.suffix.lower() != ".csv":
        raise typer.BadParameter("is for CSV: other files say themselves what is null", param_hint="--null")
    schema, total, batches = _rows_of(file, null or [])
    import pyarrow as pa

    how: dict[str, Any] = {"key": key, "timestamp": timestamp, "partition": partition, "null_fields": not no_nulls, "keep": keep}
    how["null_keys"] = null_keys
    how["headers"] = assignments(header, "--header") or None
    how["value"], how["value_format"] = (value[0], None) if form == "raw" and value else (list(value) if value else None, "json")
    if key is not None and key in schema.names and not is_bytes(schema.field(key).type):
        how["key_format"] = "json"
    if create:
        _create(topic, partitions, bootstrap_server, settings)
    mine = {"compression.type": compression} if was_typed("compression") else {}
    own = {"max.block.ms": PATIENCE_MS, "allow.auto.create.topics": "false"}
    future, ended = None, None
    with record_progress(topic, total, visible=not json) as bar:
        try:
            with KafkaProducer(client_settings(bootstrap_server, settings, kind=ProducerConfig, typed=mine, **own)) as producer:
                frame = pa.RecordBatchReader.from_batches(schema, _counted(batches, lambda n: bar.update(bar.task_ids[0], advance=n)))
                future = producer.send_frame(topic, frame, **how)
                future.result()
        except (errors.KafkaError, OSError, ValueError, KeyboardInterrupt) as error:
            ended, future = error, getattr(error, "future", future)
    known = None if future is None else future.so_far()
    delivered = 0 if known is None else known.delivered
    if ended is not None:
        arrived = f"{counted(delivered, 'record')} delivered to {topic}"
        if isinstance(ended, KeyboardInterrupt):
            say(arrived, err=True)
            raise ended
        absent = any(isinstance(each, errors.UnknownTopicOrPartition) for each in getattr(ended, "attempts", ()))
        hint = "; --create creates it" if absent and not delivered and not create else ""
        if isinstance(ended, ValueError) and file.suffix.lower() in _JSON_LINES:      # its first megabyte says which columns there are
            hint = "; kafkacore produce sends lines as they are, whatever fields they have"
        why = _one_line(ended).replace("null_keys=True sends", "--null-keys sends")
        raise Failure(f"{why}; {arrived} before{hint}") from ended
    assert known is not None
    if known.errors:
        row = min(known.errors)
        refused = f"{counted(len(known.errors), 'row')} {'was' if len(known.errors) == 1 else 'were'} not delivered"
        raise Failure(f"{refused}, the first is row {row:,}: {known.errors[row]}; {counted(delivered, 'record')} delivered to {topic}")
    if json:
        where = {str(tp.partition): list(offsets) for tp, offsets in sorted(known.stretches.items())}
        print_json({"topic": topic, "records": delivered, "offsets": where})
    else:
        say(f"{counted(delivered, 'record')} of {file} sent to {topic}")


def _counted(batches: Iterator[Any], took: Callable[[int], object]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        took(len(batch))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split("Detail: Python exception")[0].split())


def _rows_of(file: Path, null: list[str]) -> tuple[Any, int | None, Iterator[Any]]:
    """The schema of a file, how many rows it has if that is known, and its record batches.

    Args:
        file: where they are.
        null: texts of a CSV that mean null, beside an empty field.
    """
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise Failure("load takes pyarrow: pip install pyarrow") from None
    file.stat()                                            # what is missing is said by its name
    try:
        match file.suffix.lower():
            case ".parquet":
                stored = pa.parquet.ParquetFile(file)
                return stored.schema_arrow, stored.metadata.num_rows, stored.iter_batches(_BATCH_ROWS)
            case ".csv":
                # Nothing is null, but not "". By itself pyarrow takes NA for null as well, which is Namibia.
                nulls = pa.csv.ConvertOptions(null_values=["", *null], strings_can_be_null=True, quoted_strings_can_be_null=False)
                reader = pa.csv.open_csv(file, convert_options=nulls)
                for field in reader.schema:
                    if pa.types.is_binary(field.type):
                        raise Failure(f"{file}: column {field.name!r} is not UTF-8")
                return reader.schema, None, iter(reader)
            case suffix if suffix in _JSON_LINES:
                if hasattr(pa.json, "open_json"):
                    reader = _texts_as_they_are(file, pa.json.open_json)
                    return reader.schema, None, iter(reader)
                table = _texts_as_they_are(file, pa.json.read_json)
                return table.schema, table.num_rows, iter(table.to_batches())
    except (ValueError, NotImplementedError) as error:      # pyarrow's ArrowInvalid
        raise Failure(f"{file}: {_one_line(error)}") from None
    raise typer.BadParameter(f"{file} is no NAME.parquet, NAME.csv or NAME.jsonl", param_hint="FILE")


def _texts_as_they_are(file: Path, opened: Callable[..., Any]) -> Any:
    """A file of JSON lines by one of pyarrow's functions, which by itself reads text that looks like a time as one, without its zone."""
    import pyarrow as pa
    import pyarrow.json

    def with_text(kind: Any) -> Any:
        if pa.types.is_timestamp(kind):
            return pa.string()
        if pa.types.is_list(kind):
            return pa.list_(with_text(kind.value_type))
        if pa.types.is_struct(kind):
            return pa.struct([each.with_type(with_text(each.type)) for each in kind])
        return kind

    found = opened(file)
    wanted = pa.schema([each.with_type(with_text(each.type)) for each in found.schema])
    return found if wanted.equals(found.schema) else opened(file, parse_options=pa.json.ParseOptions(explicit_schema=wanted))


def _create(topic: str, partitions: int, bootstrap_server: str, settings: list[str] | None) -> None:
    from kafkacore import NewTopic, errors

    with admin_client(bootstrap_server, settings) as admin:
        results = admin.create_topics([NewTopic(topic, partitions, -1)])
        for error in results.errors.values():
            if not isinstance(error, errors.TopicExists):
                raise error
