"""Settings of a broker's authorizer: who may do everything, and what holds for resources without an ACL.

    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
    super.users=User:broker;User:admin
    allow.everyone.if.no.acl.found=false

Source: org.apache.kafka.metadata.authorizer.StandardAuthorizer.configure, org.apache.kafka.common.utils.SecurityUtils.parseKafkaPrincipal.
"""

from __future__ import annotations

from typing import Protocol

from kafkacore.errors import ConfigError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANONYMOUS = "User:ANONYMOUS"
"""The principal of connections whose listener asks for no user."""


class AuthorizerConfig(Protocol):
    """The settings read here (any BrokerConfig has them)."""

    @property
    def authorizer_class_name(self) -> str: ...
    @property
    def super_users(self) -> str: ...
    @property
    def allow_everyone_if_no_acl_found(self) -> bool: ...


def super_users(text: str) -> frozenset[str]:
    """The principals in super.users, which a semicolon separates: names of certificates hold commas.

    Raises:
        ConfigError: one has no type.
    """
    found = frozenset(entry.strip() for entry in text.split(";") if entry.strip())
    for principal in sorted(found):
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ConfigError(f"super_users: {principal!r} is not of the form User:name")
    return found


def check_authorizer(config: AuthorizerConfig, own_principal: str | None) -> None:
    """Rules between the settings of the authorizer.

    Args:
        config: the settings.
        own_principal: who a broker is to the other brokers; None if that is not known from the settings.

    Raises:
        ConfigError: an authorizer that is not implemented; a setting would be ignored; the brokers may not do what they must.
    """
    if not config.authorizer_class_name:
        for name in ("super_users", "allow_everyone_if_no_acl_found"):
            if getattr(config, name):
                raise ConfigError(f"{name} has no effect without authorizer_class_name")
        return
    if config.authorizer_class_name != STANDARD_AUTHORIZER:
        raise ConfigError(f"authorizer_class_name may be {STANDARD_AUTHORIZER}, or empty, not {config.authorizer_class_name!r}")
    if own_principal is not None and own_principal not in super_users(config.super_users):
        raise ConfigError(
            f"super_users must hold {own_principal}: brokers reach each other as that, and could neither replicate nor end transactions"
        )
