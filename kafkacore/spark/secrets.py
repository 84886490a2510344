"""Secrets by reference: what stands in options, plans and checkpoints is `secret://env/NAME` or `secret://file/PATH`, not the secret.

`kafkacore.config_secrets` resolves them; here is what Spark adds: when a variable must be there, and what stands in until then.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkacore import config_secrets
from kafkacore.config_secrets import JAAS, PREFIX

__all__ = ["JAAS", "PREFIX", "WHEN", "resolve", "resolve_all", "stand_in"]

WHEN = "; it must be set before the Spark session starts, and executors need it too"


def resolve(name: str, value: str) -> str:
    """The secret behind a reference, see `config_secrets.resolve`."""
    return config_secrets.resolve(name, value, WHEN)


def resolve_all(settings: Mapping[str, str]) -> dict[str, str]:
    """All settings with their secrets in place, see `config_secrets.resolve_all`."""
    return config_secrets.resolve_all(settings, WHEN)


def stand_in(name: str, mechanism: str) -> str:
    """What takes the place of a secret that is not known yet while the other settings are checked."""
    if name != JAAS:
        return "secret"
    options = 'unsecuredLoginStringClaim_sub="secret"' if mechanism.upper() == "OAUTHBEARER" else 'username="secret" password="secret"'
    modules = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
    module = modules.get(mechanism.upper(), "scram.ScramLoginModule")
    return f"org.apache.kafka.common.security.{module} required {options};"
