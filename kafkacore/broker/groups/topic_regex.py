r"""Regular expressions over topic names, in RE2's syntax and in time linear in the name.

A subscription's expression comes from a client and is matched in the broker's thread, so a matcher that backtracks (Python's `re`) would
let one client stop the broker. This one walks all possibilities side by side (a Thompson automaton).

Known: literals, ".", classes with ranges and negation, \d \w \s and their negations, [:alpha:] and friends, groups (named, numbered, (?:)),
"|", "*", "+", "?", "{m,n}" with their lazy forms (which match the same whole names), "^" "$" \A \z, and the flag i as (?i) or (?i:...).
A topic name has no line breaks, so the flags m and s change nothing. Look-around, back-references and possessive forms are refused, as by
RE2.

    expression -> _Parser -> program of (op, ...) -> Regex.matches: from one set of places in the program to the next, per character

Source: https://github.com/google/re2/wiki/Syntax; org.apache.kafka.coordinator.group.modern.consumer.TopicRegexResolver (com.google.re2j).
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from kafkacore.errors import InvalidRegularExpression

MAX_REPEAT = 1000
MAX_PATTERN = 10_000
MAX_PROGRAM = 2_500
MAX_DEPTH = 100
MAX_STEPS = 10_000

_CHAR, _SPLIT, _JUMP, _BEGIN, _END, _MATCH = range(6)
Test = Callable[[str], bool]

_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACE = frozenset("\t\n\f\r ")
_PERL = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "digit": _DIGITS,
    "lower": frozenset(string.ascii_lowercase),
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class _Op(NamedTuple):
    """One instruction: what it is, where it goes on, and the test of a character."""

    kind: int
    first: int = 0
    second: int = 0
    test: Test | None = None


Places = frozenset[int]


class Regex:
    """A compiled expression. The sets of places it has met, and where a character leads from them, are kept: names are alike."""

    def __init__(self, pattern: str) -> None:
        """Compiles.

        Raises:
            InvalidRegularExpression: RE2 would refuse it, or it is too large.
        """
        if len(pattern) > MAX_PATTERN:
            raise InvalidRegularExpression(f"SubscribedTopicRegex has {len(pattern)} characters; at most {MAX_PATTERN} are allowed.")
        self.pattern = pattern
        self._program = _Parser(pattern).program()
        self._start = self._follow({0}, begin=True, end=False)
        self._steps: dict[tuple[Places, str], Places] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        places = self._start
        for char in text:
            if not places:
                return False
            known = self._steps.get((places, char))
            if known is None:
                if len(self._steps) >= MAX_STEPS:
                    self._steps.clear()
                known = self._steps[places, char] = self._step(places, char)
            places = known
        return any(self._program[place].kind == _MATCH for place in self._follow(places, begin=not text, end=True))

    def _step(self, places: Places, char: str) -> Places:
        following = set()
        for place in places:
            op = self._program[place]
            if op.kind == _CHAR and op.test is not None and op.test(char):
                following.add(place + 1)
        return self._follow(following, begin=False, end=False)

    def _follow(self, places: Iterable[int], begin: bool, end: bool) -> Places:
        """All places that can be reached without a character, at the text's begin or end or between."""
        seen: set[int] = set()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            op = self._program[place]
            if op.kind == _SPLIT:
                waiting += (op.first, op.second)
            elif op.kind == _JUMP:
                waiting.append(op.first)
            elif (op.kind == _BEGIN and begin) or (op.kind == _END and end):
                waiting.append(place + 1)
        return frozenset(seen)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Regex:
    """An expression, compiled before or now.

    Raises:
        InvalidRegularExpression: it cannot be.
    """
    return Regex(pattern)


Fragment = list[_Op]  # with jumps relative to its own start


