"""How long the end of a `with` block over a client waits for brokers."""

from __future__ import annotations

CLOSE_S = 30.0
FAILED_BLOCK_S = 5.0
"""After an error or Ctrl+C the user waits for the program to end, and the brokers may be its cause."""


def close_timeout_s(kind: type[BaseException] | None) -> float:
    """Seconds for the close at the end of a block that was left with this exception, None for its last line. The end of a program or of a
    generator is no error."""
    return CLOSE_S if kind is None or issubclass(kind, (SystemExit, GeneratorExit)) else FAILED_BLOCK_S
