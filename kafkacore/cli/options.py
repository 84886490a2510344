"""Options that the commands share, and what they do with them."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import socket
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kafkacore import config_secrets
from kafkacore.cli import hints, setting_files
from kafkacore.config import AdminConfig, ClientConfig, parse_address
from kafkacore.config_broker_tls import field_of
from kafkacore.config_security import SecuritySettings
from kafkacore.errors import Code, KafkaError, KafkaTimeoutError
from kafkacore.printable import printable, printable_json

if TYPE_CHECKING:
    from kafkacore import KafkaAdminClient
    from kafkacore.admin import ItemResults, Listed

_log = logging.getLogger("kafkacore.cli")
K = TypeVar("K")
V = TypeVar("V")

Bootstrap = Annotated[
    str,
    typer.Option(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        envvar="KAFKACORE_BOOTSTRAP_SERVERS",
        help="Where the cluster is; several by commas.",
        is_eager=True,  # looked at first: --bootstrap-controller asks whether it was typed
    ),
]


def _alone(ctx: typer.Context, controllers: str | None) -> str | None:
    source = ctx.get_parameter_source("bootstrap_server")
    if controllers is not None and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter("brokers or controllers, not both: leave --bootstrap-server out")
    return controllers


Controllers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT",
        callback=_alone,
        help="Where controllers are, in the place of brokers: the active one answers, also while no broker runs; several by commas.",
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="A client setting by Kafka's name, such as acks=1; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, an object a line.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Have it checked and shown; change nothing.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092
_ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
PATIENCE_MS = 15_000
"""How long a command tries to reach a cluster: the clients' own minute is long at a terminal."""


_NOT_REACHED = re.compile(r"(?s)connection to (\S+) failed: (.*)")
_NO_BROKERS_CODE = f"NETWORK_EXCEPTION ({int(Code.NETWORK_EXCEPTION)}): "


_ASKED = ContextVar("_ASKED", default="broker")
"""What the command was to reach: a broker, or a controller."""


class Failure(Exception):
    """The command could not do what was asked; its text is the one line the user sees."""


def sentence(error: BaseException) -> str:
    """An error for a person. Where none was ever reached, which ones and why, and not every try."""
    hints.saw(error)
    attempts = getattr(error, "attempts", ())
    found = [_NOT_REACHED.fullmatch(each.message) if isinstance(each, KafkaError) else None for each in attempts]
    reached = [match for match in found if match is not None]
    if not isinstance(error, KafkaTimeoutError) or not reached or len(reached) < len(found):
        return str(error)
    reasons = dict.fromkeys(f"{match[1]} ({match[2]})" for match in reached)
    return f"no {_ASKED.get()} at {', '.join(reasons)}"


def without_client_codes(text: str) -> str:
    """A message without the number that connections have which failed: no broker has sent it, and the message says it all."""
    return text.replace(_NO_BROKERS_CODE, "")


def assignments(given: list[str] | None, option: str) -> dict[str, str]:
    """`KEY=VALUE` words as a dict; anything else is wrong usage."""
    settings = {}
    for word in given or ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            shown = equals or (word.split() or [""])[0]  # what follows may be a password
            raise typer.BadParameter(f"{shown!r} is not KEY=VALUE", param_hint=option)
        settings[name.strip()] = value
    return settings


def with_ports(servers: str) -> str:
    """Servers of which those without a port have Kafka's; an IPv6 address without one is as it is."""
    each = (word.strip() for word in servers.split(","))
    return ",".join(f"{word}:{DEFAULT_PORT}" if word and (":" not in word or word.endswith("]")) else word for word in each)


def unescaped(text: bytes) -> bytes:
    r"""Text as the shell passes it: `\t`, `\n`, `\\` and `\xHH` are characters."""
    return re.sub(rb"\\(?:x([0-9a-fA-F]{2})|(.))", lambda m: bytes([int(m[1], 16)]) if m[1] else _ESCAPES.get(m[2], m[0]), text)


def separator_of(text: str) -> bytes:
    """A separator, unescaped."""
    found = unescaped(text.encode())
    if not found:
        raise typer.BadParameter("must not be empty", param_hint="--key-separator")
    return found


