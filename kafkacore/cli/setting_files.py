"""Client settings out of files, for all commands: a properties file (-F, --command-config), or a profile of the user's own file.

The file of profiles is `$KAFKACORE_CONFIG`, else `kafkacore/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`:

    default_profile = "dev"

    [profiles.dev]
    bootstrap.servers = "127.0.0.1:9092"

    [profiles.production]
    bootstrap.servers = "kafka.example.com:9093"
    security.protocol = "SASL_SSL"
    sasl.mechanism = "SCRAM-SHA-256"
    sasl.username = "alice"
    sasl.password = "secret://file/run/secrets/kafka"

Rules
1. What is typed goes first: options, then -X. Then what a file says, then the environment, then the command's defaults.
   [test_several_files_are_read_in_turn, test_profiles_and_the_default_one]
2. The default profile counts where nothing else says where the cluster is: its passwords never go to a server that was named otherwise.
   [test_profiles_and_the_default_one]
3. A file is for all commands, so it may hold settings of a kind of client that a command does not use. What no client knows is refused
   where another setting seems to be meant, and else named in a warning, as Java's clients do.
   [test_a_file_logs_in_for_commands_of_every_kind_of_client, test_what_is_wrong_in_a_profile_is_one_line]
4. Names of kcat and of Java's clients for what is the same here are taken (`SAME`). [test_names_of_kcat_and_java_that_mean_the_same]
5. A file that holds a password and may be read by other users is warned about. [test_a_password_that_others_may_read_is_warned_about]
6. `schema.registry.NAME` is of the registry that a command asks, and of no client. Those of the default profile go to its own
   `schema.registry.url` alone. [test_a_file_says_how_the_schema_registry_is_asked]
"""

from __future__ import annotations

import difflib
import functools
import inspect
import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
from typer.models import OptionInfo

from kafkacore.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from kafkacore.config_names import ELSEWHERE, hint
from kafkacore.config_properties import NoProperties, parse_properties
from kafkacore.config_secrets import PREFIX
from kafkacore.config_text import holds_secret
from kafkacore.errors import ConfigError

_log = logging.getLogger("kafkacore.cli")

SERVERS, CONTROLLERS = "bootstrap.servers", "bootstrap.controllers"
REGISTRY, URL = "schema.registry.", "url"
PROFILES = "config.toml"
SAME = (
    "metadata_broker_list", "sasl_mechanisms", "ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_key_password",
    "ssl_endpoint_identification_algorithm",
)  # fmt: skip
"""Names of kcat and of Java's clients that mean the same as ours in `config_names.ELSEWHERE`."""
_KINDS = (ProducerConfig, ConsumerConfig, AdminConfig)

CommandConfig = Annotated[
    list[Path] | None,
    typer.Option(
        "-F",
        "--command-config",
        metavar="FILE",
        help="Client settings in a properties file, as for Kafka's scripts and kcat. Of several files the last one counts.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", envvar="KAFKACORE_PROFILE", help="Client settings under this name in your file of profiles."),
]


class FileSettings(NamedTuple):
    """What a file says.

    Attributes:
        where: the files, or the file and the profile in it, for messages; "" without one.
        settings: by Kafka's names; without where the cluster is, which became the command's option.
        registry: of a schema registry, without `schema.registry.` before; its `url` among them.
        is_default: it is the default profile, which nobody named.
    """

    where: str
    settings: Mapping[str, str]
    registry: Mapping[str, str] = MappingProxyType({})
    is_default: bool = False

    def of(self, kind: type[ClientConfig] | None) -> dict[str, str]:
        """The settings that a kind of client has; None for those that all have."""
        names = (kind or ClientConfig).names()
        return {name: value for name, value in self.settings.items() if _field(name) in names}


NOTHING = FileSettings("", MappingProxyType({}))
_NOW: ContextVar[FileSettings] = ContextVar("_NOW", default=NOTHING)
_TYPED: ContextVar[Callable[[str], bool]] = ContextVar("_TYPED", default=lambda parameter: True)


def current() -> FileSettings:
    """What the file of the command that runs says."""
    return _NOW.get()


def set_current(files: FileSettings) -> None:
    """For what asks a cluster before a command runs: the shell's completion."""
    _NOW.set(files)


def was_typed(parameter: str) -> bool:
    """Whether an option of the command that runs was given, by its name in Python: a file does not outvote it."""
    return _TYPED.get()(parameter)


