"""Secrets by reference: a setting holds `secret://env/NAME` or `secret://file/PATH` instead of the secret.

A reference is resolved where a client is made, in the process that uses it, and nowhere else. No message holds its value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from kafkacore.config_security import parse_jaas
from kafkacore.errors import ConfigError

PREFIX = "secret://"
JAAS = "sasl.jaas.config"


def resolve(name: str, value: str, when: str = "") -> str:
    """The secret behind a reference; any other value as it is.

    Args:
        name: the option, for the error message.
        value: its value.
        when: by when an environment variable must be set, for the error message.

    Raises:
        ConfigError: there is no such environment variable or file here, or the reference is of another form.
    """
    if not value.startswith(PREFIX):
        return value
    kind, _, rest = value[len(PREFIX) :].partition("/")
    if kind == "env" and rest:
        if rest not in os.environ:
            raise ConfigError(f"option {name}: the environment variable {rest} is not set in this process{when}")
        return os.environ[rest]
    if kind == "file" and rest:
        path = rest if rest.startswith("/") else "/" + rest
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().rstrip("\n")
        except OSError as error:
            raise ConfigError(f"option {name}: {path} cannot be read in this process: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"option {name}: {path} is not UTF-8 text") from None  # the cause would show its content
    raise ConfigError(f"option {name}: a secret is secret://env/NAME or secret://file/PATH")


def resolve_hidden(settings: Mapping[str, str], hidden: Callable[[str], bool], option: str) -> dict[str, str]:
    """All settings of a command line with their secrets in place; only those that no message repeats may have them.

    Args:
        settings: by Kafka's names.
        hidden: whether no message repeats a setting's value.
        option: where the settings were given, for the error message.

    Raises:
        ConfigError: see `resolve`; or a setting with a reference may be shown.
    """
    for name, value in settings.items():
        if value.startswith(PREFIX) and not hidden(name):
            raise ConfigError(f"{option} {name}: a secret:// reference is for a password, key or JAAS line; messages may show this one")
    return resolve_all(settings)


def resolve_all(settings: Mapping[str, str], when: str = "") -> dict[str, str]:
    """All settings with their secrets in place, those within a JAAS line too.

    Raises:
        ConfigError: see `resolve`; or what stands behind a reference is no JAAS line.
    """
    return {
        name: _resolve_jaas(name, value, when) if is_jaas(name) else resolve(name, value, when)
        for name, value in settings.items()
    }


def is_jaas(name: str) -> bool:
    """Whether a setting is a JAAS line, of a client or of a broker's listener."""
    name = name.replace("_", ".")
    return name == JAAS or name.endswith(f".{JAAS}")


def _resolve_jaas(name: str, value: str, when: str) -> str:
    value = resolve(name, value, when)
    if PREFIX not in value:
        return value
    line = parse_jaas(value)
    return line._replace(options={each: resolve(f"{name}: {each}", text, when) for each, text in line.options.items()}).text()
