"""Which records `consume` prints, and what of them: keys, patterns, expressions, and values that a schema registry describes.

    records of a poll -> text of keys and values -> those that are wanted -> lines

A line knows its record, so that a member of a group commits what was printed, and what was looked at and not wanted before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import typer

from kafkacore import ConsumerRecord, errors
from kafkacore.cli.options import Failure
from kafkacore.cli.record_text import Shown
from kafkacore.cli.registry_text import RegistryText

COLUMNS = "_topic, _partition, _offset, _timestamp (UTC), _key, _headers, value, and json: the value, null where it is none"


class Lines(NamedTuple):
    """What is printed of some records.

    Attributes:
        lines: of those that are wanted.
        rows: which record each line is of.
        end: before this record something went wrong; as many as there are if nothing did.
        failure: what.
    """

    lines: list[bytes]
    rows: list[int]
    end: int
    failure: Exception | None = None


class Choice:
    """Makes lines of records.

    Args:
        line_of: the line of a record.
        key: only records with this key.
        grep: only those with a key or value in whose text the pattern is found.
        where: only those for which the SQL expression is true.
        texts: what makes text of ("key", "value"); the others are as they are.
        on_error: raise, null or skip: what a key or value is that has no text.

    Attributes:
        chooses: not all records are printed.
        skipped: keys and values that had no text, and were left out or printed as null.
    """

    def __init__(
        self,
        line_of: Callable[[Any], bytes],
        *,
        key: bytes | None = None,
        grep: re.Pattern[str] | None = None,
        where: Where | None = None,
        texts: dict[str, RegistryText] | None = None,
        on_error: str = "raise",
    ) -> None:
        self._line_of = line_of
        self._key, self._grep, self._where = key, grep, where
        self._texts = texts or {}
        self._on_error = on_error
        self.chooses = key is not None or grep is not None or where is not None or (bool(texts) and on_error == "skip")
        self.skipped = 0

    def __call__(self, records: Sequence[ConsumerRecord]) -> Lines:
        """The lines of records, in their order."""
        if not self.chooses and not self._texts:
            return Lines([self._line_of(record) for record in records], [*range(len(records))], len(records))
        try:
            shown, bad = self._shown(records)
            end = min(bad) if bad and self._on_error == "raise" else len(records)
            left_out = bad if self._on_error == "skip" else {}
            wanted = [row for row in range(end) if row not in left_out and self._is_wanted(shown[row])]
            if self._where is not None and wanted:
                wanted = [wanted[at] for at in self._where([shown[row] for row in wanted])]
            lines = [self._line_of(shown[row]) for row in wanted]
        except (errors.KafkaError, Failure) as failure:
            return Lines([], [], 0, failure)
        if end < len(records):
            failed = records[end]
            why = errors.SerializationError(bad[end], topic=failed.topic, partition=failed.partition, offset=failed.offset)
            return Lines(lines, wanted, end, why)
        self.skipped += len(bad)
        return Lines(lines, wanted, end)

    def _shown(self, records: Sequence[Any]) -> tuple[Sequence[Any], dict[int, str]]:
        """Records with their text, and why those have none that cannot be decoded."""
        bad: dict[int, str] = {}
        if not self._texts:
            return records, bad
        parts: dict[str, list[bytes | None]] = {}
        for name in ("key", "value"):
            parts[name] = [getattr(record, name) for record in records]
            if name in self._texts:
                parts[name], faults = self._texts[name].of(parts[name])
                for row, why in faults.items():
                    bad.setdefault(row, f"the {name} cannot be decoded: {why}")
        coded = frozenset(self._texts)
        pairs = zip(records, parts["key"], parts["value"], strict=True)
        return [Shown(r.topic, r.partition, r.offset, r.timestamp_ms, key, value, r.headers, coded) for r, key, value in pairs], bad

    def _is_wanted(self, record: Any) -> bool:
        if self._key is not None and record.key != self._key:
            return False
        if self._grep is None:
            return True
        return any(each is not None and self._grep.search(each.decode("utf-8", "replace")) for each in (record.key, record.value))


class Where:
    """An SQL expression over records, by DuckDB; it reads no files.

    Args:
        expression: true for the records that are wanted.

    Raises:
        Failure: DuckDB or pyarrow is missing.
        typer.BadParameter: it is no expression over the columns.
    """

    def __init__(self, expression: str) -> None:
        from kafkacore.cli.query import NO_FILES, one_line

        try:
            import duckdb
            import pyarrow  # noqa: F401
        except ImportError:
            raise Failure("--filter takes DuckDB and pyarrow: pip install duckdb pyarrow") from None
        self._error = duckdb.Error
        self._database = duckdb.connect(config=dict(NO_FILES))
        self._database.execute("set python_enable_replacements = false")
        self._database.execute("set lock_configuration = true")
        # An expression of the user's own, for a database that holds nothing else.
        self._sql = f"select n from (select *, try_cast(value as json) as json from rows) as records where (\n{expression}\n) order by n"  # noqa: S608  # nosec B608
        self._one_line = one_line
        try:
            if len(self._database.extract_statements(self._sql)) != 1:
                raise typer.BadParameter("is one expression", param_hint="--filter")
            self([])
        except (duckdb.Error, Failure) as wrong:
            raise typer.BadParameter(f"{one_line(wrong).removeprefix('--filter: ')}; there are {COLUMNS}", param_hint="--filter") from None

    def __call__(self, records: Sequence[Any]) -> list[int]:
        """Which records are wanted, ascending.

        Raises:
            Failure: it cannot be computed for one of them.
        """
        import pyarrow as pa

        def text(data: bytes | None) -> str | None:
            return None if data is None else data.decode("utf-8", "replace")

        headers = [[(name, text(value)) for name, value in dict(record.headers).items()] for record in records]
        rows = pa.table(
            {
                "n": pa.array(range(len(records)), pa.int64()),
                "_topic": pa.array([record.topic for record in records], pa.string()),
                "_partition": pa.array([record.partition for record in records], pa.int32()),
                "_offset": pa.array([record.offset for record in records], pa.int64()),
                "_timestamp": pa.array([record.timestamp_ms for record in records], pa.timestamp("ms")),
                "_key": pa.array([text(record.key) for record in records], pa.string()),
                "_headers": pa.array(headers, pa.map_(pa.string(), pa.string())),
                "value": pa.array([text(record.value) for record in records], pa.string()),
            }
        )
        self._database.register("rows", rows)
        try:
            return [n for (n,) in self._database.sql(self._sql).fetchall()]
        except self._error as wrong:
            raise Failure(f"--filter: {self._one_line(wrong)}") from None
        finally:
            self._database.unregister("rows")
