"""Bytes with a few changes: what a broken or hostile peer may send."""

from __future__ import annotations

import random


def mutated(wire: bytes, chance: random.Random) -> bytes:
    """The bytes with one to eight changes: another byte, more bytes, fewer bytes."""
    changed = bytearray(wire)
    for _ in range(chance.choice([1, 1, 2, 8])):
        what = chance.random()
        at = chance.randrange(len(changed) + 1)
        if what < 0.6 and at < len(changed):
            changed[at] = chance.choice([chance.randrange(256), 0, 0xFF, 0x7F, 0x80, changed[at] ^ 1 << chance.randrange(8)])
        elif what < 0.8:
            changed[at:at] = chance.randbytes(chance.choice([1, 4]))
        else:
            del changed[at : at + chance.choice([1, 4])]
    return bytes(changed)
