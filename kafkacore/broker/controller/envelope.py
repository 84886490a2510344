"""Envelopes: how a broker tells the controller which client a request comes from (KIP-590).

    broker: wrapped(request, client) --Envelope--> controller: unwrapped --> decides --> answer_in --Envelope--> broker: answer_of

Both ends are this package, but the bytes are Kafka's. Only the user's name and the client id count here: they have quotas.

Source: kafka.server.{EnvelopeUtils, ForwardingManager}, org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkacore import errors
from kafkacore._codec import decode_request_body
from kafkacore.broker.controller.state import Requester
from kafkacore.protocol import (
    APIS,
    EnvelopeRequest,
    EnvelopeResponse,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.protocol.stored import DefaultPrincipalData, decode_stored, encode_stored

if TYPE_CHECKING:
    from kafkacore._codec import Buffer

USER_TYPE = "User"
UNKNOWN_ADDRESS = bytes(4)
_SIZE_BYTES = 4  # of a frame, before what an envelope holds
_LEAST_BYTES = 8  # of a request: API, version, correlation id


def wrapped(request: Request, version: int, requester: Requester) -> EnvelopeRequest:
    """A client's request, and whose it is."""
    frame = _joined(encode_request(request, version, 0, requester.client_id))
    return EnvelopeRequest(
        request_data=frame[_SIZE_BYTES:],
        request_principal=encode_stored(DefaultPrincipalData(type=USER_TYPE, name=requester.user), 0),
        client_host_address=UNKNOWN_ADDRESS,
    )


def unwrapped(envelope: EnvelopeRequest, max_elements: int) -> tuple[Request, int, int, Requester]:
    """The request in an envelope, its version and correlation id, and whose it is.

    Raises:
        CorruptDataError: it is none.
        UnsupportedVersion: of an API that is not known.
    """
    if len(envelope.request_data) < _LEAST_BYTES:
        raise errors.CorruptDataError(f"an envelope holds a request of {len(envelope.request_data)} bytes")
    header, _ = decode_request_header(envelope.request_data)
    api = APIS.get(header.request_api_key)
    if api is None or not api.min_version <= header.request_api_version <= api.max_version:
        raise errors.UnsupportedVersion(f"API {header.request_api_key} v{header.request_api_version} in an envelope")
    _, request, _ = decode_request_body(api.request.plan(header.request_api_version), envelope.request_data, max_elements)
    return request, header.request_api_version, header.correlation_id, Requester(_user(envelope), header.client_id or "")


def _user(envelope: EnvelopeRequest) -> str:
    if envelope.request_principal is None:
        raise errors.CorruptDataError("an envelope without a principal")
    return decode_stored(DefaultPrincipalData, envelope.request_principal).name


def answer_in(response: Response, version: int, correlation_id: int) -> EnvelopeResponse:
    """The answer to the request of an envelope."""
    return EnvelopeResponse(response_data=_joined(encode_response(response, version, correlation_id))[_SIZE_BYTES:])


def answer_of(envelope: Response, request: Request, version: int) -> Response:
    """The controller's answer to a request that was in an envelope.

    Raises:
        KafkaError: it did not take the envelope, or answers something else.
    """
    if not isinstance(envelope, EnvelopeResponse):
        raise errors.UnknownServer("the controller answered something else")
    errors.raise_for(envelope.error_code)
    data = envelope.response_data
    if data is None:
        raise errors.CorruptDataError("the controller answered an envelope with an empty one")
    _, start = decode_response_header(request.API_KEY, version, data)
    answer: Response = APIS[request.API_KEY].response.decode(version, data, start)
    return answer


def _joined(parts: Iterable[Buffer]) -> bytes:
    return b"".join(bytes(part) for part in parts)
