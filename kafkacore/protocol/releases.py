"""What brokers speak that cannot be asked: ApiVersions came with Kafka 0.10.

Source: kafka.api.RequestKeys of Kafka 0.8.2; org.apache.kafka.common.protocol.Protocol of Kafka 0.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HIGHEST_OF_0_8: Final[Mapping[int, int]] = {0: 0, 1: 0, 2: 0, 3: 0, 8: 1, 9: 1, 10: 0}
HIGHEST_OF_0_9: Final[Mapping[int, int]] = {**HIGHEST_OF_0_8, 0: 1, 1: 1, 8: 2, 11: 0, 12: 0, 13: 0, 14: 0, 15: 0, 16: 0}
"""{API key: highest version}; the lowest is 0 everywhere."""

WITHOUT_API_VERSIONS: Final[Mapping[str, Mapping[int, tuple[int, int]]]] = {
    release: {key: (0, highest) for key, highest in of_release.items()}
    for release, of_release in (("0.8", HIGHEST_OF_0_8), ("0.9", HIGHEST_OF_0_9))
}
"""By release: {API key: (lowest version, highest version)}."""
