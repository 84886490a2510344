"""Java's properties files: settings, one a line. Source: java.util.Properties.load; the text is UTF-8."""

from __future__ import annotations

import re

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR = re.compile(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")


class NoProperties(ValueError):
    """A text that is no properties file; its text says the line and never repeats it, for there may be a password in it."""


def parse_properties(text: str) -> dict[str, str]:
    r"""The settings of a file: `name=value`, `name: value` or `name value`; a last `\` goes on in the next line; comments after `#`, `!`.

    Args:
        text: of the file.

    Returns:
        By name; of a name that stands twice the last value, as in Java.

    Raises:
        NoProperties: an escape of a character is incomplete, or a line has no name.
    """
    found: dict[str, str] = {}
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), 1))
    for number, each in lines:
        line = each.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _CONTINUED.search(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        name, value = (_plain(part, number) for part in _PAIR.fullmatch(line).groups())  # type: ignore[union-attr]  # it takes any text
        if not name:
            raise NoProperties(f"line {number:,} has no name before its value")
        found[name] = value
    return found


def _plain(text: str, number: int) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise NoProperties(f"line {number:,}: \\u takes four hexadecimal digits")
        return _ESCAPES.get(match[2], match[2])

    plain = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", character, text, flags=re.DOTALL)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two \u make a character beyond 65,535
