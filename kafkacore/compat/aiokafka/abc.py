"""What programs derive from.

Source: aiokafka.abc, aiokafka 0.14.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(ABC):
    """Hears of partitions that come and go. Its methods may be coroutines; they run in the loop, within a call that reads."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Any:
        """These partitions (a set) are about to be given up; what was processed can still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Any:
        """These partitions (a set) are this member's."""


class AbstractTokenProvider(ABC):
    """Gives the tokens of SASL/OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> str:
        """A token that is valid."""

    def extensions(self) -> dict[str, str]:
        """What is sent with the token (KIP-342)."""
        return {}