class _Parser:
    """Recursive descent; every rule returns instructions whose targets are relative to their start."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.ignore_case = False

    def program(self) -> list[_Op]:
        fragment = self._alternatives()
        if self.at < len(self.pattern):
            raise self._wrong("unexpected )")
        return [*fragment, _Op(_MATCH)]

    def _wrong(self, why: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"SubscribedTopicRegex `{self.pattern}` is not a valid regular expression: {why}.")

    def _peek(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def _take(self) -> str:
        if self.at >= len(self.pattern):
            raise self._wrong("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def _skip(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _checked(self, fragment: Fragment) -> Fragment:
        if len(fragment) > MAX_PROGRAM:
            raise self._wrong("it is too large")
        return fragment

    def _alternatives(self) -> Fragment:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._wrong("it is nested too deeply")
        ignore_case = self.ignore_case
        branch = self._sequence()
        while self._skip("|"):
            other = self._sequence()
            begin, end = len(branch) + 2, len(branch) + len(other) + 2
            branch = self._checked([_Op(_SPLIT, 1, begin), *_shifted(branch, 1), _Op(_JUMP, end), *_shifted(other, begin)])
        self.ignore_case = ignore_case  # a flag set inside a group ends with it
        self.depth -= 1
        return branch

    def _sequence(self) -> Fragment:
        whole: Fragment = []
        while self._peek() not in ("", "|", ")"):
            whole += _shifted(self._repeated(), len(whole))
            self._checked(whole)
        return whole

    def _repeated(self) -> Fragment:
        fragment = self._atom()
        repeated = False
        while True:
            start = self.at
            bounds = self._bounds()
            if bounds is None:
                return fragment
            if repeated:
                raise self._wrong(f"invalid nested repetition operator `{self.pattern[start : self.at]}`")
            repeated = True
            self._skip("?")
            if self._peek() == "+":
                raise self._wrong("possessive repetition is not supported")
            fragment = self._times(fragment, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._skip("*"):
            return 0, None
        if self._skip("+"):
            return 1, None
        if self._skip("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : end if end >= 0 else len(self.pattern)].partition(",")
        if end < 0 or not low.isascii() or not low.isdigit() or (high and not (high.isascii() and high.isdigit())):
            return None  # then the brace is a brace
        if len(low) > 4 or len(high) > 4 or int(low) > MAX_REPEAT or (high and int(high) > MAX_REPEAT):
            raise self._wrong("invalid repeat count")
        self.at = end + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if most is not None and most < least:
            raise self._wrong("invalid repeat count")
        return least, most

    def _times(self, fragment: Fragment, least: int, most: int | None) -> Fragment:
        if (most if most is not None else least + 1) * (len(fragment) + 1) > MAX_PROGRAM:
            raise self._wrong("it is too large")
        size = len(fragment)
        whole: Fragment = []
        for _ in range(least):
            whole += _shifted(fragment, len(whole))
        if most is None:
            start = len(whole)
            whole += [_Op(_SPLIT, start + 1, start + size + 2), *_shifted(fragment, start + 1), _Op(_JUMP, start)]
        else:
            end = len(whole) + (most - least) * (size + 1)
            for _ in range(most - least):
                start = len(whole)
                whole += [_Op(_SPLIT, start + 1, end), *_shifted(fragment, start + 1)]
        return whole

    def _atom(self) -> Fragment:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return [_Op(_CHAR, test=self._class())]
        if char == ".":
            return [_Op(_CHAR, test=lambda each: each != "\n")]
        if char == "^":
            return [_Op(_BEGIN)]
        if char == "$":
            return [_Op(_END)]
        if char in "*+?":
            raise self._wrong(f"missing argument to repetition operator `{char}`")
        if char == "\\":
            return self._escaped()
        return [_Op(_CHAR, test=self._one_of(frozenset(char)))]

    def _group(self) -> Fragment:
        ignore_case = self.ignore_case
        if self._skip("?"):
            if self._skip("P<") or (self._peek() == "<" and self.pattern[self.at + 1 : self.at + 2] not in ("=", "!") and self._skip("<")):
                name = ""
                while (char := self._take()) != ">":
                    name += char
                if not name or not set(name) <= _WORD:
                    raise self._wrong("invalid named capture")
            elif not self._flags():
                return []
        fragment = self._alternatives()
        self.ignore_case = ignore_case
        if not self._skip(")"):
            raise self._wrong("missing closing )")
        return fragment

    def _flags(self) -> bool:
        """Reads what follows (?; False if the group ends there, its flags being for what follows it."""
        value, ignore_case = True, self.ignore_case
        while True:
            char = self._take()
            if char == "i":
                ignore_case = value
            elif char == "-" and value:
                value = False
            elif char in ":)":
                break
            elif char not in "msU":
                raise self._wrong("invalid or unsupported Perl syntax")
        self.ignore_case = ignore_case
        return char == ":"

    def _escaped(self) -> Fragment:
        char = self._take()
        if char == "A":
            return [_Op(_BEGIN)]
        if char in "zZ":
            return [_Op(_END)]
        if char == "Q":
            end = self.pattern.find("\\E", self.at)
            text = self.pattern[self.at : end if end >= 0 else len(self.pattern)]
            self.at = len(self.pattern) if end < 0 else end + 2
            return [_Op(_CHAR, test=self._one_of(frozenset(each))) for each in text]
        perl = self._perl(char)
        if perl is not None:
            return [_Op(_CHAR, test=perl)]
        return [_Op(_CHAR, test=self._one_of(frozenset(self._literal(char))))]

    def _perl(self, char: str) -> Test | None:
        members = _PERL.get(char.lower())
        if members is None:
            return None
        return members.__contains__ if char.islower() else lambda each: each not in members

    def _literal(self, char: str) -> str:
        """The character that stands behind a backslash and `char`."""
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "x":
            digits = self._take() + self._take()
            if digits[0] == "{":
                end = self.pattern.find("}", self.at)
                digits = digits[1] + self.pattern[self.at : end] if end >= 0 else "?"
                self.at = end + 1
            if not digits or len(digits) > 6 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
                raise self._wrong("invalid escape sequence")
            return chr(int(digits, 16))
        if char in string.ascii_letters or char in string.digits:
            raise self._wrong(f"invalid escape sequence `\\{char}`")
        return char

    def _one_of(self, chars: frozenset[str]) -> Test:
        if self.ignore_case:
            chars = frozenset(form for char in chars for form in (char, char.lower(), char.upper()))
        return chars.__contains__

    def _class(self) -> Test:
        negated = self._skip("^")
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if self._skip("[:"):
                tests.append(self._posix())
                continue
            char = self._take()
            if char == "\\":
                char = self._take()
                perl = self._perl(char)
                if perl is not None:
                    tests.append(perl)
                    continue
                char = self._literal(char)
            tests.append(self._range(char))
        self.at += 1
        if negated:
            return lambda each: not any(test(each) for test in tests)
        return lambda each: any(test(each) for test in tests)

    def _posix(self) -> Test:
        end = self.pattern.find(":]", self.at)
        name = self.pattern[self.at : end] if end >= 0 else ""
        members = _POSIX.get(name.removeprefix("^"))
        if members is None:
            raise self._wrong("invalid character class range")
        self.at = end + 2
        known = members
        return (lambda each: each not in known) if name.startswith("^") else known.__contains__

    def _range(self, low: str) -> Test:
        high = low
        if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            high = self._take()
            if high == "\\":
                high = self._literal(self._take())
        if high < low:
            raise self._wrong("invalid character class range")
        if self.ignore_case:
            return lambda each: any(low <= form <= high for form in (each, each.lower(), each.upper()))
        return lambda each: low <= each <= high


def _shifted(fragment: Fragment, by: int) -> Fragment:
    return [op._replace(first=op.first + by, second=op.second + by) if op.kind in (_SPLIT, _JUMP) else op for op in fragment]
