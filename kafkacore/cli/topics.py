"""`kafkacore topics`: list, create, describe, alter, delete."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from kafkacore import KafkaAdminClient, NewTopic, TopicPartition, errors
from kafkacore.admin import ConfigEntry, ItemResults, TopicDescription
from kafkacore.cli import completion
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Failure,
    Json,
    Settings,
    Yes,
    admin_client,
    assignments,
    checked,
    checked_items,
    confirm,
    confirm_or_yes,
    print_json,
    report,
    say,
    sentence,
)
from kafkacore.cli.places import offsets_at, place_of, spans_of
from kafkacore.cli.terminal import console
from kafkacore.metadata import PartitionInfo
from kafkacore.plurals import counted

V = TypeVar("V")

app = typer.Typer(help="List, create, describe, alter, trim and delete topics.", no_args_is_help=True)
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.", autocompletion=completion.topics)]

_PLACES = {
    "-1": "latest",
    "-2": "earliest",
    "-3": "max_timestamp",
    "latest": "latest",
    "earliest": "earliest",
    "max-timestamp": "max_timestamp",
}
_MOST_PARTITIONS = 1_000_000


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also Kafka's own, as __consumer_offsets.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """List the names of all topics."""
    with admin_client(bootstrap_server, setting) as admin:
        names = sorted(admin.list_topics(include_internal=internal))
    if json:
        print_json(names)
    else:
        for name in names:
            say(name)


@app.command("create")
def create(
    topics: Topics,
    partitions: Annotated[int, typer.Option("-p", "--partitions", help="Partitions of each; -1 for the broker's default.")] = -1,
    replication_factor: Annotated[
        int, typer.Option("-r", "--replication-factor", help="Copies of each partition; -1 for the broker's default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("-c", "--config", metavar="KEY=VALUE", help="A topic setting; may be repeated.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is no failure.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Create topics."""
    wanted = [NewTopic(name, partitions, replication_factor, configs=assignments(config, "--config")) for name in topics]
    with admin_client(bootstrap_server, setting) as admin:
        results = admin.create_topics(wanted)
    report(_without(results, errors.TopicExists) if if_not_exists else results, "created", topics, json)


def _without(results: ItemResults[str, V], harmless: type[errors.KafkaError]) -> ItemResults[str, V]:
    """Results without the failures that are none here."""
    return ItemResults(results.succeeded, {name: error for name, error in results.errors.items() if not isinstance(error, harmless)})


