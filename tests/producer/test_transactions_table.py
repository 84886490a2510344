"""docs/transactions.md says what becomes of each error: its rows are run against the engine, and compared with what the engine knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from test_refused_in_transaction import CASES

from kafkacore import errors
from kafkacore.errors import Code, KafkaError
from kafkacore.producer.transactions import FATAL_OF_PRODUCE, REMEDIES, Kind, Remedy

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "transactions.md").read_text()
REST = ", and what is not listed"
ALL = [kind.value for kind, codes in REMEDIES.items() if codes]  # of a look before writing no error matters
ADVICE = {"retriable": "nothing", "refresh": "nothing", "abortable": "`abort_transaction()`", "fatal": "`close()`"}
REMEDY = {Remedy.RETRY: "retriable", Remedy.REFRESH: "refresh", Remedy.ABORT: "abortable", Remedy.FATAL: "fatal"}


class Row(NamedTuple):
    code: str
    api: str
    kind: str
    seen: str
    todo: str
    java: str
    franz_go: str


def table(title: str) -> Iterator[list[str]]:
    """The cells of each row of the first table behind a title."""
    part = re.search(rf"^#+ {title}$(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert part, title
    lines = [line for line in part[1].splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def apis_of(cell: str) -> list[str]:
    if cell == "all":
        return ALL
    if cell.startswith("all but "):
        return [api for api in ALL if api != cell.removeprefix("all but ")]
    return cell.split(", ")


def by_code() -> Iterator[Row]:
    for codes, apis, *rest in table("By error code"):
        for code in codes.removesuffix(REST).split(", "):
            for api in apis_of(apis):
                yield Row(code, api, *rest)


ROWS = list(by_code())


def test_the_rows_are_what_the_engine_knows() -> None:
    said = [(row.code, row.api) for row in ROWS]
    assert len(said) == len(set(said)), "one row says another thing than another one"
    known = {(Code(code).name, kind.value) for kind, codes in REMEDIES.items() for code in codes}
    produced = {(Code(code).name, "Produce") for code in FATAL_OF_PRODUCE}
    of_end = {("INVALID_TXN_STATE", "EndTxn v4"), ("INVALID_TXN_STATE", "EndTxn v5")}
    rest = {("UNKNOWN_SERVER_ERROR", api) for api in ALL}
    abortable = {(row.code, row.api) for row in ROWS if row.api == "Produce" and row.kind == "abortable"}
    assert set(said) == (known | produced | of_end | rest | abortable) - {("INVALID_TXN_STATE", "EndTxn")}
    assert {(row.code, "Produce") for row in ROWS if row.api == "Produce" and row.kind == "fatal"} == produced
    for kind, codes in REMEDIES.items():
        for code, remedy in codes.items():
            if kind is Kind.INIT and remedy is Remedy.ABORT:
                remedy = Remedy.FATAL  # there is no transaction to abort
            rows = [row for row in ROWS if (row.code, row.api) == (Code(code).name, kind.value)]
            assert all(row.kind == REMEDY[remedy] for row in rows), rows
    for row in ROWS:
        assert row.todo.startswith(ADVICE[row.kind]), row
        assert (row.seen == "nothing") is (row.kind in ("retriable", "refresh")), row
        if row.seen not in ("nothing", "this error"):
            assert issubclass(getattr(errors, row.seen.strip("`")), KafkaError), row


REFUSALS = {
    "larger than": {"too large", "too large with a key", "larger than memory"},
    "no such partition": {"unknown partition", "negative partition"},
    "no metadata of the topic": {"no metadata", "no such name"},
    "a serializer or partitioner": {"serializer", "key serializer", "partitioner"},
    "a value, key, header or timestamp": {"no bytes", "odd headers", "negative time"},
    "`send_many`": {name for name in CASES if name.startswith("send_many")},
    "`send_frame`": {name for name in CASES if name.startswith("send_frame")},
}


def test_every_refusal_has_a_test() -> None:
    rows = [cells[0] for cells in table("Records that the client refuses")]
    assert [begin for row in rows for begin in REFUSALS if row.startswith(begin)] == list(REFUSALS)
    assert len(rows) == len(REFUSALS)
    assert set().union(*REFUSALS.values()) == set(CASES)