def _field(name: str) -> str:
    return name.replace(".", "_")


def profiles_path() -> Path:
    """The user's file of profiles."""
    if (named := os.environ.get("KAFKACORE_CONFIG")) is not None:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kafkacore" / PROFILES


def read(files: Sequence[Path], profile: str | None, *, elsewhere: bool) -> FileSettings:
    """The settings of files or a profile.

    Args:
        files: properties files; what a later one says goes before what an earlier one says.
        profile: the name of a profile.
        elsewhere: something else says where the cluster is, so the default profile does not count.

    Raises:
        ConfigError: the file is of another form, there is no such profile, a setting is unknown.
        OSError: it cannot be read.
    """
    if files:
        if profile is not None:
            raise ConfigError("either --command-config or --profile (KAFKACORE_PROFILE), not both")
        found = [_of_properties(each) for each in files]
        settings = {name: value for each in found for name, value in each.settings.items()}
        registry = {name: value for each in found for name, value in each.registry.items()}
        return FileSettings(", ".join(each.where for each in found), settings, registry)
    path = profiles_path()
    if profile is None and (elsewhere or not path.is_file()):
        return NOTHING
    return _of_profile(path, profile)._replace(is_default=profile is None)


def _of_properties(file: Path) -> FileSettings:
    try:
        found: dict[str, str] = parse_properties(_text(file))
    except NoProperties as wrong:
        raise ConfigError(f"{file}: {wrong}") from None
    return _checked(str(file), file, found)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None


def _of_profile(path: Path, name: str | None) -> FileSettings:
    import tomllib

    if not path.is_file():
        raise ConfigError(f"no profile {name}: there is no file {path}")
    try:
        document = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as wrong:
        raise ConfigError(f"{path} is no TOML: {wrong}") from None
    profiles = document.get("profiles", {})
    if (other := document.keys() - {"default_profile", "profiles"}) or not isinstance(profiles, dict):
        raise ConfigError(f"{path} holds default_profile and [profiles.NAME], not {', '.join(sorted(other)) or 'profiles of another form'}")
    if name is None:
        name = document.get("default_profile")
        if name is None:
            return NOTHING
    if not isinstance(profiles.get(name), dict):
        near = difflib.get_close_matches(str(name), profiles, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(profiles)}" if profiles else ""
        raise ConfigError(f"{path} has no profile {name}{meant}")
    where = f"{path} [profiles.{name}]"
    return _checked(where, path, _flat(where, profiles[name]))


