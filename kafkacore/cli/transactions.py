"""`kafkacore transactions`: list, describe, open, abort, commit."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.table import Table

from kafkacore import KafkaAdminClient, TopicPartition
from kafkacore.admin import ProducerDescription, TransactionDescription
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Failure,
    Json,
    Settings,
    admin_client,
    check_listed,
    checked,
    confirm,
    print_json,
)
from kafkacore.cli.terminal import console

app = typer.Typer(help="List and describe transactions, see who holds readers back, and end those that hang.", no_args_is_help=True)

OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
HOLDS, HANGS = "holds readers back", "hangs"
EPOCH_FOR_EACH = 2
"""The transaction.version from which on each transaction has an epoch of its own."""
COMMITTED = "its coordinator has committed it: `transactions commit`"
DECIDED = ("PrepareCommit", "CompleteCommit")
LIVES = "the coordinator knows this transaction, so it does not hang: it can still be committed, but for the records that this would abort"


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state, as Ongoing; may be repeated.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """List the transactional ids of a cluster, with the state of their last transaction."""
    with admin_client(bootstrap_server, setting) as admin:
        found = admin.list_transactions(states=state or (), partial=True)
    if json:
        print_json([each._asdict() for each in found])
    else:
        table = Table("transactional id", "state", "producer id")
        for each in found:
            table.add_row(each.transactional_id, each.state, str(each.producer_id))
        console.print(table)
    check_listed(found)


@app.command("describe")
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show producer, epoch, time-out, age and partitions of transactions."""
    with admin_client(bootstrap_server, setting) as admin:
        described = admin.describe_transactions(ids)
    now_ms = time.time_ns() // 1_000_000
    if json:
        print_json({name: _as_json(each, now_ms) for name, each in described.succeeded.items()})
    elif described.succeeded:
        table = Table("transactional id", "state", "producer id", "epoch", "time-out s", "open for s", "partitions")
        for name, each in described.succeeded.items():
            age_ms = _as_json(each, now_ms)["open_for_ms"]
            age = "-" if age_ms is None else f"{age_ms / 1000:,.1f}"
            where = ", ".join(f"{topic}-{index}" for topic, index in sorted(each.partitions)) or "-"
            figures = (str(each.producer_id), str(each.producer_epoch), f"{each.timeout_ms / 1000:,.1f}")
            table.add_row(name, each.state, *figures, age, where)
        console.print(table)
    checked(described)


def _as_json(each: TransactionDescription, now_ms: int) -> dict[str, Any]:
    return {
        **each._asdict(),
        "partitions": [{"topic": topic, "partition": index} for topic, index in sorted(each.partitions)],
        "open_for_ms": None if each.start_time_ms < 0 else max(0, now_ms - each.start_time_ms),
    }


