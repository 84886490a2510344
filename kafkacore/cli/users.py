"""`kafkacore users`: who may log in with SCRAM."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.table import Table

from kafkacore import config_secrets, errors
from kafkacore.admin import ItemResults
from kafkacore.admin.users import MECHANISMS
from kafkacore.cli import completion
from kafkacore.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Controllers,
    Failure,
    Json,
    Settings,
    Yes,
    admin_client,
    checked_items,
    confirm_or_yes,
    print_json,
    report_items,
)
from kafkacore.cli.terminal import console
from kafkacore.net.sasl import MIN_ITERATIONS

app = typer.Typer(help="List, set and delete users that log in with SCRAM.", no_args_is_help=True)
Credential = tuple[str, str]
_MOST_PASSWORD_BYTES = 1 << 16
_DEFAULT = "SCRAM-SHA-512"


def _mechanism(word: str) -> str:
    """A mechanism as Kafka writes it; rpk's have other cases."""
    if word.upper() not in MECHANISMS:
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(MECHANISMS)}", param_hint="--mechanism")
    return word.upper()


def _named(each: Credential) -> str:
    return f"{each[0]} ({each[1]})"


def _object(each: Credential) -> dict[str, Any]:
    return {"user": each[0], "mechanism": each[1]}


@app.command("list")
def list_users(
    users: Annotated[list[str] | None, typer.Argument(metavar="[USER...]", help="Only these.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """List users, their mechanisms, and how often each hashes the password."""
    with admin_client(bootstrap_server, setting) as admin:
        found = admin.describe_user_scram_credentials(users or None)
    rows = sorted(found.succeeded.items())
    if json:
        print_json([{"user": name, "mechanisms": dict(sorted(iterations.items()))} for name, iterations in rows])
    elif rows or not found.errors:
        table = Table("user", "mechanism", "iterations")
        for name, iterations in rows:
            for mechanism, count in sorted(iterations.items()):
                table.add_row(name, mechanism, f"{count:,}")
        console.print(table)
    checked_items(found, str)


@app.command("set")
def set_(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who; a user that is not there is created.")],
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            metavar="SECRET",
            help="secret://env/NAME or secret://file/PATH. Left out: asked for, or the first line of standard input.",
        ),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option("--mechanism", metavar="NAME", autocompletion=completion.words(*MECHANISMS), help="SCRAM-SHA-256 or SCRAM-SHA-512."),
    ] = _DEFAULT,
    iterations: Annotated[int, typer.Option("--iterations", min=MIN_ITERATIONS, max=16384, metavar="N", help="How often is hashed.")] = (
        MIN_ITERATIONS
    ),
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    bootstrap_controller: Controllers = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Give a user a password. It does not leave this process: a salted hash of it does."""
    named = _mechanism(mechanism)
    secret = _password(user, password)
    with admin_client(bootstrap_server, setting, bootstrap_controller) as admin:
        results = admin.alter_user_scram_credentials({(user, named): secret}, iterations=iterations)
    report_items(results, "set the password of", "set", _named, _object, dry_run=False, json=json)


def _password(user: str, given: str | None) -> str:
    if given is not None:
        if not given.startswith(config_secrets.PREFIX):
            raise typer.BadParameter(
                "others see a command line: secret://env/NAME, secret://file/PATH, or leave it out and type it", param_hint="--password"
            )
        return config_secrets.resolve("--password", given)
    if sys.stdin.isatty():
        return str(typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True))
    line = sys.stdin.buffer.readline(_MOST_PASSWORD_BYTES).rstrip(b"\r\n")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise Failure("the password on standard input is no UTF-8") from None
    if not text:
        raise Failure("no password on standard input; --password names a secret")
    return text


@app.command("delete")
def delete(
    users: Annotated[list[str], typer.Argument(metavar="USER...", help="Who shall not log in any more.")],
    mechanism: Annotated[
        str | None, typer.Option("--mechanism", metavar="NAME", help="Only with this one; without it with all that the user has.")
    ] = None,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Delete users' passwords. Connections that are open stay."""
    named = None if mechanism is None else _mechanism(mechanism)
    users = list(dict.fromkeys(users))
    with admin_client(bootstrap_server, setting) as admin:
        found = admin.describe_user_scram_credentials(users)
        there = found.succeeded
        if not there:
            checked_items(found, str)
        wanted: dict[Credential, str | None] = {
            (user, each): None for user in users if user in there for each in ([named] if named else sorted(there[user]))
        }
        confirm_or_yes(f"Delete the {'password' if len(wanted) == 1 else 'passwords'} of {', '.join(map(_named, wanted))}?", yes, json)
        results = admin.alter_user_scram_credentials(wanted)
    missing: dict[Credential, errors.KafkaError] = {(user, named or "any mechanism"): error for user, error in found.errors.items()}
    both = ItemResults(results.succeeded, {**results.errors, **missing})
    report_items(both, "deleted the password of", "deleted", _named, _object, dry_run=False, json=json)
