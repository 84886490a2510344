"""Who is who, and how much one may: SCRAM credentials, client quotas; SASL.

Quotas are obeyed by `throttling.py` and by the controller, credentials by the listeners that ask for them.

Source: kafka.server.KafkaApis, org.apache.kafka.image.{ClientQuotasImage, ScramImage}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkacore import errors
from kafkacore.broker.authorizer import DESCRIBE, DESCRIBE_CONFIGS
from kafkacore.broker.cluster import QuotaEntity
from kafkacore.broker.controller.state import code_of
from kafkacore.broker.handlers.access import may_cluster
from kafkacore.broker.quotas import CLIENT_ID, IP, USER
from kafkacore.broker.state import BrokerState, Call, LateAnswer, Outcome
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    ClientQuotaEntityPart,
    ClientQuotaValue,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedClientQuota,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialInfo,
)
from kafkacore.protocol.schema import Response
from kafkacore.timer import TimerTask

EXACT, DEFAULT, ANY = 0, 1, 2


# ---- quotas


def describe_client_quotas(state: BrokerState, call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """DescribeClientQuotas v0-1."""
    if not may_cluster(state, call, DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None)
    try:
        wanted = _filters(request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=code_of(error), error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        error_code=0,
        error_message="",
        entries=[
            DescribedClientQuota(
                entity=[ClientQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in sorted(entity, key=str)],
                values=[ClientQuotaValue(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in state.cluster.client_quotas.items()
            if _matches(entity, wanted, request.strict)
        ],
    )


def _filters(request: DescribeClientQuotasRequest) -> Mapping[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for each in request.components:
        kind, how, name = each.entity_type, each.match_type, each.match
        if not kind:
            raise errors.InvalidRequest("Invalid empty entity type.")
        if kind in wanted:
            raise errors.InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise errors.UnsupportedVersion(f"Unsupported entity type {kind}")
        if how == EXACT and name is None:
            raise errors.InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if how in (DEFAULT, ANY) and name is not None:
            what = "DEFAULT" if how == DEFAULT else "SPECIFIED"
            raise errors.InvalidRequest(f"Request specified MATCH_TYPE_{what}, but also specified a match string.")
        if how not in (EXACT, DEFAULT, ANY):
            raise errors.InvalidRequest(f"Unknown match type {how}")
        wanted[kind] = how, name
    if IP in wanted and len(wanted) > 1:
        raise errors.InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component."
        )
    return wanted


def _matches(entity: QuotaEntity, wanted: Mapping[str, tuple[int, str | None]], strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    for kind, (how, name) in wanted.items():
        if kind not in names or (how == EXACT and names[kind] != name) or (how == DEFAULT and names[kind] is not None):
            return False
    return True


# ---- SCRAM


def describe_user_scram_credentials(
    state: BrokerState, call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials v0: mechanisms and iterations, of all users if none is named."""
    if not may_cluster(state, call, DESCRIBE):
        code = Code.CLUSTER_AUTHORIZATION_FAILED
        unnamed = DescribeUserScramCredentialsResult(error_code=code, error_message=None, credential_infos=[])
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=[unnamed] * len(request.users or []))
    found: dict[str, list[ScramCredentialInfo]] = {}
    for (name, mechanism), credential in state.cluster.scram_credentials.items():
        found.setdefault(name, []).append(ScramCredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    mentions = Counter(each.name for each in request.users or [])
    results = []
    for name in mentions or found:
        code, message = Code.NONE, ""
        if mentions[name] > 1:
            code = Code.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif name not in found:
            code, message = Code.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {name}"
        infos = [] if code else found[name]
        results.append(DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message, credential_infos=infos))
    return DescribeUserScramCredentialsResponse(error_code=0, error_message="", results=results)


# ---- SASL


def sasl_handshake(state: BrokerState, call: Call, request: SaslHandshakeRequest) -> Response | Outcome:
    """SaslHandshake v0-1: ILLEGAL_SASL_STATE where nobody need say who he is, and for v0, whose tokens have no frames."""
    session = call.session
    if session is None:
        return SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE, mechanisms=[])
    return _told(call, session.handshake(request, call.version), session.failed)


def _told(call: Call, response: Response, failed: bool) -> Response | Outcome:
    """An answer that may be the connection's last."""
    if not failed:
        return response
    call.respond(response)
    return Outcome.CLOSE


def sasl_authenticate(state: BrokerState, call: Call, request: SaslAuthenticateRequest) -> Response | Outcome:
    """SaslAuthenticate v0-2: ILLEGAL_SASL_STATE where nobody need say who he is. Who fails hears of it, and is disconnected, after
    connection.failed.authentication.delay.ms: passwords cannot be guessed at full speed."""
    session = call.session
    if session is not None:
        response = session.authenticate(request, call.now_ms)
        delay_ms = state.config.connection_failed_authentication_delay_ms
        if not session.failed or not delay_ms:
            return _told(call, response, session.failed)
        late = LateAnswer(call)

        def refuse() -> None:
            if not late.is_completed():                       # else the connection has ended
                late.respond(lambda: response)
                call.fail()

        state.timer.add(TimerTask(delay_ms, refuse))
        return Outcome.LATER
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=Code.ILLEGAL_SASL_STATE, error_message=message, auth_bytes=b"")
