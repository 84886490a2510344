"""`kafkacore configs`: settings of topics, brokers, groups and client metrics, described and changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.table import Table

from kafkacore import KafkaAdminClient, errors
from kafkacore.admin import Append, ConfigEntry, ConfigResource, Subtract
from kafkacore.cli import completion, hints
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Controllers,
    DryRun,
    Json,
    Settings,
    admin_client,
    assignments,
    checked_items,
    print_json,
    report_items,
    say,
)
from kafkacore.cli.terminal import console
from kafkacore.config_secrets import resolve_hidden
from kafkacore.config_text import holds_secret

app = typer.Typer(help="Describe and change settings of topics, brokers, groups and client metrics.", no_args_is_help=True)

Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="A topic's; may be repeated.", autocompletion=completion.topics)
]
Brokers = Annotated[
    list[int] | None, typer.Option("--broker", min=0, metavar="ID", help="A broker's; may be repeated.", autocompletion=completion.brokers)
]
BrokerDefaults = Annotated[bool, typer.Option("--broker-defaults", help="Those that all brokers have where they have none of their own.")]
Loggers = Annotated[
    list[int] | None,
    typer.Option(
        "--broker-logger", min=0, metavar="ID", help="Log levels of a broker; may be repeated.", autocompletion=completion.brokers
    ),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="A group's; may be repeated.", autocompletion=completion.groups)
]
ClientMetrics = Annotated[
    list[str] | None, typer.Option("--client-metrics", metavar="NAME", help="A client metrics subscription's; may be repeated.")
]
Change = str | Append | Subtract | None
_NOT_SET = ("default", "static_broker")


def _resources(
    topic: list[str] | None,
    broker: list[int] | None,
    broker_defaults: bool,
    broker_logger: list[int] | None,
    group: list[str] | None,
    client_metrics: list[str] | None,
) -> list[ConfigResource]:
    named: list[tuple[str, list[str]]] = [
        ("topic", topic or []),
        ("broker", [str(each) for each in broker or ()] + [""] * broker_defaults),
        ("broker_logger", [str(each) for each in broker_logger or ()]),
        ("group", group or []),
        ("client_metrics", client_metrics or []),
    ]
    return [ConfigResource(kind, name) for kind, names in named for name in names]


def _named(resource: ConfigResource) -> str:
    """As "topic flights", "all brokers"."""
    if resource == ("broker", ""):
        return "all brokers"
    return f"{resource.kind.replace('_', ' ')} {resource.name}"


def _everything(admin: KafkaAdminClient) -> list[ConfigResource]:
    """What has settings, without log levels; before Kafka 4.1 topics and brokers alone can be listed."""
    try:
        found = admin.list_config_resources(["topic", "broker", "group", "client_metrics"])
    except errors.UnsupportedVersion:
        found = [ConfigResource("topic", name) for name in admin.list_topics(include_internal=True)]
        found += [ConfigResource("broker", str(node.id)) for node in admin.describe_cluster().nodes]
    return sorted({*found, ConfigResource("broker", "")})


def _shown(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(secret)"
    return "(null)" if entry.value is None else entry.value


@app.command("describe")
def describe(
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    broker_logger: Loggers = None,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    every: Annotated[bool, typer.Option("--all", help="Also what was never changed: defaults, and settings in brokers' files.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show settings that were set, of what is named or of everything; with --all the others too."""
    wanted = _resources(topic, broker, broker_defaults, broker_logger, group, client_metrics)
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        found = admin.describe_configs(wanted or _everything(admin))
    rows = {
        resource: sorted(
            (entry for entry in entries.values() if every or entry.source not in _NOT_SET),
            key=lambda entry: (entry.source in _NOT_SET, entry.name),
        )
        for resource, entries in sorted(found.succeeded.items())
    }
    if json:
        print_json([_as_json(resource, entries) for resource, entries in rows.items()])
    else:
        for resource, entries in rows.items():
            if entries:
                table = Table("setting", "value", "from", title=_named(resource), title_justify="left")
                for entry in entries:
                    table.add_row(entry.name, _shown(entry), entry.source.replace("_", " "))
                console.print(table)
            elif wanted:
                say(f"{_named(resource)}: nothing is set")
    checked_items(found, _named)


def _as_json(resource: ConfigResource, entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        "kind": resource.kind,
        "name": resource.name,
        "configs": {
            entry.name: {
                "value": entry.value,
                "source": entry.source,
                "type": entry.type,
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
            }
            for entry in entries
        },
    }


