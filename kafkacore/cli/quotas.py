"""`kafkacore quotas`: limits for users, client ids and addresses, described and changed."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.table import Table

from kafkacore.admin.cluster import QuotaEntity
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Controllers,
    DryRun,
    Json,
    Settings,
    admin_client,
    assignments,
    print_json,
    report_items,
)
from kafkacore.cli.terminal import console

app = typer.Typer(help="Describe and change quotas of users, client ids and addresses.", no_args_is_help=True)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user's.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Those of users without quotas of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="NAME", help="A client id's; with a user, of both together.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="Those of client ids without quotas of their own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address's: how many connections it may open in a second.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Those of addresses without quotas of their own.")]
NAMES = "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; of an address connection_creation_rate"
_ORDER = ("user", "client-id", "ip")


def _entity(
    user: str | None, user_defaults: bool, client_id: str | None, client_defaults: bool, ip: str | None, ip_defaults: bool
) -> dict[str, str | None]:
    """By type the name; None for the default of the type."""
    entity: dict[str, str | None] = {}
    for kind, option, name, default in (
        ("user", "--user", user, user_defaults),
        ("client-id", "--client-id", client_id, client_defaults),
        ("ip", "--ip", ip, ip_defaults),
    ):
        if name is not None and default:
            raise typer.BadParameter(f"either {option} or its defaults", param_hint=option)
        if name is not None or default:
            entity[kind] = name
    return entity


def _named(entity: QuotaEntity) -> str:
    """As "user alice, default client-id"."""
    parts = dict(entity)
    return ", ".join(f"default {kind}" if parts[kind] is None else f"{kind} {parts[kind]}" for kind in _kinds(entity))


def _kinds(entity: QuotaEntity) -> list[str]:
    kinds = {kind for kind, _ in entity}
    return [kind for kind in _ORDER if kind in kinds] + sorted(kinds.difference(_ORDER))


def _object(entity: QuotaEntity) -> dict[str, Any]:
    parts = dict(entity)
    return {"entity": {kind: parts[kind] for kind in _kinds(entity)}}


@app.command("describe")
def describe(
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    strict: Annotated[bool, typer.Option("--strict", help="Only quotas of exactly what is named, not of it together with others.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Show the quotas that are set, of what is named or of everyone. In JSON the name of a default is null."""
    wanted = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    if strict and not wanted:
        raise typer.BadParameter("name a user, client id or address", param_hint="--strict")
    with admin_client(bootstrap_server, setting) as admin:
        found = admin.describe_client_quotas(wanted, strict=strict)
    rows = sorted(found.items(), key=lambda item: _named(item[0]))
    if json:
        print_json([{**_object(entity), "quotas": dict(sorted(quotas.items()))} for entity, quotas in rows])
        return
    table = Table("whose", "quota", "value")
    for entity, quotas in rows:
        for name, value in sorted(quotas.items()):
            table.add_row(_named(entity), name, f"{value:,.15g}")
    console.print(table)


@app.command("set")
def set_(
    given: Annotated[list[str], typer.Argument(metavar="QUOTA=NUMBER...", help=f"{NAMES}.")],
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Set quotas."""
    changes: dict[str, float | None] = {}
    for name, text in assignments(given, "QUOTA=NUMBER").items():
        try:
            changes[name] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{name}={text}: no number", param_hint="QUOTA=NUMBER") from None
        if not math.isfinite(float(text)):
            raise typer.BadParameter(f"{name}={text}: no finite number", param_hint="QUOTA=NUMBER")
    entity = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    _alter(bootstrap_server, bootstrap_controller, setting, entity, changes, "set", dry_run, json)


@app.command("unset")
def unset(
    names: Annotated[list[str], typer.Argument(metavar="QUOTA...", help="Quotas that shall not be set any more.")],
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Take quotas away."""
    entity = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    _alter(bootstrap_server, bootstrap_controller, setting, entity, dict.fromkeys(names), "unset", dry_run, json)


def _alter(
    bootstrap_server: str,
    bootstrap_controller: str | None,
    setting: list[str] | None,
    entity: dict[str, str | None],
    changes: dict[str, float | None],
    verb: str,
    dry_run: bool,
    json: bool,
) -> None:
    if not entity:
        raise typer.BadParameter("say whose: --user, --client-id, --ip, or --user-defaults, --client-defaults, --ip-defaults")
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        results = admin.alter_client_quotas({frozenset(entity.items()): changes}, validate_only=dry_run)
    report_items(results, f"{verb} {', '.join(changes)} of", verb, _named, _object, dry_run=dry_run, json=json)
