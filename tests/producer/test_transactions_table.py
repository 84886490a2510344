"""docs/transactions.md says what becomes of each error: its rows are run against the engine, and compared with what the engine knows."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from test_refused_in_transaction import CASES
from test_transactions_engine import answer, ask, asking, opened, outcome_of

from kafkacore import errors
from kafkacore.errors import Code, KafkaError
from kafkacore.producer.transactions import FATAL_OF_PRODUCE, REMEDIES, Kind, Phase, Remedy, StepKind
from tests.kit.rows import each_row

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


@each_row("row", ROWS, ids=lambda row: f"{row.code}, {row.api}")
def test_a_row(row: Row) -> None:
    code = Code[row.code]
    if row.api == "Produce":
        engine = opened(True)
        before = Phase.OPEN
        engine.batch_failed(errors.from_code(code), True)
    else:
        api, _, version = row.api.partition(" v")
        engine, asked = asking(Kind(api), version == "5")
        before = engine.at.phase
        refreshed = answer(engine, asked, errors.from_code(code))
        assert refreshed is (row.kind == "refresh")
    phase = {"abortable": Phase.ABORTABLE, "fatal": Phase.FATAL}.get(row.kind, before)
    assert engine.at.phase is phase
    assert row.todo.startswith(ADVICE[row.kind])
    if row.kind in ("retriable", "refresh"):
        assert row.seen == "nothing"
        again = ask(engine)
        assert again is not None
        assert again.kind is asked.kind, "it is asked again"
        return
    error = raised_by_the_next_call(engine)
    expected = errors.for_code(code).__name__ if row.seen == "this error" else row.seen.strip("`")
    assert type(error).__name__ == expected
    assert (error.txn_requires_abort and not error.fatal, error.fatal) == (row.kind == "abortable", row.kind == "fatal")
    assert ("abort_transaction()" if row.kind == "abortable" else "close this producer") in str(error)


def raised_by_the_next_call(engine: object) -> KafkaError:
    step = engine.submit(StepKind.COMMIT)  # type: ignore[attr-defined]
    engine.settle()  # type: ignore[attr-defined]
    done, error = outcome_of(step)
    assert done
    assert error is not None
    return error


# ---- Java's side ---------------------------------------------------------------------------------------------------------------------

JAVA_NAMES = {
    "INVALID_PRODUCER_ID_MAPPING": "InvalidPidMapping",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "OutOfOrderSequence",
    "REQUEST_TIMED_OUT": "Timeout",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "TransactionalIdAuthorization",
    "GROUP_AUTHORIZATION_FAILED": "GroupAuthorization",
    "TOPIC_AUTHORIZATION_FAILED": "TopicAuthorization",
    "CLUSTER_AUTHORIZATION_FAILED": "ClusterAuthorization",
    "UNKNOWN_SERVER_ERROR": "UnknownServer",
    "MESSAGE_TOO_LARGE": "RecordTooLarge",
}
HANDLERS = {
    "InitProducerId": "InitProducerIdHandler",
    "AddPartitionsToTxn": "AddPartitionsToTxnHandler",
    "AddOffsetsToTxn": "AddOffsetsToTxnHandler",
    "TxnOffsetCommit": "TxnOffsetCommitHandler",
    "EndTxn": "EndTxnHandler",
}


@pytest.mark.kafka
def test_what_the_table_says_of_java() -> None:
    """By the classes of Kafka 4.3.1: each row whose code a handler names says what follows there, and retriable ones are Java's."""
    if shutil.which("javap") is None:
        pytest.skip("javap is missing")
    from tests.kit.kafka_server import fetch_jars

    jar = fetch_jars() / "kafka-clients-4.3.1.jar"

    def javap(*names: str) -> str:
        return subprocess.run(["javap", "-p", "-c", "-cp", str(jar), *names], capture_output=True, text=True, check=True).stdout

    package = "org.apache.kafka.common.errors."
    names = {row.code: JAVA_NAMES.get(row.code) or row.code.title().replace("_", "") for row in ROWS}
    parents: dict[str, str] = dict(re.findall(rf"class {package}(\w+) extends (?:{package})?([\w.]+)", javap(*(f"{package}{n}Exception" for n in names.values()), f"{package}InvalidMetadataException", f"{package}RefreshRetriableException")))  # fmt: skip  # noqa: E501

    def is_retriable(name: str) -> bool:
        while name in parents:
            name = parents[name]
        return name == "RetriableException"

    handlers = {api: javap(f"org.apache.kafka.clients.producer.internals.TransactionManager${name}") for api, name in HANDLERS.items()}
    compared = set()
    for row in ROWS:
        api = row.api.partition(" v")[0]
        if api not in handlers:
            continue
        retriable = is_retriable(f"{names[row.code]}Exception")
        outcome = next_outcome(handlers[api], row.code)
        if outcome is None:  # the handlers' last branches
            outcome = "retried" if retriable else "abortable" if api == "AddPartitionsToTxn" else "fatal"
        special = re.search(rf"(\w+) for {api}", row.java)
        assert (special[1] if special else re.split(r"[, ]", row.java)[0]) == outcome, (row, outcome)
        compared.add(row.code)
    assert len(compared) > 20


