"""A request on its way through the network client, and what became of it (native/client.pxi)."""

from __future__ import annotations

from enum import Enum

from kafkacore import _codec
from kafkacore._codec import ClientRequest, ClientResponse

__all__ = ["ClientRequest", "ClientResponse", "Kind"]


class Kind(Enum):
    """Who asked: a user of the client, or the client itself."""

    USER = 0
    METADATA = 1
    API_VERSIONS = 2
    AUTHENTICATION = 3


_codec._bind_request_kinds(Kind.USER, Kind.METADATA)
