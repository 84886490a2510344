"""`kafkacore groups`: list, describe, lag, reset, delete."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.table import Table

from kafkacore import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafkacore.admin import GroupDescription, GroupListing, ItemResults, Listed
from kafkacore.cli import completion
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Failure,
    Json,
    JsonLines,
    Settings,
    Yes,
    admin_client,
    check_listed,
    checked,
    checked_items,
    confirm,
    confirm_or_yes,
    print_json,
    report,
    report_items,
    say,
    sentence,
)
from kafkacore.cli.places import offsets_at, place_of, spans_of
from kafkacore.cli.terminal import console
from kafkacore.config_listeners import joined
from kafkacore.errors import KafkaError, UnknownTopicOrPartition
from kafkacore.plurals import counted

app = typer.Typer(help="List, describe, reset and delete consumer groups and their offsets.", no_args_is_help=True)
Groups = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of groups.", autocompletion=completion.groups)]

pause = time.sleep
Offsets = dict[TopicPartition, OffsetAndMetadata]


STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "NotReady", "PreparingRebalance", "Reconciling", "Stable", "Unknown")
"""Source: org.apache.kafka.common.GroupState."""


def _state(word: str) -> str:
    """A state as Kafka writes it: its tool takes any case, too."""
    for each in STATES:
        if each.lower() == word.lower():
            return each
    raise typer.BadParameter(f"{word!r} is not one of {', '.join(STATES)}", param_hint="--state")


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only groups in this state, as Stable; may be repeated.",
            autocompletion=completion.words(*STATES),
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """List the groups of a cluster, with their states."""
    states = [_state(each) for each in state or ()]
    with admin_client(bootstrap_server, setting) as admin:
        groups = admin.list_groups(states=states, partial=True)
    if json:
        print_json([group._asdict() for group in groups])
    else:
        table = Table("group", "state", "type", "protocol")
        for group in groups:
            table.add_row(group.group_id, group.state, group.type, group.protocol_type)
        console.print(table)
    check_listed(groups)


@app.command("describe")
def describe(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP...]", help="Names of groups; all if left out.", autocompletion=completion.groups)
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show members of groups, what they are assigned, and what is committed: offset, end of the partition, and how far it is."""
    with admin_client(bootstrap_server, setting) as admin:
        listed = Listed[GroupListing]() if groups else admin.list_groups(partial=True)
        names = list(dict.fromkeys(groups or (each.group_id for each in listed)))
        found = admin.describe_groups(names)
        described, failed = found.succeeded, dict(found.errors)
        groups = [name for name in names if name in described]
        committed = _committed_of(admin, groups, failed)
        owned = {tp for group in described.values() for member in group.members for tp in member.partitions}
        ends = _ends(admin, owned.union(*committed.values()), failed)
    rows = {name: _rows(described[name], committed[name], ends) for name in groups}
    if json:
        print_json({name: _as_json(described[name], rows[name]) for name in groups})
    else:
        _show(described, rows)
    check_listed(listed, failed)


def _show(described: dict[str, GroupDescription], rows: dict[str, list[dict[str, Any]]]) -> None:
    for name in rows:
        group = described[name]
        assignor = f", assignor {group.assignor}" if group.assignor else ""
        at = group.coordinator
        where = f", coordinator {joined(at.host, at.port)} ({at.id})" if at else ""
        title = f"{name}: {group.state}, {counted(len(group.members), 'member')}{assignor}{where}"
        table = Table("topic", "partition", "committed", "end", "lag", "client", "host", "member", title=title, title_justify="left")
        for row in rows[name]:
            figures = ("-" if row[key] is None else f"{row[key]:,}" for key in ("committed", "end", "lag"))
            who = (row[key] or "-" for key in ("client_id", "host", "member_id"))
            table.add_row(row["topic"], str(row["partition"]), *figures, *who)
        console.print(table)
        if group.members:
            table = Table("member", "instance", "client", "host", "partitions")
            for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id)):
                partitions = _assignment(member.partitions)
                table.add_row(member.member_id, member.instance_id or "-", member.client_id, member.client_host, partitions)
            console.print(table)


def _assignment(partitions: list[TopicPartition]) -> str:
    """ "orders 0 1 4, payments 2"; "-" for none."""
    topics = sorted({tp.topic for tp in partitions})
    return ", ".join(" ".join([topic, *(str(tp.partition) for tp in sorted(partitions) if tp.topic == topic)]) for topic in topics) or "-"


def _rows(group: GroupDescription, committed: Offsets, ends: dict[TopicPartition, int]) -> list[dict[str, Any]]:
    """What is known of each partition that is assigned or has a committed offset; None where nothing is."""
    owners = {tp: member for member in group.members for tp in member.partitions}
    rows = []
    for tp in sorted(committed.keys() | owners.keys()):
        offset, end, owner = committed.get(tp), ends.get(tp), owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": None if offset is None else offset.offset,
                "end": end,
                "lag": None if offset is None or end is None else max(end - offset.offset, 0),
                "metadata": "" if offset is None else offset.metadata,
                "member_id": owner and owner.member_id,
                "client_id": owner and owner.client_id,
                "host": owner and owner.client_host,
            }
        )
    return rows


