"""`query`: SQL over topics, by DuckDB.

Once: each topic of the query is a view. Every scan of it reads the topic with a consumer of its own, up to where it ended when the query
began; memory holds a broker's answer and what DuckDB keeps.

With --follow: a thread for each topic waits for new records, which go into a table in a file of a temporary directory; the query is
evaluated over the tables when something is new. What that may cost: DuckDB's memory by --memory, beyond which it goes to disk; the disk by
--last, which keeps about so many records of each partition; and time, since after an evaluation the next one waits four times as long as it
took, and a second at least. Nothing runs while nothing comes.
"""

from __future__ import annotations

import contextlib
import io
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from kafkacore import KafkaConsumer, errors
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    PATIENCE_MS,
    Bootstrap,
    Failure,
    JsonLines,
    Settings,
    client_settings,
    registry_of_values,
    say,
)
from kafkacore.config import ConsumerConfig
from kafkacore.plurals import counted
from kafkacore.printable import printable, printable_json
from kafkacore.producer.frame_json import json_column

FORMATS = ("auto", "json", "avro", "string", "binary")
SHOWN_ROWS = 10_000
SAMPLE = 100
PAUSE_S = 1.0
PAUSE_FACTOR = 4
QUEUED_BATCHES = 8
NO_FILES = {"enable_external_access": "false", "autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
ASKING = ("SELECT", "EXPLAIN", "COPY", "MULTI")
"""DuckDB's statements that may be about topics; MULTI is a pivot."""
OF_RECORDS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_corrupt")


class Options(NamedTuple):
    """How topics are read.

    Attributes:
        settings: of consumers.
        form: one of FORMATS.
        schema: columns of JSON values, or the schema of Avro values; None for what the values or the registry say.
        registry: a `RegistryOptions`, or None.
        last: only so many offsets of each partition; None for all.
        on_error: as `KafkaConsumer.read` takes it.
    """

    settings: dict[str, Any]
    form: str
    schema: str | None
    registry: Any
    last: int | None
    on_error: str

    def arguments(self, consumer: Any, topic: str) -> dict[str, Any]:
        """What `KafkaConsumer.read` takes for a topic."""
        form = kind_of(consumer, topic) if self.form == "auto" else self.form
        if form == "json":
            wanted = self.schema or (True if self.registry else "infer")
            return {"json": wanted, "registry": self.registry, "on_error": self.on_error}
        if form == "avro":
            return {"avro": self.schema or True, "registry": self.registry, "on_error": self.on_error}
        return {"key": form, "value": form}


def kind_of(consumer: Any, topic: str) -> str:
    """json if the first values look like its objects, string if they and their keys are UTF-8, else binary. Without values: json."""
    partitions = [(topic, number) for number in sorted(consumer.partitions_for(topic))]
    first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    for tp in partitions:
        for columns in consumer.read_range(tp, first[tp], last[tp]) if first[tp] < last[tp] else ():
            rows = range(min(SAMPLE, len(columns)))
            values = [each for row in rows if (each := columns.values[row]) is not None]
            if not values:
                continue
            if all(each.lstrip()[:1] == b"{" and each.rstrip()[-1:] == b"}" for each in values):
                return "json"
            try:
                for each in (*values, *(columns.keys[row] for row in rows)):
                    str(each or b"", "utf-8")
            except UnicodeDecodeError:
                return "binary"
            return "string"
    return "json"


class TopicScan:
    """A topic as a table for DuckDB, which reads it again with each scan, to the same end.

    Attributes:
        error: what reading failed with; DuckDB has it as a text of its own.
    """

    def __init__(self, options: Options, topic: str) -> None:
        """Looks where the topic ends and which columns it has.

        Raises:
            Failure: there is nothing yet that says it.
            errors.KafkaError: as `KafkaConsumer.read`.
        """
        self._settings = options.settings
        self.error: BaseException | None = None
        with KafkaConsumer(options.settings) as consumer:
            self._how = options.arguments(consumer, topic)
            stream = consumer.read(topic, None if options.last is None else -options.last, **self._how)
            self._stretches: Any = stream.stretches
            self._schema = stream.schema()
        if self._how.get("json") == "infer":
            import pyarrow as pa

            known = [field for field in self._schema if field.name not in OF_RECORDS]
            if not known:
                raise Failure(f"topic {topic} has no value yet that says which columns there are: --schema names them")
            self._how["json"] = pa.schema(known)

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[Any]:
        try:
            with KafkaConsumer(self._settings) as consumer:
                yield from consumer.read(self._stretches, **self._how).batches()
        except GeneratorExit:
            raise                                          # DuckDB has rows enough
        except BaseException as error:
            self.error = error
            raise


class Follower:
    """What comes to a topic, batch by batch into a queue that all topics share, by a thread of its own.

    Items are (topic, batch), (topic, error), and first (topic, schema).
    """

    def __init__(self, options: Options, topic: str, into: queue.Queue[tuple[str, Any]]) -> None:
        """Starts."""
        self._options = options
        self._topic = topic
        self._into = into
        self._ending = threading.Event()
        self._consumer = KafkaConsumer(options.settings)
        self._thread = threading.Thread(target=self._run, name=f"follow-{topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            consumer, options = self._consumer, self._options
            start = None if options.last is None else -options.last
            stream = consumer.read(self._topic, start, until_end=False, **options.arguments(consumer, self._topic))
            self._put(stream.schema())
            for batch in stream:
                self._put(batch)
        except BaseException as error:
            if not self._ending.is_set():
                self._put(error)

    def _put(self, item: Any) -> None:
        self._into.put((self._topic, item))
        if self._ending.is_set():
            raise errors.WakeupError

    def close(self) -> None:
        """Ends the thread, whatever it waits for."""
        self._ending.set()
        self._consumer.wakeup()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._into.get_nowait()
            self._thread.join(0.05)
        self._consumer.close()


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="What to ask; topics are tables, as in: select count(*) from flights.")],
    form: Annotated[
        str, typer.Option("--format", metavar="FORM", help=f"How values are read: {', '.join(FORMATS)}. auto: as the first ones look.")
    ] = "auto",
    schema: Annotated[
        str | None, typer.Option("--schema", help="Columns of JSON values, as 'a INT, b STRING', or an Avro schema; @FILE reads a file.")
    ] = None,
    registry: Annotated[str | None, typer.Option("--registry", metavar="URL", help="A schema registry, for --format json or avro.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the last N offsets of each partition.")] = None,
    on_error: Annotated[
        str, typer.Option("--on-error", metavar="raise|null|skip", help="What a value that cannot be decoded is: a failure, nulls, no row.")
    ] = "raise",
    follow: Annotated[bool, typer.Option("--follow", help="Go on, and ask again when there are new records; Ctrl+C ends.")] = False,
    no_files: Annotated[
        bool, typer.Option("--no-files", help="SQL reads and writes no files and no URLs, and loads no extensions: for SQL of others.")
    ] = False,
    memory: Annotated[str, typer.Option("--memory", help="DuckDB's memory; what takes more goes to disk.")] = "1GB",
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    json: JsonLines = False,
) -> None:
    """Ask topics in SQL. With --json an object a row; with --follow and --json an array a line, the whole answer."""
    try:
        import duckdb
        import pyarrow as pa
    except ImportError:
        raise Failure("query takes DuckDB and pyarrow: pip install duckdb pyarrow") from None
    if form not in FORMATS:
        raise typer.BadParameter(f"must be one of {', '.join(FORMATS)}", param_hint="--format")
    if on_error not in ("raise", "null", "skip"):
        raise typer.BadParameter("must be raise, null or skip", param_hint="--on-error")
    if csv and (json or follow):
        raise typer.BadParameter("goes neither with --json nor with --follow", param_hint="--csv")
    if schema is not None and schema.startswith("@"):
        schema = Path(schema[1:]).read_text(encoding="utf-8")
    place, settings = registry_of_values(registry, settings, form, schema)
    patience: dict[str, Any] = {"default.api.timeout.ms": PATIENCE_MS}
    own = client_settings(bootstrap_server, settings, kind=ConsumerConfig, **patience)
    options = Options(own, form, schema, place, last, on_error)
    with tempfile.TemporaryDirectory(prefix="kafkacore-query-") as directory:
        scans: dict[str, TopicScan] = {}
        config: Any = NO_FILES if no_files else {}             # what it spills goes beside its own file in any case
        with duckdb.connect(str(Path(directory) / "topics.duckdb"), config=config) as database, _interrupting(database) as interrupts:
            try:
                database.execute("set python_enable_replacements = false")     # a name is a topic, never a variable
                database.execute(f"set memory_limit = {_literal(memory)}")
                database.execute("set lock_configuration = true")              # the query cannot undo it
                _check_kind(database, sql)
                topics = sorted(database.get_table_names(sql))
                if not topics:
                    raise Failure("the query names no topic after from or join")
                if follow:
                    _follow(database, sql, topics, options, json)
                    return
                for topic in topics:
                    scans[topic] = TopicScan(options, topic)
                    database.register(topic, scans[topic])
                _print(database, sql, json, csv)
            except (duckdb.Error, pa.ArrowException, RuntimeError, OSError) as wrong:  # Arrow's: of rows that DuckDB makes later
                for scan in scans.values():
                    if scan.error is not None:
                        raise scan.error from None
                if interrupts:
                    raise KeyboardInterrupt from None          # which DuckDB has taken
                if isinstance(wrong, OSError):                 # of the output, or of the cluster before there was a scan
                    raise
                raise Failure(one_line(wrong)) from None
            finally:
                for topic in scans:
                    with contextlib.suppress(duckdb.Error):        # rows that were not read: they end with the connection
                        database.unregister(topic)