def client_settings(
    bootstrap_server: str,
    given: list[str] | None,
    controllers: str | None = None,
    /,
    *,
    kind: type[ClientConfig] | None = None,
    typed: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One dict of client settings: the command's own, then what the user's file says, what was typed as an option, and what -X says.

    Args:
        bootstrap_server: where brokers are.
        given: the words of -X.
        controllers: where controllers are, in their place.
        kind: what they are for; of a file's settings those that it has count. None: those that all clients have.
        typed: settings that were typed as options of the command.
        more: the command's own.
    """
    where = {"bootstrap.servers": with_ports(bootstrap_server)} if controllers is None else {"bootstrap.controllers": controllers}
    _ASKED.set("broker" if controllers is None else "controller")
    by_settings = assignments(given, "-X")
    if "bootstrap.controllers" in (name.replace("_", ".") for name in by_settings):
        raise typer.BadParameter("bootstrap.controllers is --bootstrap-controller, where a command has it", param_hint="-X")
    files = setting_files.current()
    by_file = without_references(files.of(kind), files.where, SecuritySettings)
    settings = {**where, "client.id": "kafkacore-cli", **more}
    for layer in (by_file, typed or {}, without_references(by_settings, "-X", SecuritySettings)):
        over = {name.replace("_", ".") for name in layer}
        settings = {name: value for name, value in settings.items() if name.replace("_", ".") not in over} | dict(layer)
    by_admin = {name: value for name, value in settings.items() if name.replace(".", "_") in AdminConfig.names()}
    hints.ask_by(lambda: _hinting(by_admin))
    _check_names(str(settings.get("bootstrap_servers", settings.get("bootstrap.servers", controllers))))
    return settings


def registry_of(url: str | None, given: list[str] | None, *, needed: bool) -> tuple[Any, list[str]]:
    """The schema registry that a command asks: --registry, over what -X says under `schema.registry.`, over the user's file.

    Args:
        url: of --registry.
        given: the words of -X.
        needed: the command cannot do without one, so the `schema.registry.url` of a file counts.

    Returns:
        A `RegistryOptions`, or None; and the other words of -X.
    """
    prefix = setting_files.REGISTRY
    of_registry = [word for word in given or () if word.replace("_", ".").startswith(prefix)]
    others = [word for word in given or () if word not in of_registry]
    by_words = {name.replace("_", ".").removeprefix(prefix): value for name, value in assignments(of_registry, "-X").items()}
    if url is not None and setting_files.URL in by_words:
        raise typer.BadParameter("schema.registry.url is --registry: leave one of them out", param_hint="-X")
    url = by_words.pop(setting_files.URL, url)
    files = setting_files.current()
    by_file = dict(files.registry)
    own, called = by_file.pop(setting_files.URL, None), "--registry"
    if url is None and needed and own is not None:
        url, called = own, f"{files.where}: schema.registry.url"
    if url is None:
        if by_words:
            raise typer.BadParameter(f"{of_registry[0].partition('=')[0]} goes with --registry URL", param_hint="-X")
        return None, others
    if files.is_default and url != own and by_file:
        _log.warning("%s: %s not used: it goes to the schema.registry.url of the default profile alone", files.where, ", ".join(by_file))
        by_file = {}
    from kafkacore.decode.registry import options_of

    return options_of(url, by_file | by_words, called=called), others


def registry_of_values(url: str | None, given: list[str] | None, form: str, schema: str | None) -> tuple[Any, list[str]]:
    """The schema registry of a read of values of one form, as `registry_of` gives it."""
    registry, others = registry_of(url, given, needed=form == "avro" and schema is None)
    if registry is not None and form not in ("json", "avro"):                   # what it describes looks like bytes to auto
        raise typer.BadParameter("is for --format json and --format avro", param_hint="--registry")
    if registry is None and schema is None and form == "avro":
        raise typer.BadParameter("avro takes --registry URL, or --schema", param_hint="--format")
    return registry, others


def _hinting(settings: Mapping[str, Any]) -> KafkaAdminClient:
    """A client that asks what may have been meant, and does not ask for long."""
    from kafkacore import KafkaAdminClient

    patience = ("default.api.timeout.ms", "request.timeout.ms", "socket.connection.setup.timeout.ms")
    fields = {name.replace(".", "_") for name in patience}
    given = {name: value for name, value in settings.items() if name.replace(".", "_") not in fields}
    return KafkaAdminClient(given | dict.fromkeys(patience, hints.PATIENCE_MS))


def _check_names(servers: str) -> None:
    """A host that no name server knows is a slip of the pen: clients would look for it again and again.

    Raises:
        Failure: none of the hosts has an address.
    """
    wrong = []
    for word in filter(None, (each.strip() for each in servers.split(","))):
        host, port = parse_address(word)
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return
        except socket.gaierror as unknown:
            if unknown.errno != socket.EAI_NONAME:  # a name server that is away may come back
                return
            wrong.append(f"cannot resolve host {host!r}: {unknown.strerror}")
        except (OSError, ValueError):  # the client finds out, and says it in its way
            return
    if wrong:
        raise Failure("; ".join(wrong))


def without_references(settings: dict[str, str], option: str, *described: type) -> dict[str, str]:
    """Puts secrets in the place of secret://env/NAME and secret://file/PATH, where no message repeats the setting.

    Args:
        settings: by Kafka's names.
        option: where they were given.
        described: the dataclasses of the settings.
    """
    hidden = {each.name for one in described for each in dataclasses.fields(one) if not each.repr}
    return config_secrets.resolve_hidden(settings, lambda name: field_of(name) in hidden, option)


def admin_client(bootstrap_server: str, given: list[str] | None, controllers: str | None = None) -> KafkaAdminClient:
    """A client for one command."""
    from kafkacore import KafkaAdminClient

    own: dict[str, Any] = {"default.api.timeout.ms": PATIENCE_MS}
    return KafkaAdminClient(client_settings(bootstrap_server, given, controllers, kind=AdminConfig, **own))


def checked(results: ItemResults[K, V]) -> dict[K, V]:
    """What was asked for, when it worked for every item; else one line that names each that failed, and why."""
    if results.errors:
        from kafkacore.admin import ConfigResource

        named = ((item.name if isinstance(item, ConfigResource) else str(item), error) for item, error in results.errors.items())
        texts = dict.fromkeys(text if name in (text := sentence(error)) else f"{name}: {text}" for name, error in named)
        raise Failure("; ".join(texts))
    return results.succeeded


def check_listed(listed: Listed[Any], failed: Mapping[str, KafkaError] | None = None) -> None:
    """After what is known was shown: one line that names each broker and each item that is missing, and why.

    Raises:
        Failure: something is missing.
    """
    missing = {f"broker {node_id}": error for node_id, error in listed.errors.items()} | dict(failed or {})
    texts = dict.fromkeys(text if name in (text := sentence(error)) else f"{name}: {text}" for name, error in missing.items())
    if texts:
        raise Failure("; ".join(texts))


def confirm(question: str) -> None:
    """Asks before something is lost for good; where no terminal can answer, says which option means yes."""
    try:
        typer.confirm(printable(question), abort=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo()  # the question's line has no end yet
        raise Failure("nothing was done: not confirmed; --yes does not ask") from None


def confirm_or_yes(question: str, yes: bool, json: bool) -> None:
    """Asks, unless --yes is there; where a program reads, it does not ask."""
    if yes:
        return
    if json:
        raise Failure("nothing was done: --json does not ask; add --yes")
    confirm(question)


def told(done: str, names: list[str], json: bool) -> None:
    """Says what a command has done, and to what."""
    if json:
        print_json({done: names})
    else:
        say(f"{done} {', '.join(names)}")


def report(results: ItemResults[str, V], done: str, names: list[str], json: bool) -> None:
    """Says what a command has done, also where it did not work for all.

    Raises:
        Failure: it failed for some, which are named, with the reasons.
    """
    worked = [name for name in dict.fromkeys(names) if name in results.succeeded]
    if json:
        failed = {name: sentence(error) for name, error in results.errors.items()}
        print_json({done: worked, **({"failed": failed} if failed else {})})
    elif worked:
        told(done, worked, json)
    checked(results)


def checked_items(results: ItemResults[K, V], name_of: Callable[[K], str]) -> dict[K, V]:
    """As `checked`, for items that are no names."""
    if results.errors:
        raise Failure("; ".join(f"{name_of(item)}: {sentence(error)}" for item, error in results.errors.items()))
    return results.succeeded


def report_items(
    results: ItemResults[K, V],
    done: str,
    verb: str,
    name_of: Callable[[K], str],
    object_of: Callable[[K], dict[str, Any]],
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """Says what was done, also where it did not work for all.

    Args:
        results: by item.
        done: what was done, before the items' names.
        verb: the same in a word, the name of the JSON member.
        name_of: an item for people.
        object_of: an item for machines.
        dry_run: nothing was done, only checked.
        json: for machines.

    Raises:
        Failure: it failed for some, which are named, with the reasons.
    """
    if json:
        failed = [{**object_of(item), "error": sentence(error)} for item, error in results.errors.items()]
        worked = [object_of(item) for item in results.succeeded]
        print_json({verb: worked, "failed": failed, "dry_run": dry_run})
    elif results.succeeded:
        say(f"{'would have ' if dry_run else ''}{done} {', '.join(map(name_of, results.succeeded))}")
    checked_items(results, name_of)


def say(text: str, *, err: bool = False) -> None:
    """Prints a line. Names in it may be a client's or a broker's: nothing of it has an effect on the terminal."""
    typer.echo(printable(text), err=err)


def json_line(value: Any) -> str:
    """One JSON document on one line, without effect on a terminal."""
    return printable_json(json.dumps(value, separators=(",", ":"), ensure_ascii=False)) + "\n"


def print_json(value: Any) -> None:
    """One JSON document on one line of stdout."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json_line(value) if is_unicode else json.dumps(value, separators=(",", ":")) + "\n")