def _as_json(group: GroupDescription, rows: list[dict[str, Any]]) -> dict[str, Any]:
    at = group.coordinator
    return {
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        "coordinator": at and {"id": at.id, "host": at.host, "port": at.port},
        "members": [
            {
                "member_id": m.member_id,
                "instance_id": m.instance_id,
                "client_id": m.client_id,
                "host": m.client_host,
                "partitions": [list(tp) for tp in m.partitions],
            }
            for m in group.members
        ],
        "offsets": rows,
    }


def _committed(admin: KafkaAdminClient, group: str) -> Offsets:
    return {tp: each for tp, each in admin.list_group_offsets(group).items() if each is not None}


def _committed_of(admin: KafkaAdminClient, groups: list[str], failed: dict[str, KafkaError]) -> dict[str, Offsets]:
    """What groups have committed; why that is not known, or not of a partition, goes into `failed`."""
    found = admin.list_groups_offsets(dict.fromkeys(groups))
    failed |= found.errors
    failed |= {f"{group}, {tp.topic}-{tp.partition}": error for group, each in found.items() for tp, error in each.errors.items()}
    return {group: {tp: each for tp, each in found.get(group, {}).items() if each is not None} for group in groups}


def _ends(admin: KafkaAdminClient, partitions: Iterable[TopicPartition], failed: dict[str, KafkaError]) -> dict[TopicPartition, int]:
    """Where partitions end; those whose topic is not there any more are left out, and why another's is not known goes into `failed`."""
    found = admin.list_offsets(dict.fromkeys(partitions, "latest"))
    unknown = {tp: error for tp, error in found.errors.items() if not isinstance(error, UnknownTopicOrPartition)}
    failed |= {f"partition {tp.topic}-{tp.partition}": error for tp, error in unknown.items()}
    return {tp: end.offset for tp, end in found.succeeded.items()}


