"""Who a certificate is for: its subject's name as Java writes it, and the user that `ssl.principal.mapping.rules` makes of the name.

    DER of a certificate --> "CN=alice,OU=eng,O=acme" --RULE:^CN=(.*?),.*$/$1/L, DEFAULT--> "alice"

Rules:

1. The name is that of X500Principal.getName: RFC 2253, the last part first. A part whose type has no short name there is shown as the bytes
   of its value: 1.2.840.113549.1.9.1=#1605... [test_subjects]
2. Patterns and replacements are Java's. A pattern that Python's `re` does not take, or reads in another way, is refused when the rules are
   read, never later. [test_rules, test_rules_that_cannot_be]
3. Certificates come from peers: each length is checked before it is used. [test_garbage_is_corrupt_data_and_nothing_else]

Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper, KIP-371; RFC 2253; X.690 sections 8.1 and 8.19.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkacore.errors import ConfigError, CorruptDataError

_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_TEXTS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})  # UTF8, Printable, T61, IA5, General, BMP
_BLANKS = " \r"
_ESCAPED = re.compile(r'[,=+<>#;"\\]')


class _Element(NamedTuple):
    """A value in DER: tag, where the tag, the content and the next value begin."""

    tag: int
    start: int
    content: int
    end: int


def _element(data: bytes, at: int, limit: int) -> _Element:
    if limit - at < 2:
        raise CorruptDataError("a certificate ends within a value")
    tag, size, content = data[at], data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4 or limit - content < count:
            raise CorruptDataError("a length in a certificate is not one of DER")
        size = int.from_bytes(data[content : content + count], "big")
        content += count
    if size > limit - content:
        raise CorruptDataError("a value in a certificate is longer than the certificate")
    return _Element(tag, at, content, content + size)


def _inside(data: bytes, outer: _Element, tag: int | None = None) -> Iterator[_Element]:
    at = outer.content
    while at < outer.end:
        found = _element(data, at, outer.end)
        if tag is not None and found.tag != tag:
            raise CorruptDataError(f"a value in a certificate has the tag {found.tag:#x} instead of {tag:#x}")
        yield found
        at = found.end


def _oid(content: bytes) -> str:
    arcs = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(number)
            number = 0
    if not arcs or content[-1] & 0x80:
        raise CorruptDataError("an object identifier in a certificate is cut off")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _pair(data: bytes, outer: _Element) -> str:
    parts = [*_inside(data, outer)]
    if len(parts) != 2 or parts[0].tag != _OID:
        raise CorruptDataError("a part of a name in a certificate is no type and value")
    kind, value = parts
    oid = _oid(data[kind.content : kind.end])
    name = _SHORT_NAMES.get(oid)
    if name is None or value.tag not in _TEXTS:
        return f"{name or oid}=#{data[value.start : value.end].hex()}"
    text = data[value.content : value.end].decode("utf-8", "replace")  # whatever its tag, as in Java
    shown = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", r"\00")
    first, last = len(shown) - len(shown.lstrip(_BLANKS)), len(shown.rstrip(_BLANKS))
    return f"{name}=" + "".join(each if first <= at < last else f"\\{each}" for at, each in enumerate(shown))


def subject_of(certificate: bytes) -> str:
    """The name of a certificate's holder.

    Args:
        certificate: in DER.

    Raises:
        CorruptDataError: it is no certificate.
    """
    outer = _element(certificate, 0, len(certificate))
    signed = next(_inside(certificate, outer, _SEQUENCE), None)
    if outer.tag != _SEQUENCE or signed is None:
        raise CorruptDataError("a certificate does not begin as one")
    fields = [*_inside(certificate, signed)]
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 5 or fields[4].tag != _SEQUENCE:  # number, algorithm, issuer, validity, subject
        raise CorruptDataError("a certificate holds no subject")
    return name_of(certificate[fields[4].start : fields[4].end])


def name_of(der: bytes) -> str:
    """A name as text.

    Args:
        der: an X.501 name in DER.

    Raises:
        CorruptDataError: it is none.
    """
    outer = _element(der, 0, len(der))
    if outer.tag != _SEQUENCE:
        raise CorruptDataError("a name in a certificate does not begin as one")
    parts = ["+".join(_pair(der, each) for each in _inside(der, group, _SEQUENCE)) for group in _inside(der, outer, _SET)]
    return ",".join(reversed(parts))


# ---- mapping rules

_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<named>\(\?<(?=[A-Za-z]))|(?P<flags>\(\?[a-zA-Z-]+[:)])|(?P<open>\[\^?\]?)|(?P<end>\])|(?P<and>&&)|.", re.DOTALL
)
_ANY = "[^\\n\\r\x85\u2028\u2029]"
_REFERENCE = re.compile(r"\$(\d+)")


def java_pattern(text: str) -> str:
    """A pattern of Java's for `re`: a dot matches no line terminator, and of these Java knows more; named groups begin with `(?<`.

    Raises:
        ValueError: it has what `re` takes in another sense: classes within classes, flags other than i.
    """
    found = []
    in_class = False
    for token in _TOKEN.finditer(text):
        kind, part = token.lastgroup, token[0]
        if in_class and kind in ("open", "and"):
            raise ValueError("unions and intersections of character classes are Java's alone")
        if kind == "flags" and not in_class and part[2:-1] not in ("i", "-i", ""):
            raise ValueError(f"the flags {part} are not supported, but for i")
        if kind == "open":
            in_class = True
        elif kind == "end":
            in_class = False
        elif kind == "named" and not in_class:
            part = "(?P<"
        elif part == "." and not in_class:
            part = _ANY
        found.append(part)
    return "".join(found)


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    pieces: tuple[str | int, ...]
    change: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return self.change(self.pattern.sub(self._replaced, name))

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(each if isinstance(each, str) else match[each] or "" for each in self.pieces)


def _escape_unknown_references(text: str, groups: int) -> str:
    """Kafka's own step before Java's: references to groups that do not exist become texts. Later ones are found where they were before."""
    if not groups:
        return text
    value = text
    for found in _REFERENCE.finditer(text):
        if found[1].startswith("0"):
            continue
        number = int(found[1])
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            value = f"{value[: found.start()]}\\{value[found.start() :]}"
    return value


def java_replacement(text: str, pattern: re.Pattern[str]) -> tuple[str | int, ...]:
    """A replacement as Java reads it: texts, and groups by number. Source: java.util.regex.Matcher.appendReplacement."""
    found: list[str | int] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            if at == len(text):
                raise ValueError("a backslash at the end escapes nothing")
            found.append(text[at])
            at += 1
        elif character != "$":
            found.append(character)
        elif named := re.compile(r"\{(\w+)\}").match(text, at):
            if named[1] not in pattern.groupindex:
                raise ValueError(f"there is no group {named[1]}")
            found.append(pattern.groupindex[named[1]])
            at = named.end()
        else:
            if not text[at : at + 1].isdecimal():
                raise ValueError("a $ is followed by a group's number or {name}")
            number = int(text[at])
            at += 1
            if number > pattern.groups:
                raise ValueError(f"there is no group {number}")
            while text[at : at + 1].isdecimal() and number * 10 + int(text[at]) <= pattern.groups:
                number = number * 10 + int(text[at])
                at += 1
            found.append(number)
    return tuple(found)


def _same(name: str) -> str:
    return name


_CHANGES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": _same}


class MappingRules:
    """`ssl.principal.mapping.rules`, read.

    Args:
        text: the rules, with commas.

    Raises:
        ConfigError: one is none, or Python's `re` does not take its pattern.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._rules: list[_Rule | None] = []  # None: the whole name
        for split in _SPLITTER.finditer(text.strip()):
            rule = split[1]
            match = _PARSER.match(rule)
            if match is None or match.end() != len(rule):
                raise ConfigError(f"ssl_principal_mapping_rules: {rule!r} is neither DEFAULT nor of the form RULE:pattern/replacement/[LU]")
            if match[1] is not None:
                self._rules.append(None)
            elif match[2] is not None:
                self._rules.append(self._rule(rule, match[2], match[4], match[6]))

    @staticmethod
    def _rule(rule: str, pattern: str, replacement: str, change: str) -> _Rule:
        try:
            compiled = re.compile(java_pattern(pattern), re.ASCII)  # classes as \w are ASCII's in Java
            pieces = java_replacement(_escape_unknown_references(replacement, compiled.groups), compiled)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(f"ssl_principal_mapping_rules: {rule!r} cannot be used: {error}") from None
        return _Rule(compiled, pieces, _CHANGES[change])

    def name(self, subject: str) -> str | None:
        """The user's name.

        Args:
            subject: a certificate's name.

        Returns:
            None where no rule fits: Kafka ends the connection then.
        """
        for rule in self._rules:
            found = subject if rule is None else rule.apply(subject)
            if found is not None:
                return found
        return None

    def __repr__(self) -> str:
        return f"MappingRules({self._text!r})"
