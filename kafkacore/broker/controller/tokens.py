"""Delegation tokens (KIP-48, KIP-373): made, renewed and ended for the client whose request a broker passes on.

Source: org.apache.kafka.controller.DelegationTokenControlManager.
"""

from __future__ import annotations

from typing import Any

from kafkacore import errors
from kafkacore.broker.cluster import uuid_text
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.broker.token_keys import TokenKeys, has_expired
from kafkacore.errors import KafkaError
from kafkacore.protocol import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kafkacore.protocol.metadata_log import DelegationTokenRecord, RemoveDelegationTokenRecord

USER_TYPE = "User"
FIRST_TOKEN_FOR_OTHERS = 3


def principal_of(kind: str | None, name: str | None, requester: str) -> str:
    """The owner that a request names; the requester itself if none is named."""
    return f"{kind}:{name}" if name else requester


def create_response(version: int, requester: str, owner: str, **fields: Any) -> CreateDelegationTokenResponse:
    """An answer to CreateDelegationToken.

    Args:
        version: of the API; from v3 on the requester is named.
        requester, owner: as "User:alice".
        fields: the others; those of a refusal if left out.
    """
    if version >= FIRST_TOKEN_FOR_OTHERS:
        kind, _, name = requester.partition(":")
        fields |= {"token_requester_principal_type": kind, "token_requester_principal_name": name}
    kind, _, name = owner.partition(":")
    return CreateDelegationTokenResponse(principal_type=kind, principal_name=name, **fields)


def create_delegation_token(state: ControllerState, request: CreateDelegationTokenRequest, version: int, now_ms: int) -> Written:
    """CreateDelegationToken v0-3."""
    requester = owner = ""
    try:
        requester = _requester(state)
        owner = principal_of(request.owner_principal_type, request.owner_principal_name, requester)
        keys = _keys(state)
        if any(each.principal_type != USER_TYPE for each in request.renewers):
            raise errors.InvalidPrincipalType()
    except KafkaError as error:
        return Written([], create_response(version, requester, owner, error_code=code_of(error)))
    config, now = state.config, state.wall_ms
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        issue_timestamp=now,
        max_timestamp=now + lifetime_ms,
        expiration_timestamp=now + min(lifetime_ms, config.delegation_token_expiry_time_ms),
        token_id=uuid_text(state.new_uuid()),
    )
    response = create_response(
        version,
        requester,
        owner,
        error_code=0,
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiration_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=keys.hmac_of(token.token_id),
    )
    return Written([token], response)


def renew_delegation_token(state: ControllerState, request: RenewDelegationTokenRequest, version: int, now_ms: int) -> Written:
    """RenewDelegationToken v0-2: from now on, and not beyond the token's last day."""
    try:
        token = _own_token(state, bytes(request.hmac))
    except KafkaError as error:
        return Written([], RenewDelegationTokenResponse(error_code=code_of(error)))
    period_ms = state.config.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry_ms = min(token.max_timestamp, state.wall_ms + period_ms)
    renewed = token._replace(expiration_timestamp=expiry_ms)
    return Written([renewed], RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=expiry_ms))


def expire_delegation_token(state: ControllerState, request: ExpireDelegationTokenRequest, version: int, now_ms: int) -> Written:
    """ExpireDelegationToken v0-2: at once with a negative period."""
    try:
        token = _own_token(state, bytes(request.hmac))
    except KafkaError as error:
        return Written([], ExpireDelegationTokenResponse(error_code=code_of(error)))
    period_ms = request.expiry_time_period_ms
    if period_ms < 0:
        removed = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Written([removed], ExpireDelegationTokenResponse(error_code=0, expiry_timestamp_ms=state.wall_ms))
    expiry_ms = min(token.max_timestamp, state.wall_ms + period_ms)
    shortened = token._replace(expiration_timestamp=expiry_ms)
    return Written([shortened], ExpireDelegationTokenResponse(error_code=0, expiry_timestamp_ms=expiry_ms))


def _requester(state: ControllerState) -> str:
    if state.requester is None:                               # brokers ask for no tokens of their own
        raise errors.UnsupportedByAuthentication()
    return f"{USER_TYPE}:{state.requester.user}"


def _keys(state: ControllerState) -> TokenKeys:
    if state.token_keys is None:
        raise errors.DelegationTokenDisabled()
    return state.token_keys


def _own_token(state: ControllerState, secret: bytes) -> DelegationTokenRecord:
    """The token with a secret, for its owner and its renewers."""
    requester = _requester(state)
    token = _keys(state).find(secret, state.image.delegation_tokens)
    if token is None:
        raise errors.DelegationTokenNotFound()
    if has_expired(token, state.wall_ms):
        raise errors.DelegationTokenExpired()
    if requester != token.owner and requester not in token.renewers:
        raise errors.DelegationTokenOwnerMismatch()
    return token
