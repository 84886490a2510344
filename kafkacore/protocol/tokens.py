"""Delegation tokens, which a listener without authentication gives to no client.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import BYTES, INT16, INT32, INT64, STRING, F, Request, Response, Struct


class DelegationTokenPrincipal(Struct):
    """A user who owns or renews tokens."""

    principal_type: str = F(STRING)
    principal_name: str = F(STRING)


class CreateDelegationTokenRequest(Request, api_key=38, versions="0-3", flexible="2+", dropped="0"):
    """owner: the requester itself if left out. max_lifetime_ms: -1 for the broker's."""

    owner_principal_type: str | None = F(STRING, "3+", nullable="3+")
    owner_principal_name: str | None = F(STRING, "3+", nullable="3+")
    renewers: list[DelegationTokenPrincipal] = F([DelegationTokenPrincipal])
    max_lifetime_ms: int = F(INT64)


class CreateDelegationTokenResponse(Response, api_key=38, versions="0-3", flexible="2+"):
    error_code: int = F(INT16)
    principal_type: str = F(STRING)
    principal_name: str = F(STRING)
    token_requester_principal_type: str = F(STRING, "3+")
    token_requester_principal_name: str = F(STRING, "3+")
    issue_timestamp_ms: int = F(INT64)
    expiry_timestamp_ms: int = F(INT64)
    max_timestamp_ms: int = F(INT64)
    token_id: str = F(STRING)
    hmac: bytes = F(BYTES)
    throttle_time_ms: int = F(INT32)


class RenewDelegationTokenRequest(Request, api_key=39, versions="0-2", flexible="2+", dropped="0"):
    hmac: bytes = F(BYTES)
    renew_period_ms: int = F(INT64)


class RenewDelegationTokenResponse(Response, api_key=39, versions="0-2", flexible="2+"):
    error_code: int = F(INT16)
    expiry_timestamp_ms: int = F(INT64)
    throttle_time_ms: int = F(INT32)


class ExpireDelegationTokenRequest(Request, api_key=40, versions="0-2", flexible="2+", dropped="0"):
    hmac: bytes = F(BYTES)
    expiry_time_period_ms: int = F(INT64)


class ExpireDelegationTokenResponse(Response, api_key=40, versions="0-2", flexible="2+"):
    error_code: int = F(INT16)
    expiry_timestamp_ms: int = F(INT64)
    throttle_time_ms: int = F(INT32)


class DescribeDelegationTokenRequest(Request, api_key=41, versions="0-3", flexible="2+", dropped="0"):
    """owners: None for the tokens of all."""

    owners: list[DelegationTokenPrincipal] | None = F([DelegationTokenPrincipal], nullable="0+")


class DescribedDelegationToken(Struct):
    principal_type: str = F(STRING)
    principal_name: str = F(STRING)
    token_requester_principal_type: str = F(STRING, "3+")
    token_requester_principal_name: str = F(STRING, "3+")
    issue_timestamp: int = F(INT64)
    expiry_timestamp: int = F(INT64)
    max_timestamp: int = F(INT64)
    token_id: str = F(STRING)
    hmac: bytes = F(BYTES)
    renewers: list[DelegationTokenPrincipal] = F([DelegationTokenPrincipal])


class DescribeDelegationTokenResponse(Response, api_key=41, versions="0-3", flexible="2+"):
    error_code: int = F(INT16)
    tokens: list[DescribedDelegationToken] = F([DescribedDelegationToken])
    throttle_time_ms: int = F(INT32)
