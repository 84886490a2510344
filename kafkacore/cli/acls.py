"""`kafkacore acls`: who may do what, listed, added and removed; with the options of Kafka's script."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Annotated, NamedTuple

import typer
from rich.table import Table

from kafkacore.admin import Acl, AclFilter
from kafkacore.admin.security import OPERATIONS, PATTERN_TYPES
from kafkacore.cli import completion
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Controllers,
    DryRun,
    Failure,
    Json,
    Settings,
    Yes,
    admin_client,
    checked_items,
    confirm_or_yes,
    print_json,
    report_items,
    say,
)
from kafkacore.cli.terminal import console
from kafkacore.plurals import counted

app = typer.Typer(help="List, add and remove access control entries.", no_args_is_help=True)

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="A topic, '*' for all; may be repeated.", autocompletion=completion.topics),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="A group, '*' for all; may be repeated.", autocompletion=completion.groups),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
TransactionalIds = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id, '*' for all; may be repeated.")
]
Tokens = Annotated[list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token; may be repeated.")]
Users = Annotated[
    list[str] | None, typer.Option("--user-principal", metavar="PRINCIPAL", help="A user whose tokens are meant; may be repeated.")
]
Allowed = Annotated[
    list[str] | None, typer.Option("--allow-principal", metavar="PRINCIPAL", help="Who may: User:alice, User:* for all; may be repeated.")
]
Denied = Annotated[list[str] | None, typer.Option("--deny-principal", metavar="PRINCIPAL", help="Who may not; may be repeated.")]
AllowedHosts = Annotated[
    list[str] | None, typer.Option("--allow-host", metavar="ADDRESS", help="Where those who may come from; anywhere if left out.")
]
DeniedHosts = Annotated[
    list[str] | None, typer.Option("--deny-host", metavar="ADDRESS", help="Where those who may not come from; anywhere if left out.")
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="NAME",
        autocompletion=completion.listed(*OPERATIONS),
        help=f"{', '.join(list(OPERATIONS)[1:])}; several by commas; may be repeated.",
    ),
]
GRANTED = tuple(word for word in OPERATIONS if word != "any")
"""Operations of entries; "any" is for filters."""
CLUSTER_NAME = "kafka-cluster"
Resource = tuple[str, str]


def _resources(
    topic: list[str] | None,
    group: list[str] | None,
    cluster: bool,
    transactional_id: list[str] | None,
    delegation_token: list[str] | None,
    user_principal: list[str] | None,
) -> list[Resource]:
    """(type, name) of what is named."""
    named: list[tuple[str, list[str]]] = [
        ("topic", topic or []),
        ("group", group or []),
        ("cluster", [CLUSTER_NAME] if cluster else []),
        ("transactional_id", transactional_id or []),
        ("delegation_token", delegation_token or []),
        ("user", [_principal(each) for each in user_principal or ()]),
    ]
    return [(kind, name) for kind, names in named for name in names]


def _word(text: str, known: Collection[str], option: str) -> str:
    """A word of Kafka's in any of its spellings: DescribeConfigs, DESCRIBE_CONFIGS, describe-configs."""
    plain = text.replace("_", "").replace("-", "").lower()
    for word in known:
        if word.replace("_", "") == plain:
            return word
    raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}", param_hint=option)


def _operations(given: list[str] | None, known: Collection[str] = OPERATIONS) -> list[str]:
    return [_word(each.strip(), known, "--operation") for word in given or () for each in word.split(",")]


def _principal(text: str) -> str:
    """A principal; a bare name is a user's."""
    return text if ":" in text else f"User:{text}"


def _named(acl: Acl) -> str:
    """As "allow User:alice to read topic flights"."""
    resource = "the cluster" if acl.resource_type == "cluster" else f"{acl.resource_type.replace('_', ' ')} {acl.resource_name}"
    prefixed = "..." if acl.pattern_type == "prefixed" else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    operation = "everything with" if acl.operation == "all" else acl.operation.replace("_", " ")
    return f"{acl.permission} {acl.principal}{host} {operation} on {resource}{prefixed}"


def _show(acls: list[Acl]) -> None:
    table = Table("principal", "host", "permission", "operation", "resource", "name", "pattern")
    for acl in acls:
        resource, operation = acl.resource_type.replace("_", " "), acl.operation.replace("_", " ")
        table.add_row(acl.principal, acl.host, acl.permission, operation, resource, acl.resource_name, acl.pattern_type)
    console.print(table)


