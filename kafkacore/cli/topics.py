"""`kafkacore topics`: list, create, describe, alter, delete."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from kafkacore import KafkaAdminClient, NewTopic, TopicPartition
from kafkacore.admin import ConfigEntry, TopicDescription
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Failure,
    Json,
    Settings,
    admin_client,
    assignments,
    checked,
    confirm,
    print_json,
    report,
    say,
    told,
)
from kafkacore.cli.terminal import console

app = typer.Typer(help="List, create, describe, alter and delete topics.", no_args_is_help=True)
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]

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
def list_topics(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, setting: Settings = None, json: Json = False) -> None:
    """List the names of all topics."""
    with admin_client(bootstrap_server, setting) as admin:
        names = sorted(admin.list_topics())
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
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Create topics."""
    wanted = [NewTopic(name, partitions, replication_factor, configs=assignments(config, "--config")) for name in topics]
    with admin_client(bootstrap_server, setting) as admin:
        report(admin.create_topics(wanted), "created", topics, json)


@app.command("describe")
def describe(
    topics: Topics,
    configs: Annotated[bool, typer.Option("--configs", help="The settings, too, and where each comes from.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show the partitions of topics: leader, replicas, in-sync replicas, first and end offset."""
    with admin_client(bootstrap_server, setting) as admin:
        described = checked(admin.describe_topics(topics))
        spans = _spans(admin, described)
        settings = _settings(admin, topics) if configs else {}
    if json:
        print_json(
            {
                name: {
                    "topic_id": info.topic_id.hex(),
                    "partitions": [
                        {
                            "partition": p.index,
                            "leader": p.leader,
                            "leader_epoch": p.leader_epoch,
                            "replicas": list(p.replicas),
                            "isr": list(p.isr),
                            "first_offset": spans[name, p.index][0],
                            "end_offset": spans[name, p.index][1],
                        }
                        for p in info.partitions
                    ],
                    **({"configs": {e.name: {"value": e.value, "source": e.source} for e in settings[name]}} if configs else {}),
                }
                for name, info in described.items()
            }
        )
        return
    for name, info in described.items():
        table = Table("partition", "leader", "replicas", "in sync", "first offset", "end offset", title=name, title_justify="left")
        for p in info.partitions:
            first, end = spans[name, p.index]
            replicas, isr = (",".join(map(str, ids)) for ids in (p.replicas, p.isr))
            table.add_row(str(p.index), str(p.leader), replicas, isr, f"{first:,}", f"{end:,}")
        console.print(table)
        if configs:
            table = Table("setting", "value", "from")
            for entry in settings[name]:
                table.add_row(entry.name, "-" if entry.value is None else entry.value, entry.source.replace("_", " "))
            console.print(table)


def _settings(admin: KafkaAdminClient, topics: list[str]) -> dict[str, list[ConfigEntry]]:
    """The settings of topics, by name: first those that somebody set."""
    found = checked(admin.describe_configs([("topic", name) for name in topics]))
    return {each.name: sorted(entries.values(), key=lambda entry: (entry.is_default, entry.name)) for each, entries in found.items()}


def _spans(admin: KafkaAdminClient, described: dict[str, TopicDescription]) -> dict[tuple[str, int], tuple[int, int]]:
    """First and end offset of every partition described."""
    where = [TopicPartition(name, p.index) for name, info in described.items() for p in info.partitions]
    first, end = (admin.list_offsets(dict.fromkeys(where, spec)) for spec in ("earliest", "latest"))
    return {(tp.topic, tp.partition): (first[tp].offset, end[tp].offset) for tp in where}


@app.command("offsets")
def offsets(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
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
        there = [p.index for p in checked(admin.describe_topics([topic]))[topic].partitions]
        if wanted is not None and (missing := sorted(wanted.difference(there))):
            raise Failure(f"topic {topic} has no partition {', '.join(map(str, missing))}: it has 0 to {len(there) - 1}")
        tps = [TopicPartition(topic, index) for index in there if wanted is None or index in wanted]
        found = checked(admin.list_offsets(dict.fromkeys(tps, spec), read_committed=read_committed))
    if json:
        print_json([{"topic": tp.topic, "partition": tp.partition, **found[tp]._asdict()} for tp in tps])
        return
    for tp in tps:
        say(f"{tp.topic}:{tp.partition}:{found[tp].offset}")


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
    with admin_client(bootstrap_server, setting) as admin:
        if changes:
            checked(admin.alter_configs({("topic", name): changes for name in topics}))
        if partitions is not None:
            checked(admin.create_partitions(dict.fromkeys(topics, partitions)))
    told("altered", topics, json)


@app.command("delete")
def delete(
    topics: Topics,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Delete topics and all their records."""
    with admin_client(bootstrap_server, setting) as admin:
        if not yes and not json:
            checked(admin.describe_topics(topics))  # what is not there need not be asked about
            confirm(f"Delete {', '.join(topics)} and all records in them?")
        report(admin.delete_topics(topics), "deleted", topics, json)