def _flat(where: str, table: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Settings of TOML's tables: `a.b = 1` is a table in a table."""
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= _flat(where, value, f"{before}{name}.")
        elif isinstance(value, bool):
            found[before + name] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            found[before + name] = str(value)
        else:
            raise ConfigError(f"{where}: {before}{name} is text, a number, true or false")
    return found


def _checked(where: str, file: Path, found: dict[str, str]) -> FileSettings:
    known = {name for kind in _KINDS for name in kind.names()}
    kept: dict[str, str] = {}
    registry: dict[str, str] = {}
    for name, value in found.items():
        field = _field(name)
        if field.startswith(_field(REGISTRY)):
            _keep_of_registry(where, name, value, registry)
            continue
        if field == "ssl_endpoint_identification_algorithm":   # "https", or nothing to leave names unchecked
            value = "true" if value.strip().lower() not in ("", "none") else "false"
        field = ELSEWHERE[field] if field in SAME else field
        dotted = field.replace("_", ".")
        if dotted in kept:
            raise ConfigError(f"{where}: setting {name!r} is given twice")
        if field in known:
            kept[dotted] = value
            continue
        meant = hint(_field(name), known, {}, dotted="." in name)
        if meant.startswith(";"):
            raise ConfigError(f"{where}: unknown setting {name!r}{meant}")
        _log.warning("%s: no client here has the setting %s%s", where, name, meant)
    secrets = [name for name, value in kept.items() if value and PREFIX not in value and holds_secret(_field(name))]
    secrets += [REGISTRY + name for name, value in registry.items() if value and PREFIX not in value and _is_secret(name, value)]
    if secrets and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        _log.warning("%s holds %s and other users may read it: chmod 600 %s", file, ", ".join(secrets), file)
    return FileSettings(where, kept, registry)


def _keep_of_registry(where: str, name: str, value: str, kept: dict[str, str]) -> None:
    from kafkacore.decode.registry import SETTINGS

    dotted = name.replace("_", ".").removeprefix(REGISTRY)
    if dotted in kept:
        raise ConfigError(f"{where}: setting {name!r} is given twice")
    if dotted in (URL, *SETTINGS):
        kept[dotted] = value
    elif near := difflib.get_close_matches(dotted, SETTINGS, n=1, cutoff=0.9):
        raise ConfigError(f"{where}: unknown setting {name!r}; did you mean {REGISTRY}{near[0]}?")
    else:                                                      # Java has more of them, as ssl.truststore.type
        _log.warning("%s: no schema registry here has the setting %s", where, name)


def _is_secret(name: str, value: str) -> bool:
    return "@" in value if name == URL else name.endswith(("user.info", "token")) or holds_secret(name)


def _source(context: typer.Context, parameter: str) -> str:
    found = context.get_parameter_source(parameter)
    return "" if found is None else found.name


def of_command(context: typer.Context, given: Mapping[str, Any]) -> tuple[FileSettings, dict[str, str]]:
    """What the file says that a command line names, or the profile.

    Args:
        context: the command's.
        given: the command's parameters, `command_config` and `profile` among them.

    Returns:
        The settings, and what they make of the command's parameters.

    Raises:
        ConfigError, OSError: as `read`; or it names controllers where brokers are asked.
    """
    words = given.get("setting") or given.get("settings") or ()
    typed = _source(context, "bootstrap_server") == "COMMANDLINE" or given.get("bootstrap_controller") is not None
    typed = typed or any(_field(word.partition("=")[0].strip()) == _field(SERVERS) for word in words)
    elsewhere = typed or _source(context, "bootstrap_server") == "ENVIRONMENT"
    files = read(given.get("command_config") or (), given.get("profile"), elsewhere=elsewhere)
    servers, controllers = files.settings.get(SERVERS), files.settings.get(CONTROLLERS)
    made = {}
    if not typed and servers:
        made["bootstrap_server"] = servers
    elif not typed and controllers:
        if "bootstrap_controller" not in given:
            raise ConfigError(f"{files.where} names controllers, and this command asks brokers: -b HOST:PORT")
        made["bootstrap_controller"] = controllers
    return files._replace(settings={name: value for name, value in files.settings.items() if name not in (SERVERS, CONTROLLERS)}), made


def _takes_settings(parameter: inspect.Parameter) -> bool:
    """Whether it is -X; typer keeps the first spelling of an annotated option as its default."""
    found = getattr(parameter.annotation, "__metadata__", ())
    return any("-X" in (each.default, *(each.param_decls or ())) for each in found if isinstance(each, OptionInfo))


def with_files(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with -F and --profile beside its -X; any other command as it is.

    Args:
        command: a function whose parameters are typer's.
    """
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())
    at = next((n for n, each in enumerate(own) if _takes_settings(each)), -1)
    if at < 0 or "command_config" in signature.parameters:
        return command

    @functools.wraps(command)
    def reading(context: typer.Context, command_config: list[Path] | None, profile: str | None, **given: Any) -> Any:
        files, made = of_command(context, {**given, "command_config": command_config, "profile": profile})
        now, typed = _NOW.set(files), _TYPED.set(lambda parameter: _source(context, parameter) in ("COMMANDLINE", "ENVIRONMENT"))
        try:
            return command(**{**given, **made})
        finally:
            _NOW.reset(now)
            _TYPED.reset(typed)

    extra = {"context": typer.Context, "command_config": CommandConfig, "profile": Profile}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    files = [inspect.Parameter(name, kind, default=None, annotation=extra[name]) for name in ("command_config", "profile")]
    parameters = [inspect.Parameter("context", kind, annotation=typer.Context), *own[:at], *files, *own[at:]]
    # Typer looks at the names one by one; those without a default may stand behind others, which Python's own signatures do not allow.
    reading.__signature__ = signature.replace(parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters])  # type: ignore[attr-defined]
    reading.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": signature.return_annotation}
    return reading


def add_to(app: typer.Typer) -> None:
    """Gives the commands of a group -F and --profile."""
    for each in app.registered_commands:
        if each.callback is not None:
            each.callback = with_files(each.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_to(group.typer_instance)
