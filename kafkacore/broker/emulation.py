"""Older Kafkas: how far their versions of each API go, how they store messages, which errors and features they know.

A broker that plays Kafka 3.9 or newer advertises no more than that Kafka did and refuses the rest, as far as it serves the API at all. What
Kafka 4 dropped (KIP-896) does not come back there: the lowest versions stay those of Kafka 4, which is what its clients ask for anyway.

The older ones are played with their whole tables, for clients and bytes of their time: "0.8" is 0.8.2, "0.9" 0.9.0, "0.10" 0.10.2 and "2.x"
2.8. Up to 0.9 there is no ApiVersions: the connection of who asks is closed. Brokers of one cluster copy among themselves as today's do.

Source: the message definitions of kafka-clients 3.9.1, 4.0.1 and 4.3.1; org.apache.kafka.server.common.MetadataVersion, Feature. Tables of
the older ones: kafka.api.RequestKeys (0.8.2), org.apache.kafka.common.protocol.Protocol (0.9), ApiVersions answers of 0.10.2 and 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkacore.broker.cluster import FEATURES
from kafkacore.errors import Code, UsageError
from kafkacore.protocol.releases import HIGHEST_OF_0_8, HIGHEST_OF_0_9

API_VERSIONS_KEY = 18
_ANY_CODE = 0x7FFF


class Emulation(NamedTuple):
    """One release.

    Attributes:
        highest: the highest version of an API, where it is lower than in the newest release; -1 for none.
        supported_features: the levels the release knows, (lowest, highest) by name.
        versions: the whole table of a release whose lowest versions are older than Kafka 4's.
        message_format: in which magic messages are stored, and that old ones are taken; None: batches alone.
        newest_code: the newest error code.
    """

    highest: Mapping[int, int]
    supported_features: Mapping[str, tuple[int, int]]
    versions: Mapping[int, tuple[int, int]] | None = None
    message_format: int | None = None
    newest_code: int = _ANY_CODE

    @property
    def features(self) -> Mapping[str, int]:
        """The levels finalized in a new cluster, by name: the highest, and 0 for what the release does not know."""
        return {name: self.supported_features.get(name, (0, 0))[1] for name in FEATURES}

    def code(self, code: Code) -> Code:
        """The error as the release would have said it."""
        return code if code <= self.newest_code else _OLDER_CODES.get(code, Code.UNKNOWN_SERVER_ERROR)


_OLDER_CODES = {
    Code.INVALID_RECORD: Code.CORRUPT_MESSAGE,
    Code.UNSUPPORTED_COMPRESSION_TYPE: Code.CORRUPT_MESSAGE,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_LEADER_OR_FOLLOWER,
}
"""What was said before there was a code of its own."""

_AS_OF_4_0 = {0: 12, 1: 17, 2: 10, 8: 9, 9: 9, 27: 1, 35: 4, 45: 0, 66: 1, 74: 0, 80: 0}


def _from_0(highest: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    return {key: (0, high) for key, high in highest.items()}


_OF_0_10 = {**HIGHEST_OF_0_9, 0: 2, 1: 3, 2: 1, 3: 2, 9: 2, 11: 1, 17: 0, 18: 0, 19: 1, 20: 0}
_OF_2_8 = {
    0: 9, 1: 12, 2: 6, 3: 11, 8: 8, 9: 7, 10: 3, 11: 7, 12: 4, 13: 4, 14: 5, 15: 5, 16: 4, 17: 1, 18: 3, 19: 7, 20: 6, 21: 2, 22: 4,
    23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 3, 38: 2, 39: 2, 40: 2,
    41: 2, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0, 57: 0, 60: 0, 61: 0,
}

EMULATIONS: Mapping[str, Emulation] = {
    "0.8": Emulation({}, {}, _from_0(HIGHEST_OF_0_8), 0, Code.INVALID_REQUIRED_ACKS),
    "0.9": Emulation({}, {}, _from_0(HIGHEST_OF_0_9), 0, Code.CLUSTER_AUTHORIZATION_FAILED),
    "0.10": Emulation({}, {}, _from_0(_OF_0_10), 1, Code.POLICY_VIOLATION),
    "2.x": Emulation({}, {}, _from_0(_OF_2_8), 2, Code.INCONSISTENT_CLUSTER_ID),
    "3.9": Emulation(
        {**_AS_OF_4_0, 0: 11, 2: 9, 3: 12, 15: 5, 26: 4, 28: 4, 57: 1, 60: 1, 68: 0, 69: 0},
        {"metadata.version": (1, 21)},
    ),
    "4.0": Emulation(_AS_OF_4_0, {**FEATURES, "metadata.version": (7, 25)}),
    "4.3": Emulation({}, FEATURES),
}
"""By release. Features are named only as far as this broker has them."""

NEWEST = "4.3"


def emulation(release: str) -> Emulation:
    """The release of a name.

    Raises:
        UsageError: there is no such release here.
    """
    found = EMULATIONS.get(release)
    if found is None:
        raise UsageError(f"emulate={release!r} is not known; {', '.join(EMULATIONS)} are")
    return found


def capped(api_versions: Mapping[int, tuple[int, int]], release: str) -> dict[int, tuple[int, int]]:
    """The table of versions of a release, (lowest, highest) by API key, as far as the APIs are named.

    Args:
        api_versions: what is served.
        release: one of `EMULATIONS`.

    Raises:
        UsageError: there is no such release here.
    """
    played = emulation(release)
    if played.versions is not None:
        return {key: played.versions[key] for key in api_versions if key in played.versions}
    table = {key: (low, min(high, played.highest.get(key, high))) for key, (low, high) in api_versions.items()}
    return {key: (low, high) for key, (low, high) in table.items() if low <= high}