@app.command("set")
def set_(
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE...]", help="Settings and their new values; passwords by secret://env/NAME.")
    ] = None,
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    broker_logger: Loggers = None,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Add values, by commas, to a setting that is a list.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Take values, by commas, out of a setting that is a list.")
    ] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete", metavar="KEY", help="A setting that goes back to its default.")] = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Change settings. Those of one topic, broker or group change together or not at all."""
    resources = _resources(topic, broker, broker_defaults, broker_logger, group, client_metrics)
    changes: dict[str, Change] = {}
    parts: tuple[tuple[str, Mapping[str, Change]], ...] = (
        ("KEY=VALUE", resolve_hidden(assignments(given, "KEY=VALUE"), holds_secret, "KEY=VALUE")),
        ("--append", {name: Append(value) for name, value in assignments(append, "--append").items()}),
        ("--subtract", {name: Subtract(value) for name, value in assignments(subtract, "--subtract").items()}),
        ("--delete", dict.fromkeys(delete or ())),
    )
    for option, part in parts:
        if twice := sorted(part.keys() & changes.keys()):
            raise typer.BadParameter(f"{twice[0]} is changed in two ways", param_hint=option)
        changes |= part
    _alter(bootstrap_server, bootstrap_controller, setting, resources, changes, "set", dry_run, json)


@app.command("unset")
def unset(
    names: Annotated[list[str], typer.Argument(metavar="KEY...", help="Settings that go back to their defaults.")],
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    broker_logger: Loggers = None,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Take settings back to their defaults."""
    if wrong := next((name for name in names if "=" in name), None):
        raise typer.BadParameter(f"{wrong!r}: names without values; `kafkacore configs set` sets", param_hint="KEY...")
    resources = _resources(topic, broker, broker_defaults, broker_logger, group, client_metrics)
    _alter(bootstrap_server, bootstrap_controller, setting, resources, dict.fromkeys(names), "unset", dry_run, json)


def _alter(
    bootstrap_server: str,
    bootstrap_controller: str | None,
    setting: list[str] | None,
    resources: list[ConfigResource],
    changes: Mapping[str, Change],
    verb: str,
    dry_run: bool,
    json: bool,
) -> None:
    if not resources:
        raise typer.BadParameter("say whose settings: --topic, --broker, --broker-defaults, --broker-logger, --group or --client-metrics")
    if not changes:
        raise typer.BadParameter("nothing to change: give KEY=VALUE, --append, --subtract or --delete")
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        if verb == "unset":
            _warn_of_names_without_effect(admin, resources, changes)
        results = admin.alter_configs(dict.fromkeys(resources, changes), validate_only=dry_run)
        if verb == "set" and any(each.kind == "broker" for each in results.succeeded):
            _warn_of_unknown(admin, changes)
    report_items(results, f"{verb} {', '.join(changes)} of", verb, _named, ConfigResource._asdict, dry_run=dry_run, json=json)


def _warn_of_names_without_effect(admin: KafkaAdminClient, resources: Iterable[ConfigResource], names: Collection[str]) -> None:
    """Kafka takes any name that is to be unset: without a word, what is misspelled has no effect."""
    asked = [each for each in resources if each.kind in ("topic", "broker") and each.name]  # others list only what is set
    with suppress(errors.KafkaError):                                 # what is wrong with a resource, its change says
        for resource, entries in admin.describe_configs(asked).succeeded.items() if asked else ():
            unknown = [name for name in names if name not in entries]
            near = hints.nearest(unknown, entries)
            for name in unknown if entries else ():
                meant = f"; did you mean {near[name]}?" if name in near else ""
                say(f"kafkacore: warning: {_named(resource)} has no setting {name}{meant}", err=True)


def _warn_of_unknown(admin: KafkaAdminClient, names: Iterable[str]) -> None:
    """Brokers keep settings that they do not know, for plug-ins of theirs: without a word, what is misspelled has no effect."""
    with suppress(errors.KafkaError):                                 # the change itself was made
        broker = ConfigResource("broker", str(admin.describe_cluster().nodes[0].id))
        entries = admin.describe_configs([broker]).check()[broker]
        known = [name for name, entry in entries.items() if entry.type != "unknown"]
        unknown = [name for name in names if name not in known and not name.startswith("listener.name.")]
        near = hints.nearest(unknown, known)
        for name in unknown if known else ():                  # brokers before Kafka 2.6 name no types
            meant = f"; did you mean {near[name]}?" if name in near else ""
            say(f"kafkacore: warning: brokers keep {name}, and have no setting of that name{meant}", err=True)
