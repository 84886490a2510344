"""Errors of fetches that may pass: they are raised nowhere, so `health` says when they do not pass."""

from __future__ import annotations

from kafkacore.consumer.subscription import PartitionState

_AGAIN_MS = 3_000  # between two refusals of a row there are the back-off and what an answer takes


class Refusals:
    """Partitions that brokers refuse to read from.

    Args:
        retry_backoff_ms: pause before a partition is asked for again.
    """

    def __init__(self, retry_backoff_ms: int) -> None:
        self._longest_ms = _AGAIN_MS + retry_backoff_ms
        self.fresh: dict[PartitionState, int] = {}  # error codes of answers, which carry no time
        self._rows: dict[PartitionState, tuple[int, int, int, int]] = {}  # at this offset, since, last at, code

    def note(self, now_ms: int) -> None:
        """The fresh ones are of now."""
        for state, code in self.fresh.items():
            offset, since_ms, last_ms, _ = self._rows.get(state, (-1, 0, 0, 0))
            if offset != state.offset or now_ms - last_ms > self._longest_ms:
                since_ms = now_ms
            self._rows[state] = state.offset, since_ms, now_ms, code
        self.fresh.clear()

    def going_on(self, now_ms: int) -> dict[PartitionState, tuple[int, int]]:
        """The partitions that are refused again and again: since when, and the last error code."""
        self._rows = {s: r for s, r in self._rows.items() if s.assigned and s.offset == r[0] and now_ms - r[2] <= self._longest_ms}
        return {state: (since_ms, code) for state, (_, since_ms, _, code) in self._rows.items()}

    def clear(self) -> None:
        """Another network is used from now on."""
        self.fresh.clear()
        self._rows.clear()