def _filters(
    resources: list[Resource], principals: list[str], hosts: list[str], operations: list[str], permission: str, pattern_type: str
) -> list[AclFilter]:
    """Every combination; what is not named is any."""
    kinds: list[tuple[str, str | None]] = [*resources] or [("any", None)]
    whose: list[str | None] = [*principals] or [None]
    where: list[str | None] = [*hosts] or [None]
    return [
        AclFilter(kind, name, principal, operation, host, permission, pattern_type)
        for (kind, name), principal, operation, host in itertools.product(kinds, whose, operations or ["any"], where)
    ]


@app.command("list")
def list_acls(
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    principal: Annotated[
        list[str] | None, typer.Option("--principal", metavar="PRINCIPAL", help="Only entries for User:alice; may be repeated.")
    ] = None,
    host: Annotated[list[str] | None, typer.Option("--host", metavar="ADDRESS", help="Only entries for this address.")] = None,
    operation: Operations = None,
    pattern: Annotated[
        str,
        typer.Option(
            "--resource-pattern-type", metavar="TYPE", help="any, literal, prefixed. match: all entries that hold for the names given."
        ),
    ] = "any",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """List entries: all, or those for what is named."""
    resources = _resources(topic, group, cluster, transactional_id, delegation_token, user_principal)
    principals = [_principal(each) for each in principal or ()]
    pattern_type = _word(pattern, PATTERN_TYPES, "--resource-pattern-type")
    filters = _filters(resources, principals, host or [], _operations(operation), "any", pattern_type)
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        found = sorted({acl for each in filters for acl in admin.describe_acls(each)})
    if json:
        print_json([acl._asdict() for acl in found])
    else:
        _show(found)


class _Role(NamedTuple):
    """What a kind of client has to do with a kind of resource. Source: kafka.admin.AclCommand.getProducerResourceToAcls and its peers."""

    option: str
    operations: dict[str, tuple[str, ...]]
    needed: tuple[str, ...]


_PRODUCER = _Role("--producer", {"topic": ("write", "describe", "create"), "transactional_id": ("write", "describe")}, needed=("topic",))
_CONSUMER = _Role("--consumer", {"topic": ("read", "describe"), "group": ("read",)}, needed=("topic", "group"))


def _wanted(
    resources: list[Resource], operations: list[str], producer: bool, consumer: bool, idempotent: bool
) -> list[tuple[Resource, str]]:
    """Which operations on which resources."""
    roles = [role for role, given in ((_PRODUCER, producer), (_CONSUMER, consumer)) if given]
    if roles and operations:
        raise typer.BadParameter(f"{roles[0].option} says which operations", param_hint="--operation")
    if idempotent and not producer:
        raise typer.BadParameter("goes with --producer", param_hint="--idempotent")
    if not roles:
        if not resources:
            raise typer.BadParameter("say of what: --topic, --group, --cluster, --transactional-id, --delegation-token or --user-principal")
        if not operations:
            raise typer.BadParameter("say which operations: --operation read,describe; all for everything", param_hint="--operation")
        return list(itertools.product(resources, operations))
    wanted: list[tuple[Resource, str]] = []
    kinds = {kind for kind, _ in resources}
    for role in roles:
        if missing := [kind for kind in role.needed if kind not in kinds]:
            raise typer.BadParameter(f"goes with --{' and --'.join(missing)}", param_hint=role.option)
        wanted += [(each, operation) for each in resources for operation in role.operations.get(each[0], ())]
    known = {kind for role in roles for kind in role.operations}
    if odd := kinds - known:
        raise typer.BadParameter(f"says nothing about a {min(odd).replace('_', ' ')}", param_hint=roles[0].option)
    return [*wanted, (("cluster", CLUSTER_NAME), "idempotent_write")] if idempotent else wanted


@app.command("add")
def add(
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
    operation: Operations = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer does: write, describe and create topics, use its transactional id.")
    ] = False,
    consumer: Annotated[bool, typer.Option("--consumer", help="What a consumer does: read and describe topics, read in groups.")] = False,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: write idempotently, for brokers before Kafka 3.0.")
    ] = False,
    pattern: Annotated[
        str, typer.Option("--resource-pattern-type", metavar="TYPE", help="literal, or prefixed: names that begin so.")
    ] = "literal",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the entries; add none.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Add entries: one for each principal, address, operation and resource."""
    pattern_type = _word(pattern, PATTERN_TYPES, "--resource-pattern-type")
    if pattern_type in ("any", "match"):
        raise typer.BadParameter("literal or prefixed", param_hint="--resource-pattern-type")
    resources = _resources(topic, group, cluster, transactional_id, delegation_token, user_principal)
    wanted = _wanted(resources, _operations(operation, GRANTED), producer, consumer, idempotent)
    who = [("allow", _principal(each), host) for each in allow_principal or () for host in allow_host or ["*"]]
    who += [("deny", _principal(each), host) for each in deny_principal or () for host in deny_host or ["*"]]
    for hosts, principals, option in ((allow_host, allow_principal, "--allow-host"), (deny_host, deny_principal, "--deny-host")):
        if hosts and not principals:
            raise typer.BadParameter("whose address is it?", param_hint=option)
    if not who:
        raise typer.BadParameter("say who: --allow-principal or --deny-principal")
    acls = [
        Acl(kind, name, principal, operation, host, permission, "literal" if kind == "cluster" else pattern_type)
        for permission, principal, host in who
        for (kind, name), operation in wanted
    ]
    acls = list(dict.fromkeys(acls))
    if dry_run:
        if json:
            print_json({"added": [acl._asdict() for acl in acls], "failed": [], "dry_run": True})
        else:
            _show(acls)
        return
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        results = admin.create_acls(acls)
    if not json and results.succeeded:
        say(f"added {counted(len(results.succeeded), 'entry', 'entries')}")
        _show(list(results.succeeded))
        checked_items(results, _named)
    else:
        report_items(results, "added", "added", _named, Acl._asdict, dry_run=False, json=json)


@app.command("remove")
def remove(
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
    operation: Operations = None,
    pattern: Annotated[
        str,
        typer.Option(
            "--resource-pattern-type", metavar="TYPE", help="any, literal, prefixed. match: all entries that hold for the names given."
        ),
    ] = "literal",
    every: Annotated[bool, typer.Option("--all", help="All entries there are, when nothing is named.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Remove the entries for what is named."""
    pattern_type = _word(pattern, PATTERN_TYPES, "--resource-pattern-type")
    resources = _resources(topic, group, cluster, transactional_id, delegation_token, user_principal)
    operations = _operations(operation)
    filters: list[AclFilter] = []
    for permission, principals, hosts in (("allow", allow_principal, allow_host), ("deny", deny_principal, deny_host)):
        if principals or hosts:
            filters += _filters(
                resources, [_principal(each) for each in principals or ()], hosts or [], operations, permission, pattern_type
            )
    if not filters:
        if not (resources or operations or every):
            raise typer.BadParameter("say which: a resource, a principal or an operation; --all for every entry")
        filters = _filters(resources, [], [], operations, "any", "any" if every and not resources else pattern_type)
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        found = sorted({acl for each in filters for acl in admin.describe_acls(each)})
        if not found:
            raise Failure("nothing was done: no entry is for what is named; `kafkacore acls list` lists them")
        if dry_run:
            if json:
                print_json({"removed": [acl._asdict() for acl in found], "failed": [], "dry_run": True})
            else:
                _show(found)
            return
        if not (yes or json):
            _show(found)
        confirm_or_yes(f"Remove {'this entry' if len(found) == 1 else f'these {len(found)} entries'}?", yes, json)
        results = admin.delete_acls(filters)
    removed = sorted({acl for acls in results.succeeded.values() for acl in acls})
    if json:
        failed = [{**each._asdict(), "error": str(error)} for each, error in results.errors.items()]
        print_json({"removed": [acl._asdict() for acl in removed], "failed": failed, "dry_run": False})
    elif removed:
        say(f"removed {counted(len(removed), 'entry', 'entries')}")
        if yes:
            _show(removed)
    checked_items(results, _filter_named)


def _filter_named(each: AclFilter) -> str:
    words = {name: value for name, value in each._asdict().items() if value not in (None, "any")}
    return ", ".join(f"{name} {value}" for name, value in words.items()) or "all"