@app.command("open")
def open_transactions(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Where to look.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show the open transactions of topics: the first of a partition holds back readers of committed data; one that no coordinator knows of
    hangs, and only abort ends it."""
    with admin_client(bootstrap_server, setting) as admin:
        there = admin.describe_topics(topics)
        rows = open_in(admin, list(there.succeeded)) if there.succeeded else []
    if json:
        print_json(rows)
    elif there.succeeded:
        table = Table("topic", "partition", "first offset", "producer id", "epoch", "transactional id", "")
        for row in rows:
            notes = ", ".join(row["notes"])
            figures = (f"{row['first_offset']:,}", str(row["producer_id"]), str(row["producer_epoch"]))
            table.add_row(row["topic"], str(row["partition"]), *figures, row["transactional_id"] or "-", notes)
        console.print(table)
    checked(there)


def open_in(admin: KafkaAdminClient, topics: list[str]) -> list[dict[str, Any]]:
    """The open transactions of topics as their partitions know them, those that hold readers back first within each partition."""
    infos = checked(admin.describe_topics(topics))
    partitions = [TopicPartition(name, each.index) for name, info in infos.items() for each in info.partitions]
    by_partition = checked(admin.describe_producers(partitions))
    producer_ids = sorted({each.producer_id for found in by_partition.values() for each in found if each.transaction_start_offset >= 0})
    listed = admin.list_transactions(producer_ids=producer_ids) if producer_ids else []
    known = checked(admin.describe_transactions([each.transactional_id for each in listed])) if listed else {}
    version = _transaction_version(admin) if any(each.state in DECIDED for each in known.values()) else 0
    owner = {each.producer_id: each.transactional_id for each in listed}
    rows: list[dict[str, Any]] = []
    for tp in sorted(by_partition):
        found = [each for each in by_partition[tp] if each.transaction_start_offset >= 0]
        for nth, each in enumerate(sorted(found, key=lambda each: each.transaction_start_offset)):
            name = owner.get(each.producer_id)
            state = None if name is None else known.get(name)
            is_known = state is not None and state.state in OPEN and tp in state.partitions
            is_committed = not is_known and state is not None and not why_not_committed(tp, each, state, version)
            notes = ([] if nth else [HOLDS]) + ([] if is_known else [HANGS]) + ([COMMITTED] if is_committed else [])
            rows.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "first_offset": each.transaction_start_offset,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "last_timestamp_ms": each.last_timestamp_ms,
                    "transactional_id": name,
                    "notes": notes,
                }
            )
    suspects = {TopicPartition(row["topic"], row["partition"]) for row in rows if HANGS in row["notes"]}
    if not suspects:
        return rows
    # A transaction that ended between the two questions looks as if it hung: those that do are still there.
    again = checked(admin.describe_producers(sorted(suspects)))
    still = {(tp, each.producer_id, each.transaction_start_offset) for tp, found in again.items() for each in found}
    return [
        row
        for row in rows
        if HANGS not in row["notes"] or (TopicPartition(row["topic"], row["partition"]), row["producer_id"], row["first_offset"]) in still
    ]


@app.command("abort")
def abort(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the transaction hangs.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    producer_id: Annotated[int, typer.Argument(metavar="PRODUCER_ID", help="As `transactions open` tells it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do not ask, also where the transaction does not hang.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """End a transaction in one partition without its coordinator: for those that hang. One that lives ends itself, by its time-out; so a
    prepared one, which TwoPhaseClient aborts everywhere."""
    tp = TopicPartition(topic, partition)
    with admin_client(bootstrap_server, setting) as admin:
        found = [each for each in checked(admin.describe_producers([tp]))[tp] if _is(each, producer_id)]
        if not found:
            raise Failure(f"producer {producer_id} has no open transaction in {topic}-{partition}")
        decided = _decided(admin, producer_id)
        if decided is not None and not why_not_committed(tp, found[0], decided[1], _transaction_version(admin)):
            raise Failure(
                f"nothing was done: the coordinator has committed the transaction of {decided[0]}, and this would lose its records here:"
                f" `kafkacore transactions commit {topic} {partition} {producer_id}`"
            )
        if not force:
            rows = [row for row in open_in(admin, [topic]) if (row["partition"], row["producer_id"]) == (partition, producer_id)]
            hangs = any(HANGS in row["notes"] for row in rows)
            if not hangs and yes:
                raise Failure(f"nothing was done: {topic}-{partition}: {LIVES}; --force ends it all the same")
            if not yes:
                danger = "" if hangs else f" {LIVES[0].upper()}{LIVES[1:]}."
                confirm(f"Abort the transaction of producer {producer_id} in {topic}-{partition}?{danger}")
        admin.abort_transaction(tp, producer_id, found[0].producer_epoch, found[0].coordinator_epoch)
    if json:
        print_json({"aborted": {"topic": topic, "partition": partition, "producer_id": producer_id}})
    else:
        console.print(f"aborted the transaction of producer {producer_id} in {topic}-{partition}")


@app.command("commit")
def commit(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the marker is missing.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    producer_id: Annotated[int, typer.Argument(metavar="PRODUCER_ID", help="As `transactions open` tells it.")],
    force: Annotated[bool, typer.Option("--force", "-y", "--yes", help="Do not ask.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Write the marker of a commit that a partition lacks: where the coordinator says that the transaction was committed, and the partition
    has it open all the same, as after a kill of the broker. Any other transaction is refused."""
    tp = TopicPartition(topic, partition)
    with admin_client(bootstrap_server, setting) as admin:
        found = [each for each in checked(admin.describe_producers([tp]))[tp] if _is(each, producer_id)]
        if not found:
            raise Failure(f"producer {producer_id} has no open transaction in {topic}-{partition}")
        decided = _decided(admin, producer_id)
        if decided is None:
            raise Failure(f"nothing was done: no coordinator knows producer {producer_id}, or says that its transaction was committed")
        name, state = decided
        if why := why_not_committed(tp, found[0], state, _transaction_version(admin)):
            raise Failure(f"nothing was done: {why}")
        first = found[0].transaction_start_offset
        if not force:
            same = state.producer_epoch == found[0].producer_epoch
            doubt = f" An earlier transaction that {name} aborted would look the same." if same else ""
            confirm(
                f"Commit the records of {name} in {topic}-{partition} from offset {first:,} on? Its coordinator says {state.state}.{doubt}"
            )
        admin.commit_transaction(tp, producer_id, state.producer_epoch, found[0].coordinator_epoch)
    if json:
        print_json({"committed": {"topic": topic, "partition": partition, "producer_id": producer_id, "first_offset": first}})
    else:
        console.print(f"committed the transaction of producer {producer_id} in {topic}-{partition}, from offset {first:,} on")


def _transaction_version(admin: KafkaAdminClient) -> int:
    found = admin.describe_features().finalized.get("transaction.version")
    return 0 if found is None else found.highest


def _decided(admin: KafkaAdminClient, producer_id: int) -> tuple[str, TransactionDescription] | None:
    """The transactional id that a producer id belongs to, and what its coordinator says of it."""
    listed = admin.list_transactions(producer_ids=[producer_id])
    if not listed:
        return None
    name = listed[0].transactional_id
    return name, checked(admin.describe_transactions([name]))[name]


def why_not_committed(tp: TopicPartition, writer: ProducerDescription, state: TransactionDescription, version: int) -> str:
    """Why the transaction that a partition has open is not the one that its coordinator has committed; "" where it is.

    With `transaction.version` 2 each transaction has its own epoch and the coordinator goes on to the next one with the decision, so that
    the epochs say which transaction is meant. Up to version 1, and with older clients, it is the epoch of all transactions of a producer:
    an earlier one whose abort is missing here looks the same, so that a person is asked.
    """
    if state.state not in DECIDED:
        return f"the coordinator says {state.state}, and only what it has committed can be committed"
    if state.producer_id != writer.producer_id:
        return f"the coordinator has gone on to producer {state.producer_id}"
    if state.state == "PrepareCommit" and tp not in state.partitions:
        return f"the transaction that the coordinator commits is not in {tp.topic}-{tp.partition}"
    ahead = state.producer_epoch - writer.producer_epoch
    if ahead != 0 and not (ahead == 1 and version >= EPOCH_FOR_EACH):
        return f"the open transaction has epoch {writer.producer_epoch}, the coordinator's {state.producer_epoch}: it is an older one"
    return ""


def _is(each: ProducerDescription, producer_id: int) -> bool:
    return each.producer_id == producer_id and each.transaction_start_offset >= 0