@contextlib.contextmanager
def _interrupting(database: Any) -> Iterator[list[int]]:
    """Ctrl+C ends what DuckDB computes, also where it comes while DuckDB has Python called and the exception would be lost there.

    Yields:
        What becomes not empty with it.
    """
    came: list[int] = []

    def interrupt(number: int, _: Any) -> None:
        came.append(number)
        database.interrupt()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():     # which alone has signals
        yield came
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _check_kind(database: Any, sql: str) -> None:
    """Whether it asks for something.

    Raises:
        Failure: it is another statement, whose names would be looked for as topics.
    """
    for statement in database.extract_statements(sql):
        kind = statement.type.name
        if kind not in ASKING:
            raise Failure(f"{kind.lower().replace('_', ' ')} is no query; one asks topics, and changes nothing")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def one_line(error: BaseException) -> str:
    """DuckDB's message without the drawing of where in the query it was."""
    return " ".join(str(error).split("\n\nLINE ")[0].split())


def _answer(database: Any, sql: str) -> Any:
    import pyarrow as pa

    relation = database.sql(sql)
    if relation is None:
        raise Failure("the query has no rows to show")
    return pa.RecordBatchReader.from_stream(relation)


def _print(database: Any, sql: str, json: bool, csv: bool) -> None:
    reader = _answer(database, sql)
    if csv:
        import pyarrow.csv

        for number, batch in enumerate(reader):
            text = io.BytesIO()
            pyarrow.csv.write_csv(batch, text, pyarrow.csv.WriteOptions(include_header=not number))
            sys.stdout.write(_shown(text.getvalue().decode()))
    elif json:
        for batch in reader:
            for line in json_column(batch.to_struct_array()).to_pylist():
                sys.stdout.write(printable_json(line.decode()) + "\n")
    else:
        _table(reader)