@app.command("lag")
def lag(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP...]", help="Names of groups; all if left out.", autocompletion=completion.groups)
    ] = None,
    watch: Annotated[
        float | None, typer.Option("--watch", min=0.1, metavar="SECONDS", help="Again after so long, with what has changed; Ctrl+C ends.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: JsonLines = False,
) -> None:
    """Show how many records groups have not committed yet, by partition and in all.

    Every five seconds: `kafkacore groups lag readers --watch 5`.
    """
    before: dict[tuple[str, TopicPartition], int] = {}
    with admin_client(bootstrap_server, setting) as admin:
        while True:
            failed: dict[str, KafkaError] = {}
            listed = Listed[GroupListing]()
            try:
                listed = Listed[GroupListing]() if groups else admin.list_groups(partial=True)
                names = list(dict.fromkeys(groups or (each.group_id for each in listed)))
                committed = _committed_of(admin, names, failed)
                if without := [name for name in groups or () if not committed[name] and name not in failed]:
                    failed |= admin.describe_groups(without).errors    # Kafka answers no offsets for a group that is not there
                ends = _ends(admin, set().union(*committed.values()), failed)
            except KafkaError as error:
                if watch is None:
                    raise
                say(f"kafkacore: warning: {sentence(error)}", err=True)
            else:
                lags = {
                    name: {tp: max(ends[tp] - each.offset, 0) for tp, each in sorted(offsets.items()) if tp in ends}
                    for name, offsets in committed.items()
                    if name not in failed
                }
                if lags or not failed:
                    _show_lags(lags, committed, ends, before, watch is not None, json)
                before = {(name, tp): count for name, counts in lags.items() for tp, count in counts.items()}
                if watch is None:
                    check_listed(listed, failed)
                    return
                for name, why in failed.items():
                    say(f"kafkacore: warning: {name}: {sentence(why)}", err=True)
            pause(watch)


def _show_lags(
    lags: dict[str, dict[TopicPartition, int]],
    committed: dict[str, Offsets],
    ends: dict[TopicPartition, int],
    before: dict[tuple[str, TopicPartition], int],
    again: bool,
    json: bool,
) -> None:
    """A table, or an object a group and round."""
    if json:
        for name, counts in lags.items():
            rows = [
                {"topic": tp.topic, "partition": tp.partition, "committed": committed[name][tp].offset, "end": ends[tp], "lag": count}
                for tp, count in counts.items()
            ]
            print_json({"group": name, "lag": sum(counts.values()), "partitions": rows})
        sys.stdout.flush()
        return
    if again and sys.stdout.isatty():
        sys.stdout.write("\x1b[2J\x1b[H")
    table = Table("group", "topic", "partition", "committed", "end", "lag", *(["change"] if before else []))
    for name, counts in lags.items():
        changes = []
        for tp, count in counts.items():
            changes.append(count - before.get((name, tp), count))
            change = [f"{changes[-1]:+,}"] if before else []
            table.add_row(name, tp.topic, str(tp.partition), f"{committed[name][tp].offset:,}", f"{ends[tp]:,}", f"{count:,}", *change)
        total = [f"{sum(changes):+,}"] if before else []
        table.add_row(name, "in all", "", "", "", f"{sum(counts.values()):,}", *total, end_section=True)
    console.print(table)
    sys.stdout.flush()


@app.command("reset")
def reset(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group; it must have no members.", autocompletion=completion.groups)],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC...]", help="Its topics; all it has offsets for if left out.", autocompletion=completion.topics),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="earliest, latest, an offset, -N, or @TIME: the first record since, in milliseconds since 1970, as 2026-05-01T12:00 "
            "(UTC), or -1h: so long ago.",
        ),
    ] = None,
    by: Annotated[
        int | None, typer.Option("--by", metavar="N", help="So many records on, or back if negative, but not beyond the ends.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute/--dry-run", help="Change the offsets; else only show what they would be.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show where the offsets of a group would be moved to, and with --execute move them."""
    if (to is None) == (by is None):
        raise typer.BadParameter("say where to: either --to or --by")
    place = None if to is None else place_of(to, "--to")
    with admin_client(bootstrap_server, setting) as admin:
        found = admin.describe_groups([group]).succeeded.get(group)  # one that is not there yet may be given offsets
        if found is not None and found.members and execute:
            inside = ", ".join(sorted({member.client_id for member in found.members}))
            raise Failure(f"group {group} is {found.state} with {counted(len(found.members), 'member')} ({inside}): stop them first")
        committed = _committed(admin, group)
        names = topics or sorted({tp.topic for tp in committed})
        if not names:
            raise Failure(f"group {group} has no offsets: name the topics")
        described = checked(admin.describe_topics(names))
        partitions = [TopicPartition(name, part.index) for name, info in described.items() for part in info.partitions]
        spans = spans_of(admin, partitions)
        if place is not None:
            wanted = offsets_at(admin, spans, place)
        else:
            missing = [tp for tp in partitions if tp not in committed]
            if missing:
                raise Failure(f"{missing[0].topic}-{missing[0].partition} has no offset to count from")
            wanted = {tp: spans.nearest(tp, max(committed[tp].offset + (by or 0), 0)) for tp in partitions}
        results = ItemResults(wanted, {})
        if execute:
            failed = admin.alter_group_offsets(group, {(tp.topic, tp.partition): offset for tp, offset in wanted.items()}).errors
            results = ItemResults({tp: offset for tp, offset in wanted.items() if tp not in failed}, dict(failed))
    if found is None and results.succeeded:
        say(f"there {'was' if execute else 'is'} no group {group}: with these offsets there is one", err=True)
    if json:
        moved = sorted(results.succeeded.items())
        print_json([{"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in moved])
    elif results.succeeded or not results.errors:
        table = Table("topic", "partition", "was", "is" if execute else "would be")
        for tp, offset in sorted(results.succeeded.items()):
            table.add_row(tp.topic, str(tp.partition), f"{committed[tp].offset:,}" if tp in committed else "-", f"{offset:,}")
        console.print(table)
        if not execute:
            say("nothing was changed; --execute does it", err=True)
    checked_items(results, _named)


@app.command("delete-offsets")
def delete_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=completion.groups)],
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...", help="Topics that no member reads; TOPIC:0,2 for some partitions.", autocompletion=completion.topics
        ),
    ],
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Forget what a group has committed for topics."""
    with admin_client(bootstrap_server, setting) as admin:
        committed = _committed(admin, group)
        wanted = sorted({tp for word in topics for tp in _partitions_of(word, committed)})
        if not wanted:
            raise Failure(f"nothing was done: group {group} has no offsets for {', '.join(topics)}")
        confirm_or_yes(f"Forget the offsets of {group} for {', '.join(map(_named, wanted))}?", yes, json)
        results = admin.delete_group_offsets(group, wanted)
    report_items(results, "deleted the offsets of", "deleted", _named, TopicPartition._asdict, dry_run=False, json=json)


def _named(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _partitions_of(word: str, committed: Offsets) -> list[TopicPartition]:
    """What TOPIC or TOPIC:0,2 is of a group's offsets."""
    topic, colon, numbers = word.partition(":")
    listed = numbers.split(",")
    if colon and not all(each.isascii() and each.isdecimal() for each in listed):
        raise typer.BadParameter(f"{word!r} is neither TOPIC nor TOPIC:0,2", param_hint="TOPIC...")
    return [tp for tp in committed if tp.topic == topic and (not colon or str(tp.partition) in listed)]


@app.command("delete")
def delete(
    groups: Groups,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Delete groups and what they have committed."""
    with admin_client(bootstrap_server, setting) as admin:
        if not yes and not json:
            checked(admin.describe_groups(groups))  # what is not there need not be asked about
            confirm(f"Delete {', '.join(groups)} and all their offsets?")
        report(admin.delete_groups(groups), "deleted", groups, json)