def next_outcome(code: str, error: str) -> str | None:
    """What a handler does about an error it names: the first call behind its name that decides."""
    body = code[code.index("handleResponse") :]
    found = re.search(rf"Errors\.{error}:", body)
    if found is None:
        return None
    calls = {"fatalError": "fatal", "abortableError": "abortable", "abortableErrorIfPossible": "abortable", "reenqueue": "retried"}
    behind = re.search(r"\.(fatalError|abortableErrorIfPossible|abortableError|reenqueue|lookupCoordinator)|Method (fatalError|abortableErrorIfPossible|abortableError|reenqueue):", body[found.end() :])  # fmt: skip  # noqa: E501
    assert behind is not None
    return calls.get(behind[1] or behind[2], "retried")


# ---- the table of what happens -------------------------------------------------------------------------------------------------------

END_TO_END, SENDER, ENGINE, REFUSED, OURS = (
    "tests/producer/test_transactions_end_to_end.py",
    "tests/producer/test_transactions_sender.py",
    "tests/producer/test_transactions_engine.py",
    "tests/producer/test_refused_in_transaction.py",
    "tests/interop/test_our_transactions.py",
)
TESTS = {
    "the coordinator moves": [(END_TO_END, "test_a_coordinator_that_errs_in_each_phase")],
    "no answer within the time": [(END_TO_END, "test_a_commit_that_timed_out_can_be_called_again")],
    "`send`, `send_many` or `send_frame` refused": [(REFUSED, "test_a_refused_record_leaves_only_the_abort")],
    "a record was not delivered": [(END_TO_END, "test_a_send_that_failed_makes_the_commit_fail")],
    "the broker wants an abort": [(ENGINE, "test_every_error_of_every_request")],
    "the group refuses the offsets": [(END_TO_END, "test_a_member_of_an_old_generation_commits_nothing")],
    "another producer has the transactional id": [(END_TO_END, "test_a_zombie_is_fenced")],
    "the transaction was open for longer": [
        (END_TO_END, "test_a_transaction_that_lasts_too_long_is_aborted_and_the_producer_goes_on"),
        (END_TO_END, "test_a_transaction_of_version_1_that_lasts_too_long_ends_its_producer"),
    ],
    "no right to the transactional id": [(OURS, "test_a_timeout_that_the_broker_does_not_allow")],
    "`send` without a transaction": [(ENGINE, "test_calls_in_the_wrong_order")],
    "`send` on its way while": [(END_TO_END, "test_an_abort_fails_what_is_queued_and_sends_none_of_it")],
}


def test_everything_that_happens_has_a_test() -> None:
    rows = [cells[0] for cells in table("Errors")]
    missing = [row for row in rows if not [begin for begin in TESTS if row.startswith(begin)]]
    unused = [begin for begin in TESTS if not [row for row in rows if row.startswith(begin)]]
    assert (missing, unused) == ([], [])
    for file, name in (each for tests in TESTS.values() for each in tests):
        defined = [node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)]
        assert name in defined, (file, name)


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