def _shown(text: str) -> str:
    return "".join(printable(line) + "\n" for line in text.split("\n")[:-1]) if sys.stdout.isatty() else text


def _table(reader: Any) -> None:
    from rich.table import Table

    from kafkacore.cli.terminal import console

    table = Table(*reader.schema.names)
    rows = 0
    for batch in reader:
        for row in batch.slice(0, SHOWN_ROWS - rows).to_pylist():
            table.add_row(*("" if each is None else each.hex() if isinstance(each, bytes) else str(each) for each in row.values()))
        rows += len(batch)
    console.print(table)
    if rows > SHOWN_ROWS:
        say(f"the first {SHOWN_ROWS:,} of {counted(rows, 'row')}; --json and --csv print all", err=True)


def _follow(database: Any, sql: str, topics: list[str], options: Options, json: bool) -> None:
    """Evaluates the query when there is something new, until Ctrl+C."""
    import pyarrow as pa

    arrived: queue.Queue[tuple[str, Any]] = queue.Queue(QUEUED_BATCHES)
    followers: list[Follower] = []
    kept = Kept(database, options.last)
    ready_s, dirty = 0.0, False
    try:
        for topic in topics:
            followers.append(Follower(options, topic, arrived))
        say(f"waiting for records of {', '.join(topics)}; Ctrl+C ends", err=True)
        while True:
            left_s = max(0.0, ready_s - time.monotonic()) if dirty else None
            try:
                topic, item = arrived.get(timeout=left_s)
            except queue.Empty:
                began_s = time.monotonic()
                _show_again(database, sql, json)
                ready_s, dirty = time.monotonic() + max(PAUSE_S, PAUSE_FACTOR * (time.monotonic() - began_s)), False
                continue
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, pa.Schema):
                kept.create(topic, item)
            else:
                kept.add(topic, item)
                dirty = len(kept.tables) == len(topics)
    finally:
        for follower in followers:
            follower.close()


