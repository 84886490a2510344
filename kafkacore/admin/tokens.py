"""Delegation tokens (KIP-48): a client that has authenticated gets a token for others, which log in with it by SCRAM.

Source: Kafka's KafkaAdminClient.{createDelegationToken, renewDelegationToken, expireDelegationToken, describeDelegationToken}.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import AdminBase
from kafkacore.protocol import (
    CreateDelegationTokenRequest,
    DelegationTokenPrincipal,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

_FIRST_OWNER_VERSION = 3


class DelegationToken(NamedTuple):
    """A token. Its repr leaves the secret out.

    Attributes:
        token_id: the user name to log in with.
        hmac: the secret.
        owner, requester: as "User:alice"; the requester is empty before Kafka 3.3.
        renewers: who may renew it beside the owner.
        issue_ms, expiry_ms, max_ms: when it was made, when it ends unless renewed, when it ends in any case; epoch milliseconds.
    """

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: list[str]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The password to log in with: the secret in base64."""
        return base64.b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner!r}, expiry_ms={self.expiry_ms})"


class TokensAdmin(AdminBase):
    """The calls about delegation tokens. The listener must authenticate, and the brokers need delegation.token.secret.key."""

    def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = -1,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Makes a token.

        Args:
            owner: as "User:alice"; None for this client's own user.
            renewers: who may renew it beside the owner.
            max_lifetime_ms: when it ends in any case; -1 for the brokers' limit.
            timeout: seconds.

        Raises:
            errors.DelegationTokenDisabled: the brokers have no secret key.
            errors.UnsupportedByAuthentication: this client's connection is not authenticated, or it logged in with a token.
        """
        kind, name = (None, None) if owner is None else _principal(owner)
        others = [DelegationTokenPrincipal(principal_type=k, principal_name=n) for k, n in map(_principal, renewers)]

        def build(version: int) -> CreateDelegationTokenRequest:
            if version < _FIRST_OWNER_VERSION:
                if owner is not None:
                    raise errors.UnsupportedVersion("the broker makes tokens for the user who asks only", api="CreateDelegationToken")
                return CreateDelegationTokenRequest(renewers=others, max_lifetime_ms=max_lifetime_ms)
            return CreateDelegationTokenRequest(
                owner_principal_type=kind, owner_principal_name=name, renewers=others, max_lifetime_ms=max_lifetime_ms
            )

        made = self._ask(CreateDelegationTokenRequest, build, self._timeout_ms(timeout), to_controller=True)
        errors.raise_for(made.error_code, api="CreateDelegationToken")
        return DelegationToken(
            made.token_id,
            bytes(made.hmac),
            f"{made.principal_type}:{made.principal_name}",
            _named(made.token_requester_principal_type, made.token_requester_principal_name),
            [f"{each.principal_type}:{each.principal_name}" for each in others],
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
        )

    def renew_delegation_token(self, hmac: bytes, *, period_ms: int = -1, timeout: float | None = None) -> int:
        """Lets a token live longer.

        Args:
            hmac: its secret.
            period_ms: for how long from now; -1 for the brokers' period.
            timeout: seconds.

        Returns:
            When it ends now, epoch milliseconds.

        Raises:
            errors.DelegationTokenNotFound, errors.DelegationTokenExpired, errors.DelegationTokenOwnerMismatch: it cannot be renewed.
        """
        return self._expiry_ms(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), timeout)

    def expire_delegation_token(self, hmac: bytes, *, period_ms: int = -1, timeout: float | None = None) -> int:
        """Ends a token, now or later.

        Args:
            hmac: its secret.
            period_ms: after how long; -1 for at once.
            timeout: seconds.

        Returns:
            When it ends, epoch milliseconds.

        Raises:
            errors.DelegationTokenNotFound, errors.DelegationTokenExpired, errors.DelegationTokenOwnerMismatch: it cannot be ended.
        """
        return self._expiry_ms(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), timeout)

    def _expiry_ms(self, request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest, timeout: float | None) -> int:
        """Changes when a token ends; returns when that is now."""
        response = self._ask(type(request), lambda version: request, self._timeout_ms(timeout), to_controller=True)
        errors.raise_for(response.error_code, api=type(request).__name__.removesuffix("Request"))
        return int(response.expiry_timestamp_ms)

    def describe_delegation_tokens(self, owners: Iterable[str] | None = None, *, timeout: float | None = None) -> list[DelegationToken]:
        """The tokens that this client may see.

        Args:
            owners: only theirs, as "User:alice"; None for all.
            timeout: seconds.
        """
        wanted = None
        if owners is not None:
            wanted = [DelegationTokenPrincipal(principal_type=k, principal_name=n) for k, n in map(_principal, owners)]
        if wanted == []:
            return []
        response = self._ask(
            DescribeDelegationTokenRequest, lambda version: DescribeDelegationTokenRequest(owners=wanted), self._timeout_ms(timeout)
        )
        errors.raise_for(response.error_code, api="DescribeDelegationToken")
        return [_described(each) for each in response.tokens]


def _described(found: Any) -> DelegationToken:
    return DelegationToken(
        found.token_id,
        bytes(found.hmac),
        f"{found.principal_type}:{found.principal_name}",
        _named(found.token_requester_principal_type, found.token_requester_principal_name),
        [f"{each.principal_type}:{each.principal_name}" for each in found.renewers],
        found.issue_timestamp,
        found.expiry_timestamp,
        found.max_timestamp,
    )


def _principal(given: str) -> tuple[str, str]:
    kind, colon, name = given.partition(":")
    if not (kind and colon and name):
        raise errors.UsageError(f"a principal is written as User:alice, not {given!r}")
    return kind, name


def _named(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""
