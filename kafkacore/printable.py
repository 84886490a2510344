"""Text of others, for a terminal or a log: what would move the cursor, colour it, turn the direction or begin a line becomes its escape.

Source: CWE-150; Unicode TR 36, section 2 (bidirectional text), and the categories Cc, Cf, Cs, Zl and Zp. The joiners U+200C and U+200D
stay, since scripts and emoji need them.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u070f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
MOST_SHOWN = 200


def printable(text: str) -> str:
    r"""Text on one line without effect on a terminal: ESC becomes `\x1b`, a newline `\n`, a bidirectional override `\u202e`.

    Args:
        text: from anywhere.
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def quoted(text: str) -> str:
    """What a peer says about a failure, as part of an error's message: printable, and cut where it is long.

    Args:
        text: the peer's.
    """
    cut = printable(text[:MOST_SHOWN])
    return cut if len(text) <= MOST_SHOWN else f"{cut}..."


def printable_json(document: str) -> str:
    r"""A JSON document that means the same and has no effect on a terminal: `\u009b`, `\u202e`.

    Args:
        document: JSON, where such characters stand in strings alone.
    """
    return _UNSAFE.sub(_json_escape, document)


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
