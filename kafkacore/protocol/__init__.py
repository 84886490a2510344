"""Kafka's protocol: every message as a class, frames, and the registry of APIs.

    frame = encode_request(MetadataRequest(topics=None), 12, correlation_id=1, client_id="me")
    header, request = decode_request(b"".join(frame)[4:])

A frame is an int32 size, a header and a message. Request headers: v1, and v2 (with tagged fields) in flexible versions; response headers
v0 and v1 likewise, but ApiVersions responses always use v0, since the client cannot know yet which versions the broker speaks.

What clients and brokers exchange begins with version 0 also where Kafka 4 does not serve it (KIP-896): for older peers, and so that
such a frame can be refused by name. What a broker serves is said in broker/handlers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kafkacore._codec import encode_request as encode_request
from kafkacore._codec import encode_response as encode_response
from kafkacore._codec import skip_tagged_fields
from kafkacore.errors import CorruptDataError, UnsupportedVersion
from kafkacore.protocol.admin import *  # noqa: F403 - the tables are the public names
from kafkacore.protocol.cluster import *  # noqa: F403
from kafkacore.protocol.data import *  # noqa: F403
from kafkacore.protocol.group import *  # noqa: F403
from kafkacore.protocol.quorum import *  # noqa: F403
from kafkacore.protocol.schema import ZERO_UUID as ZERO_UUID
from kafkacore.protocol.schema import Message, Request, Response
from kafkacore.protocol.schema import Records as Records
from kafkacore.protocol.schema import Struct as Struct
from kafkacore.protocol.tokens import *  # noqa: F403
from kafkacore.protocol.txn import *  # noqa: F403

if TYPE_CHECKING:
    from kafkacore._codec import Buffer


class RequestHeader(NamedTuple):
    """What stands before every request. client_id is None when the client gives none."""

    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None = None


class Api(NamedTuple):
    """One API: its messages, the versions that the tables describe, and the oldest of them that Kafka 4 serves."""

    key: int
    name: str
    request: type[Request]
    response: type[Response]
    min_version: int
    max_version: int
    oldest_served: int


_RESPONSES = {kind.API_KEY: kind for kind in Response.__subclasses__()}

APIS: dict[int, Api] = {
    kind.API_KEY: Api(
        kind.API_KEY,
        kind.__name__.removesuffix("Request"),
        kind,
        _RESPONSES[kind.API_KEY],
        kind.MIN_VERSION,
        kind.MAX_VERSION,
        kind.OLDEST_SERVED,
    )
    for kind in sorted(Request.__subclasses__(), key=lambda kind: kind.API_KEY)
}
"""Every API by its key."""

for _api in APIS.values():
    _api.request.RESPONSE, _api.response.REQUEST = _api.response, _api.request

_HEADER = struct.Struct(">hhih")
_API_VERSIONS = 18


def _is_flexible(message: type[Message], version: int) -> bool:
    return message.FLEXIBLE_VERSION is not None and version >= message.FLEXIBLE_VERSION


def decode_request_header(buffer: Buffer) -> tuple[RequestHeader, int]:
    """Reads the header of a request.

    The header's own version depends on the API and its version. For an API that the tables lack, header v1 is assumed and body_start is
    not to be relied on; for a version beyond the tables the rule of the newest one holds, so an ApiVersions request of any version can be
    answered (KIP-511).

    Args:
        buffer: The frame without its size.

    Returns:
        The header, and where the body begins.

    Raises:
        CorruptDataError: The bytes are not a request header.
    """
    view = memoryview(buffer)
    if len(view) < _HEADER.size:
        raise CorruptDataError(f"request header: {_HEADER.size} bytes needed, {len(view)} left")
    api_key, version, correlation_id, length = _HEADER.unpack_from(view)
    start = _HEADER.size
    client_id = None
    if length >= 0:
        if length > len(view) - start:
            left = len(view) - start
            raise CorruptDataError(f"request header, client_id, offset {start}: length {length} goes past the end, {left} bytes left")
        try:
            client_id = str(view[start : start + length], "utf-8")
        except UnicodeDecodeError:
            raise CorruptDataError(f"request header, client_id, offset {start}: string is not valid UTF-8") from None
        start += length
    elif length < -1:
        raise CorruptDataError(f"request header, client_id, offset {start}: negative length {length}")
    api = APIS.get(api_key)
    if api is not None and _is_flexible(api.request, version):
        start = skip_tagged_fields(view, start)
    return RequestHeader(api_key, version, correlation_id, client_id), start


def decode_request(buffer: Buffer) -> tuple[RequestHeader, Request]:
    """Reads a request. Bytes after it are ignored, as Kafka does: librdkafka leaves three after a Metadata request for all topics.

    Args:
        buffer: The frame without its size.

    Raises:
        CorruptDataError: The bytes are not such a request.
        UnsupportedVersion: The API or its version is not in the tables.
    """
    header, start = decode_request_header(buffer)
    api = APIS.get(header.request_api_key)
    if api is None or not api.min_version <= header.request_api_version <= api.max_version:
        name = api.name if api else f"API {header.request_api_key}"
        raise UnsupportedVersion(f"{name} v{header.request_api_version} is not known")
    request, _ = api.request.plan(header.request_api_version).decode_prefix(buffer, start)
    return header, request


def decode_response_header(api_key: int, version: int, buffer: Buffer) -> tuple[int, int]:
    """Reads the header of the response to a request of that API and version.

    Args:
        api_key: The request's API, one of APIS.
        version: The request's version.
        buffer: The frame without its size.

    Returns:
        The correlation id, and where the body begins.

    Raises:
        CorruptDataError: The bytes are not a response header.
    """
    view = memoryview(buffer)
    if len(view) < 4:
        raise CorruptDataError(f"response header: 4 bytes needed, {len(view)} left")
    correlation_id = int.from_bytes(view[:4], "big", signed=True)
    if api_key != _API_VERSIONS and _is_flexible(APIS[api_key].response, version):
        return correlation_id, skip_tagged_fields(view, 4)
    return correlation_id, 4