@app.command("describe")
def describe(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Names of topics; all if left out.", autocompletion=completion.topics)
    ] = None,
    configs: Annotated[bool, typer.Option("--configs", help="The settings, too, and where each comes from.")] = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with replicas that are not in sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Only partitions without a leader.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show the partitions of topics: leader, replicas, in-sync replicas, first and end offset."""
    filtered = under_replicated or unavailable
    with admin_client(bootstrap_server, setting) as admin:
        names = list(dict.fromkeys(topics)) if topics else sorted(admin.list_topics())
        found = admin.describe_topics(names)
        if not topics:  # a topic that was deleted since it was listed is no failure
            found = _without(found, errors.UnknownTopicOrPartition)
        partitions = {
            name: [
                p
                for p in info.partitions
                if not filtered or (under_replicated and len(p.isr) < len(p.replicas)) or (unavailable and p.leader < 0)
            ]
            for name, info in sorted(found.succeeded.items())
        }
        if filtered:
            partitions = {name: there for name, there in partitions.items() if there}
        spans = _spans(admin, partitions)
        settings = _settings(admin, list(partitions)) if configs and partitions else {}
    if json:
        print_json({name: _as_json(found[name], there, spans, settings.get(name)) for name, there in partitions.items()})
    else:
        for name, there in partitions.items():
            _show(name, there, spans, settings.get(name))
    checked(found)


Spans = dict[TopicPartition, tuple[int | None, int | None]]


def _as_json(info: TopicDescription, partitions: list[PartitionInfo], spans: Spans, settings: list[ConfigEntry] | None) -> dict[str, Any]:
    rows = []
    for p in partitions:
        first, end = spans[TopicPartition(info.name, p.index)]
        rows.append(
            {
                "partition": p.index,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "first_offset": first,
                "end_offset": end,
            }
        )
    configs = {} if settings is None else {"configs": {e.name: {"value": e.value, "source": e.source} for e in settings}}
    return {"topic_id": info.topic_id.hex(), "partitions": rows, **configs}


def _show(name: str, partitions: list[PartitionInfo], spans: Spans, settings: list[ConfigEntry] | None) -> None:
    table = Table("partition", "leader", "replicas", "in sync", "first offset", "end offset", title=name, title_justify="left")
    for p in partitions:
        replicas, isr = (",".join(map(str, ids)) for ids in (p.replicas, p.isr))
        offsets = ("-" if offset is None else f"{offset:,}" for offset in spans[TopicPartition(name, p.index)])
        table.add_row(str(p.index), "-" if p.leader < 0 else str(p.leader), replicas, isr, *offsets)
    console.print(table)
    if settings is not None:
        table = Table("setting", "value", "from")
        for entry in settings:
            table.add_row(entry.name, "-" if entry.value is None else entry.value, entry.source.replace("_", " "))
        console.print(table)


def _settings(admin: KafkaAdminClient, topics: list[str]) -> dict[str, list[ConfigEntry]]:
    """The settings of topics, by name: first those that were changed."""
    found = checked(admin.describe_configs([("topic", name) for name in topics]))
    return {each.name: sorted(entries.values(), key=lambda entry: (entry.is_default, entry.name)) for each, entries in found.items()}


def _spans(admin: KafkaAdminClient, partitions: dict[str, list[PartitionInfo]]) -> Spans:
    """First and end offset of every partition; None where its leader does not say."""
    led = [TopicPartition(name, p.index) for name, there in partitions.items() for p in there if p.leader >= 0]
    first, end = (admin.list_offsets(dict.fromkeys(led, spec)).succeeded for spec in ("earliest", "latest"))
    where = [TopicPartition(name, p.index) for name, there in partitions.items() for p in there]
    return {tp: (first[tp].offset if tp in first else None, end[tp].offset if tp in end else None) for tp in where}


@app.command("offsets")
def offsets(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=completion.topics)],
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="TIME",
            help="-1 or latest, -2 or earliest, -3 or max-timestamp, or milliseconds since 1970: the first record then.",
        ),
    ] = "latest",
    partitions: Annotated[
        str | None, typer.Option("-p", "--partitions", metavar="N,N,...", help="Only these partitions, as 0,2,5-7.")
    ] = None,
    read_committed: Annotated[bool, typer.Option("--read-committed", help="The latest is the last stable offset.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show offsets of a topic's partitions by time, one line each: topic:partition:offset, -1 where no record matches."""
    spec = _place(time)
    wanted = None if partitions is None else _numbers(partitions)
    with admin_client(bootstrap_server, setting) as admin:
        tps = _partitions(admin, topic, wanted)
        found = admin.list_offsets(dict.fromkeys(tps, spec), read_committed=read_committed)
    there = [(tp, found.succeeded[tp]) for tp in tps if tp in found.succeeded]
    if json:
        print_json([{"topic": tp.topic, "partition": tp.partition, **each._asdict()} for tp, each in there])
    else:
        for tp, each in there:
            say(f"{tp.topic}:{tp.partition}:{each.offset}")
    checked_items(found, lambda tp: f"{tp.topic}-{tp.partition}")


def _place(time: str) -> str | int:
    """What `KafkaAdminClient.list_offsets` calls a time."""
    if time in _PLACES:
        return _PLACES[time]
    if time.isdecimal():
        return int(time)
    raise typer.BadParameter(f"--time is {', '.join(_PLACES)} or milliseconds, not {time!r}")


