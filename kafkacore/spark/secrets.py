"""Secrets by reference: what stands in options, plans and checkpoints is `secret://env/NAME` or `secret://file/PATH`, not the secret.

A reference is resolved where a client is made, in the process that uses it, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kafkacore.config_security import parse_jaas
from kafkacore.errors import ConfigError

PREFIX = "secret://"
JAAS = "sasl.jaas.config"


def resolve(name: str, value: str) -> str:
    """The secret behind a reference; any other value as it is.

    Args:
        name: the option, for the error message.
        value: its value.

    Raises:
        ConfigError: there is no such environment variable or file here, or the reference is of another form.
    """
    if not value.startswith(PREFIX):
        return value
    kind, _, rest = value[len(PREFIX) :].partition("/")
    if kind == "env" and rest:
        if rest not in os.environ:
            raise ConfigError(f"option {name}: the environment variable {rest} is not set in this process (executors need it too)")
        return os.environ[rest]
    if kind == "file" and rest:
        path = rest if rest.startswith("/") else "/" + rest
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().rstrip("\n")
        except OSError as error:
            raise ConfigError(f"option {name}: {path} cannot be read in this process: {error.strerror}") from error
    raise ConfigError(f"option {name}: a secret is secret://env/NAME or secret://file/PATH")


def resolve_all(settings: Mapping[str, str]) -> dict[str, str]:
    """All settings with their secrets in place, those within a JAAS line too.

    Raises:
        ConfigError: see `resolve`; or what stands behind a reference is no JAAS line.
    """
    return {name: _resolve_jaas(value) if name == JAAS else resolve(name, value) for name, value in settings.items()}


def _resolve_jaas(value: str) -> str:
    value = resolve(JAAS, value)
    if PREFIX not in value:
        return value
    line = parse_jaas(value)
    return line._replace(options={name: resolve(f"{JAAS}: {name}", text) for name, text in line.options.items()}).text()


def stand_in(name: str, mechanism: str) -> str:
    """What takes the place of a secret that is not known yet while the other settings are checked."""
    if name != JAAS:
        return "secret"
    options = 'unsecuredLoginStringClaim_sub="secret"' if mechanism.upper() == "OAUTHBEARER" else 'username="secret" password="secret"'
    modules = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
    module = modules.get(mechanism.upper(), "scram.ScramLoginModule")
    return f"org.apache.kafka.common.security.{module} required {options};"