class Kept:
    """The tables of a query that goes on.

    Args:
        database: DuckDB's.
        last: how many records of each partition are kept at least, up to twice as many; None for all.

    Attributes:
        tables: topic -> records since it was cut.
    """

    def __init__(self, database: Any, last: int | None) -> None:
        self._database = database
        self._last = last
        self.tables: dict[str, int] = {}

    def create(self, topic: str, schema: Any) -> None:
        """A table without rows."""
        self._insert(f"create table {_name(topic)} as", schema.empty_table())
        self.tables[topic] = 0

    def add(self, topic: str, batch: Any) -> None:
        """Adds records, and forgets the oldest now and then."""
        import pyarrow as pa

        self._insert(f"insert into {_name(topic)}", pa.Table.from_batches([batch]))
        self.tables[topic] += len(batch)
        if self._last is not None and self.tables[topic] > self._last:
            offset, partition = ("_offset", "_partition") if "_offset" in batch.schema.names else ("offset", "partition")
            table = _name(topic)
            # Names are quoted by _name, and the rest are numbers.
            old = (
                f"delete from {table} using (select {_name(partition)} p, max({_name(offset)}) newest from {table} group by 1) ends "  # noqa: S608  # nosec B608
                f"where {_name(partition)} = ends.p and {_name(offset)} <= ends.newest - {self._last}"
            )
            self._database.execute(old)
            self.tables[topic] = 0

    def _insert(self, command: str, rows: Any) -> None:
        self._database.register("kafkacore new rows", rows)
        try:
            self._database.execute(f'{command} select * from "kafkacore new rows"')  # noqa: S608  # nosec B608: a command of this class
        finally:
            self._database.unregister("kafkacore new rows")


def _show_again(database: Any, sql: str, json: bool) -> None:
    if not json:
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[2J\x1b[H")
        _table(_answer(database, sql))
    else:
        rows = [line.decode() for batch in _answer(database, sql) for line in json_column(batch.to_struct_array()).to_pylist()]
        sys.stdout.write(printable_json("[" + ",".join(rows) + "]") + "\n")
    sys.stdout.flush()
