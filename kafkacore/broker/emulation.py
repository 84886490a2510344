"""Older Kafkas: how far their versions of each API go, and which features they have finalized.

A broker that plays an older Kafka advertises no more than that Kafka did and refuses the rest, as far as it serves the API at all. What
Kafka 4 dropped (KIP-896) does not come back: the lowest versions stay those of Kafka 4, which is what its clients ask for anyway.

Source: the message definitions of kafka-clients 3.9.1, 4.0.1 and 4.3.1; org.apache.kafka.server.common.MetadataVersion, Feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkacore.broker.cluster import FEATURES
from kafkacore.errors import UsageError


class Emulation(NamedTuple):
    """One release.

    Attributes:
        highest: the highest version of an API, where it is lower than in the newest release; -1 for none.
        supported_features: the levels the release knows, (lowest, highest) by name.
    """

    highest: Mapping[int, int]
    supported_features: Mapping[str, tuple[int, int]]

    @property
    def features(self) -> Mapping[str, int]:
        """The levels finalized in a new cluster, by name: the highest, and 0 for what the release does not know."""
        return {name: self.supported_features.get(name, (0, 0))[1] for name in FEATURES}


_AS_OF_4_0 = {0: 12, 1: 17, 2: 10, 8: 9, 9: 9, 27: 1, 35: 4, 45: 0, 66: 1, 74: 0, 80: 0}

EMULATIONS: Mapping[str, Emulation] = {
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
    """A table of versions, (lowest, highest) by API key, as far as a release goes.

    Args:
        api_versions: what is served.
        release: "3.9", "4.0" or "4.3".

    Raises:
        UsageError: there is no such release here.
    """
    highest = emulation(release).highest
    table = {key: (low, min(high, highest.get(key, high))) for key, (low, high) in api_versions.items()}
    return {key: (low, high) for key, (low, high) in table.items() if low <= high}