def _numbers(text: str) -> set[int]:
    """Partitions out of 0,2,5-7."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) - int(first) > _MOST_PARTITIONS:
            raise typer.BadParameter(f"--partitions are numbers, as 0,2,5-7, not {text!r}")
        found.update(range(int(first), int(last or first) + 1))
    return found


@app.command("alter")
def alter(
    topics: Topics,
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", min=1, help="How many partitions each shall have; never fewer than now.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("-c", "--config", metavar="KEY=VALUE", help="A topic setting; may be repeated.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="A setting that goes back to its default; may be repeated.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Change settings of topics, or add partitions to them."""
    changes: dict[str, str | None] = {**assignments(config, "--config"), **dict.fromkeys(delete_config or ())}
    if partitions is None and not changes:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --delete-config")
    failed: dict[str, errors.KafkaError] = {}
    with admin_client(bootstrap_server, setting) as admin:
        if changes:
            failed = {each.name: error for each, error in admin.alter_configs({("topic", name): changes for name in topics}).errors.items()}
        rest = [name for name in topics if name not in failed]
        if partitions is not None and rest:
            failed |= admin.create_partitions(dict.fromkeys(rest, partitions)).errors
    report(ItemResults({name: None for name in topics if name not in failed}, failed), "altered", topics, json)


@app.command("delete")
def delete(
    topics: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that is not there is no failure.")] = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Delete topics and all their records."""
    with admin_client(bootstrap_server, setting) as admin:
        if not yes and not json:
            found = admin.describe_topics(topics)  # what is not there need not be asked about
            checked(_without(found, errors.UnknownTopicOrPartition) if if_exists else found)
            if found.succeeded:
                confirm(f"Delete {', '.join(found.succeeded)} and all records in them?")
        results = admin.delete_topics(topics)
        report(_without(results, errors.UnknownTopicOrPartition) if if_exists else results, "deleted", topics, json)


@app.command("trim")
def trim(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=completion.topics)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="The first record to keep: an offset, -N for the last N, @TIME (milliseconds since 1970, 2026-05-01T12:00, -1h), or "
            "latest to keep none.",
        ),
    ],
    partitions: Annotated[
        str | None, typer.Option("-p", "--partitions", metavar="N,N,...", help="Only these partitions, as 0,2,5-7.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")] = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Delete the oldest records of a topic, up to a place. Records that compaction has taken already are counted, too."""
    place = place_of(to, "--to")
    wanted = None if partitions is None else _numbers(partitions)
    with admin_client(bootstrap_server, setting) as admin:
        spans = spans_of(admin, _partitions(admin, topic, wanted))
        keep = {tp: offset for tp, offset in offsets_at(admin, spans, place).items() if offset > spans.first[tp]}
        gone = sum(offset - spans.first[tp] for tp, offset in keep.items())
        if not json:
            table = Table("partition", "first offset", "to be", title=topic, title_justify="left")
            for tp, offset in sorted(keep.items()):
                table.add_row(str(tp.partition), f"{spans.first[tp]:,}", f"{offset:,}")
            console.print(table)
        results: ItemResults[TopicPartition, int] = ItemResults(keep, {})
        if keep and not dry_run:
            confirm_or_yes(f"Delete up to {counted(gone, 'record')} of {topic}?", yes, json)
            results = admin.delete_records({(tp.topic, tp.partition): offset for tp, offset in keep.items()})
    if json:
        failed = [{**tp._asdict(), "error": sentence(error)} for tp, error in results.errors.items()]
        kept = [{**tp._asdict(), "first_offset": first} for tp, first in sorted(results.succeeded.items())]
        print_json({"trimmed": kept, "failed": failed, "dry_run": dry_run})
    elif results.succeeded and not dry_run:
        done = sum(first - spans.first[tp] for tp, first in results.succeeded.items())
        say(f"deleted up to {counted(done, 'record')} of {topic}")
    checked_items(results, lambda tp: f"{tp.topic}-{tp.partition}")


def _partitions(admin: KafkaAdminClient, topic: str, wanted: set[int] | None) -> list[TopicPartition]:
    """The partitions of a topic, or those of them that are wanted."""
    there = [p.index for p in checked(admin.describe_topics([topic]))[topic].partitions]
    if wanted is not None and (missing := sorted(wanted.difference(there))):
        raise Failure(f"topic {topic} has no partition {', '.join(map(str, missing))}: it has 0 to {len(there) - 1}")
    return [TopicPartition(topic, index) for index in there if wanted is None or index in wanted]
