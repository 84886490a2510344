"""The table of APIs that a server serves: what it says of each API, and which versions of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.broker.slices import Parts, Steps
from kafkacore.broker.state import Call, Outcome
from kafkacore.errors import UsageError
from kafkacore.protocol import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, SaslAuthenticateRequest, SaslHandshakeRequest
from kafkacore.protocol.schema import Response

MAX_REQUEST_ELEMENTS = 100_000
"""How many elements the arrays of a request may have together: more than any client asks for, and less than would hold up the others."""
FIRST_VERSION_WITH_OWN_RANGE = 3
"""Of ApiVersions: brokers that know it tell who asked for a version they do not know which ones they do."""
DIALOGUE = (ApiVersionsRequest.API_KEY, SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY)
"""The requests by which a connection gets a user."""

Handler = Callable[[Any, Call, Any], Response | Outcome | Steps]
Versions = Mapping[int, tuple[int, int]]
"""(min, max) by API key."""


class Served(NamedTuple):
    """One API.

    Attributes:
        min_version, max_version: the versions that can be advertised.
        handler: is called with the server's state, the call and the request.
        parts: how a long request is cut.
        max_elements: how many elements the arrays of a request may have together.
    """

    min_version: int
    max_version: int
    handler: Handler
    parts: tuple[Parts, ...] = ()
    max_elements: int = MAX_REQUEST_ELEMENTS


def advertised(served: Mapping[int, Served], api_versions: Versions | None, *, is_silent: bool) -> dict[int, tuple[int, int]]:
    """What ApiVersions advertises.

    Args:
        served: the APIs by key.
        api_versions: what is wished; everything served if None.
        is_silent: it may leave out ApiVersions itself.

    Raises:
        UsageError: it promises what is not served, or leaves out ApiVersions itself.
    """
    if api_versions is None:
        api_versions = {key: (each.min_version, each.max_version) for key, each in served.items()}
    for key, (low, high) in api_versions.items():
        if key not in served or low > high or low < served[key].min_version or high > served[key].max_version:
            offered = f"v{served[key].min_version}-{served[key].max_version}" if key in served else "nothing"
            raise UsageError(f"api_versions promises v{low}-{high} of API {key}; {offered} of it is served")
    if ApiVersionsRequest.API_KEY not in api_versions and not is_silent:
        raise UsageError("api_versions must hold ApiVersions (18) itself")
    return dict(api_versions)


def within(versions: Versions, api_key: int, version: int) -> bool:
    """Whether a version of an API is among these."""
    low, high = versions.get(api_key, (0, -1))
    return low <= version <= high


def unsupported_api_versions(api_versions: Versions) -> ApiVersionsResponse:
    """The answer to an ApiVersions request of an unknown version, to be encoded as v0: the one range the client needs. Before KIP-511,
    which came with v3, it was empty."""
    low, high = api_versions[ApiVersionsRequest.API_KEY]
    entry = ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=low, max_version=high)
    code = errors.Code.UNSUPPORTED_VERSION
    return ApiVersionsResponse(error_code=code, api_keys=[entry] if high >= FIRST_VERSION_WITH_OWN_RANGE else [])
