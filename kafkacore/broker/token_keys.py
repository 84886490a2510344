"""The secrets of delegation tokens (KIP-48): a token's is the HMAC of its id, so that it is stored nowhere.

Source: kafka.server.DelegationTokenManager, org.apache.kafka.controller.DelegationTokenControlManager.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping

from kafkacore.protocol.metadata_log import DelegationTokenRecord


class TokenKeys:
    """Makes and finds the secrets of tokens."""

    def __init__(self, secret_key: str) -> None:
        """Args:
        secret_key: delegation.token.secret.key.
        """
        self._key = secret_key.encode()
        self._ids: dict[bytes, str] = {}  # by secret, of the tokens that were looked for

    def hmac_of(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, secret: bytes, tokens: Mapping[str, DelegationTokenRecord]) -> DelegationTokenRecord | None:
        """The token with a secret; None without one.

        Args:
            secret: as the client gives it.
            tokens: those that there are, by id.
        """
        if self._ids.get(secret) not in tokens:
            self._refresh(tokens)
        token_id = self._ids.get(secret)
        return None if token_id is None else tokens[token_id]

    def _refresh(self, token_ids: Collection[str]) -> None:
        """Learns the tokens that are new, and forgets those that are gone."""
        self._ids = {secret: token_id for secret, token_id in self._ids.items() if token_id in token_ids}
        known = set(self._ids.values())
        self._ids |= {self.hmac_of(token_id): token_id for token_id in token_ids if token_id not in known}


def has_expired(token: DelegationTokenRecord, wall_ms: int) -> bool:
    """Whether a token may no longer be used."""
    return wall_ms > token.max_timestamp or wall_ms > token.expiration_timestamp
