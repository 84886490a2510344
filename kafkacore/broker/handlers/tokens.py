"""Delegation tokens: who may ask for them; the controller makes, renews and ends them, this broker lists them.

A client without authentication gets none, and neither does one that a token authenticated.

Source: kafka.server.KafkaApis, kafka.server.DelegationTokenManager.filterToken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacore.broker.authorizer import CREATE_TOKENS, DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from kafkacore.broker.controller.state import code_of
from kafkacore.broker.controller.tokens import USER_TYPE, create_response, principal_of
from kafkacore.broker.handlers.access import may
from kafkacore.broker.state import BrokerState, Call, Outcome, forward
from kafkacore.config_authorizer import ANONYMOUS
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    CreateDelegationTokenRequest,
    DelegationTokenPrincipal,
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kafkacore.protocol.metadata_log import DelegationTokenRecord
from kafkacore.protocol.schema import Response

FIRST_DESCRIBED_REQUESTER = 3
_NO_TIMES = {"issue_timestamp_ms": -1, "expiry_timestamp_ms": -1, "max_timestamp_ms": -1, "token_id": "", "hmac": b""}


def _is_allowed(call: Call) -> bool:
    """Whether the connection may be used to ask for tokens."""
    if call.session is None:
        return call.principal != ANONYMOUS
    return not call.session.by_token


def _pass_on(state: BrokerState, call: Call, request: Any, refuse: Callable[[Code], Response]) -> Outcome:
    def answer(result: Response | KafkaError) -> Response:
        return refuse(code_of(result)) if isinstance(result, KafkaError) else result

    return forward(state, call, request, call.version, answer, names_client=True)


def create_delegation_token(state: BrokerState, call: Call, request: CreateDelegationTokenRequest) -> Response | Outcome:
    """CreateDelegationToken v0-3. A token for another user needs CREATE_TOKENS on that user."""
    requester = call.principal
    owner = principal_of(request.owner_principal_type, request.owner_principal_name, requester)

    def refuse(code: Code) -> Response:
        return create_response(call.version, requester, owner, error_code=code, **_NO_TIMES)

    if not _is_allowed(call):
        return refuse(Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != requester and not may(state, call, CREATE_TOKENS, USER, owner):
        return refuse(Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(each.principal_type != USER_TYPE for each in request.renewers):
        return refuse(Code.INVALID_PRINCIPAL_TYPE)
    if not state.config.delegation_token_secret_key:
        return refuse(Code.DELEGATION_TOKEN_AUTH_DISABLED)
    return _pass_on(state, call, request, refuse)


def renew_delegation_token(state: BrokerState, call: Call, request: RenewDelegationTokenRequest) -> Response | Outcome:
    """RenewDelegationToken v0-2, by its owner or a renewer."""

    def refuse(code: Code) -> Response:
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)

    return _change(state, call, request, refuse)


def expire_delegation_token(state: BrokerState, call: Call, request: ExpireDelegationTokenRequest) -> Response | Outcome:
    """ExpireDelegationToken v0-2, by its owner or a renewer."""

    def refuse(code: Code) -> Response:
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)

    return _change(state, call, request, refuse)


def _change(state: BrokerState, call: Call, request: Any, refuse: Callable[[Code], Response]) -> Response | Outcome:
    if not _is_allowed(call):
        return refuse(Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not state.config.delegation_token_secret_key:
        return refuse(Code.DELEGATION_TOKEN_AUTH_DISABLED)
    return _pass_on(state, call, request, refuse)


def describe_delegation_token(state: BrokerState, call: Call, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    """DescribeDelegationToken v0-3: the client's own tokens and those it may renew, all that it has DESCRIBE on, and those of users on
    which it has DESCRIBE_TOKENS. Those that have ended are there until the controller removes them."""
    if not _is_allowed(call):
        return DescribeDelegationTokenResponse(error_code=Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[])
    keys = state.token_keys
    if keys is None:
        return DescribeDelegationTokenResponse(error_code=Code.DELEGATION_TOKEN_AUTH_DISABLED, tokens=[])
    wanted = None if request.owners is None else {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    found = [
        token
        for token in state.cluster.delegation_tokens.values()
        if (wanted is None or any(_is_of(token, each) for each in wanted)) and _may_see(state, call, token)
    ]
    return DescribeDelegationTokenResponse(
        error_code=0, tokens=[_described(token, keys.hmac_of(token.token_id), call.version) for token in found]
    )


def _is_of(token: DelegationTokenRecord, principal: str) -> bool:
    return principal in (token.owner, token.requester) or principal in token.renewers


def _may_see(state: BrokerState, call: Call, token: DelegationTokenRecord) -> bool:
    return (
        _is_of(token, call.principal)
        or may(state, call, DESCRIBE, DELEGATION_TOKEN, token.token_id)
        or may(state, call, DESCRIBE_TOKENS, USER, token.owner)
    )


def _described(token: DelegationTokenRecord, secret: bytes, version: int) -> DescribedDelegationToken:
    fields: dict[str, Any] = {}
    if version >= FIRST_DESCRIBED_REQUESTER:
        kind, _, name = token.requester.partition(":")
        fields = {"token_requester_principal_type": kind, "token_requester_principal_name": name}
    kind, _, name = token.owner.partition(":")
    renewers = [each.partition(":") for each in token.renewers]
    return DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=secret,
        renewers=[DelegationTokenPrincipal(principal_type=kind, principal_name=name) for kind, _, name in renewers],
        **fields,
    )
