r"""Regular expressions over topic names, in RE2's syntax and in time linear in the name.

A subscription's expression comes from a client and is matched in the broker's thread, so a matcher that backtracks (Python's `re`) would
let one client stop the broker. This one walks all possibilities side by side (a Thompson automaton).

Known: literals, ".", classes with ranges and negation, \d \w \s and their negations, [:alpha:] and friends, groups (named, numbered, (?:)),
"|", "*", "+", "?", "{m,n}" with their lazy forms (which match the same whole names), "^" "$" \A \z, and the flag i as (?i) or (?i:...).
A topic name has no line breaks, so the flags m and s change nothing. Look-around, back-references and possessive forms are refused, as by
RE2.

    expression -> _Parser -> program of (op, ...) -> Regex.matches: from one set of places in the program to the next, per character

A set of places is an integer with one bit per instruction, so that a step joins a few integers instead of walking the places. Where places
lead is found when a name first needs it. `cost` counts the steps, and a match can stop in the middle of a name: an expression that is made
to be slow takes its time in small parts (regex_resolver.py).

Source: https://github.com/google/re2/wiki/Syntax; org.apache.kafka.coordinator.group.modern.consumer.TopicRegexResolver (com.google.re2j).
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkacore.errors import InvalidRegularExpression

MAX_REPEAT = 1000
MAX_PATTERN = 10_000
MAX_PROGRAM = 2_500
MAX_DEPTH = 100
MAX_STEPS_BYTES = 1 << 20
"""What the steps that an expression remembers may take."""

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
    """One instruction: what it is, where it goes on, as distances from itself, and the test of a character."""

    kind: int
    first: int = 0
    second: int = 0
    test: Test | None = None


class Matching(NamedTuple):
    """A match that is not over: the set of places, and how many characters it has seen."""

    places: int
    at: int = 0


class Regex:
    """A compiled expression. The sets of places it has met, and where a character leads from them, are kept: names are alike.

    Attributes:
        pattern: the expression.
        cost: what matching has cost so far, in steps of about 100 ns.
    """

    def __init__(self, pattern: str) -> None:
        """Compiles.

        Raises:
            InvalidRegularExpression: RE2 would refuse it, or it is too large.
        """
        if len(pattern) > MAX_PATTERN:
            raise InvalidRegularExpression(f"SubscribedTopicRegex has {len(pattern)} characters; at most {MAX_PATTERN} are allowed.")
        self.pattern = pattern
        self.cost = len(pattern)
        self._program = _Parser(pattern).program()
        size = len(self._program)
        self._max_steps = max(MAX_STEPS_BYTES // (size // 8 + 200), 64)
        self._steps: dict[tuple[int, str], int] = {}
        self._accepted: dict[str, int] = {}  # the places whose test a character passes
        self._leads: list[dict[str, int]] = [{} for _ in range(size // 4 + 1)]  # of each four places, where they lead, by hex digit
        self._reached: list[int] = []
        self._start = self._reached_at_begin()
        self._final: dict[bool, int] = {}  # the places in which the text may end, when it is empty and when not

    @property
    def start(self) -> Matching:
        """Before the first character."""
        return Matching(self._start)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self.go_on(text, self.start) is True  # without a limit it is never a Matching

    def go_on(self, text: str, matching: Matching, max_cost: int = 1 << 62) -> bool | Matching:
        """Goes on with a match, and stops where it has cost enough.

        Args:
            text: the text.
            matching: how far it is: `start`, or what this returned for the same text.
            max_cost: in steps; a little more may be taken.

        Returns:
            Whether the whole text matches, or how far it is now.
        """
        places, at = matching
        known_steps = self._steps
        max_cost += self.cost
        for char in text[at:] if at else text:
            if not places:
                return False
            if self.cost >= max_cost:
                return Matching(places, at)
            known = known_steps.get((places, char))
            if known is None:
                known = self._step(places, char)
                if len(known_steps) >= self._max_steps:
                    known_steps.clear()
                known_steps[places, char] = known
            self.cost += 1
            places = known
            at += 1
        final = self._final.get(not text)
        if final is None:
            final = self._final[not text] = self._may_end(begin=not text)
        return places & final != 0

    def _step(self, places: int, char: str) -> int:
        accepted = self._accepted.get(char)
        if accepted is None:
            accepted = self._accepted_by(char)
        digits = f"{places & accepted:x}"
        self.cost += len(digits) + 1
        following = 0
        for nth, digit in enumerate(reversed(digits)):
            if digit != "0":
                leads = self._leads[nth].get(digit)
                if leads is None:
                    leads = self._lead(nth, digit)
                following |= leads
        return following

    def _accepted_by(self, char: str) -> int:
        self.cost += len(self._program) + len(self.pattern)
        results: dict[Test, bool] = {}  # repeated parts share their tests
        accepted = 0
        for place, op in enumerate(self._program):
            if op.test is not None:
                passes = results.get(op.test)
                if passes is None:
                    passes = results[op.test] = op.test(char)
                if passes:
                    accepted |= 1 << place
        self._accepted[char] = accepted  # names have few characters
        return accepted

    def _lead(self, nth: int, digit: str) -> int:
        """Where the places of a hex digit lead."""
        leads = 0
        for bit in range(4):
            if int(digit, 16) >> bit & 1:
                single = f"{1 << bit:x}"
                known = self._leads[nth].get(single)
                if known is None:
                    reached = self._reached or self._reach_all()
                    known = self._leads[nth][single] = reached[nth * 4 + bit + 1]
                leads |= known
        self._leads[nth][digit] = leads
        return leads

    def _goes_on(self, place: int, begin: bool = False, end: bool = False) -> tuple[int, ...]:
        """Where a place goes on without a character, at the text's begin or end or between."""
        op = self._program[place]
        if op.kind == _SPLIT:
            return place + op.first, place + op.second
        if op.kind == _JUMP:
            return (place + op.first,)
        if (op.kind == _BEGIN and begin) or (op.kind == _END and end):
            return (place + 1,)
        return ()

    def _may_end(self, begin: bool) -> int:
        """The places from which the match is reached at the text's end."""
        comes_from: list[list[int]] = [[] for _ in self._program]
        for place in range(len(self._program)):
            for following in self._goes_on(place, begin, end=True):
                comes_from[following].append(place)
        return self._joined(len(self._program) - 1, comes_from.__getitem__)

    def _reached_at_begin(self) -> int:
        return self._joined(0, lambda place: self._goes_on(place, begin=True))

    def _joined(self, place: int, further: Callable[[int], Iterable[int]]) -> int:
        """The places that are found from one."""
        seen = {place}
        waiting = [place]
        while waiting:
            for following in further(waiting.pop()):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        self.cost += len(seen)
        return sum(1 << place for place in seen)

    def _reach_all(self) -> list[int]:
        """For each place those that it reaches without a character in the middle of the text, itself included: each as the union of those
        it goes on to, which are known first. Places in a circle reach the same ones. Source: Tarjan, Depth-first search (1972)."""
        size = len(self._program)
        reached = [0] * size
        number = [0] * size  # in the order of finding, from 1
        lowest = [0] * size
        circle: list[int] = []
        on_circle = [False] * size
        count = 0
        for root in range(size):
            walk = [] if number[root] else [(root, iter(self._goes_on(root)))]
            while walk:
                place, following = walk[-1]
                if not number[place]:
                    count += 1
                    number[place] = lowest[place] = count
                    reached[place] = 1 << place
                    circle.append(place)
                    on_circle[place] = True
                child = next(following, None)
                if child is None:
                    walk.pop()
                    if lowest[place] == number[place]:
                        while True:
                            member = circle.pop()
                            on_circle[member] = False
                            reached[member] = reached[place]
                            if member == place:
                                break
                    if walk:
                        parent = walk[-1][0]
                        lowest[parent] = min(lowest[parent], lowest[place])
                        reached[parent] |= reached[place]
                elif not number[child]:
                    walk.append((child, iter(self._goes_on(child))))
                else:
                    reached[place] |= reached[child]
                    if on_circle[child]:
                        lowest[place] = min(lowest[place], number[child])
        self.cost += 10 * size
        self._reached = reached
        return reached


Fragment = list[_Op]


class _Parser:
    """Recursive descent; every rule returns instructions that can stand anywhere."""

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

    def _check_size(self, size: int) -> None:
        if size > MAX_PROGRAM:
            raise self._wrong("it is too large")

    def _alternatives(self) -> Fragment:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._wrong("it is nested too deeply")
        ignore_case = self.ignore_case
        branches = [self._sequence()]
        size = len(branches[0])
        while self._skip("|"):
            branches.append(self._sequence())
            size += len(branches[-1]) + 2
            self._check_size(size)
        self.ignore_case = ignore_case  # a flag set inside a group ends with it
        self.depth -= 1
        whole: Fragment = []
        for branch in branches[:-1]:
            whole.append(_Op(_SPLIT, 1, len(branch) + 2))
            whole += branch
            whole.append(_Op(_JUMP, size - len(whole)))
        whole += branches[-1]
        return whole

    def _sequence(self) -> Fragment:
        whole: Fragment = []
        while self._peek() not in ("", "|", ")"):
            whole += self._repeated()
            self._check_size(len(whole))
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
        whole = fragment * least
        if most is None:
            whole += [_Op(_SPLIT, 1, size + 2), *fragment, _Op(_JUMP, -size - 1)]
        else:
            end = len(whole) + (most - least) * (size + 1)
            for _ in range(most - least):
                whole.append(_Op(_SPLIT, 1, end - len(whole)))
                whole += fragment
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
        return frozenset(form for char in chars for form in self._forms(char)).__contains__

    def _forms(self, char: str) -> set[str]:
        return {char, char.lower(), char.upper()} if self.ignore_case else {char}

    def _class(self) -> Test:
        negated = self._skip("^")
        singles: set[str] = set()
        tests: list[Test] = [singles.__contains__]
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
            high = self._end_of_range(char)
            if high == char:
                singles |= self._forms(char)
            else:
                tests.append(self._range(char, high))
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

    def _end_of_range(self, low: str) -> str:
        high = low
        if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            high = self._take()
            if high == "\\":
                high = self._literal(self._take())
        if high < low:
            raise self._wrong("invalid character class range")
        return high

    def _range(self, low: str, high: str) -> Test:
        if self.ignore_case:
            return lambda each: any(low <= form <= high for form in (each, each.lower(), each.upper()))
        return lambda each: low <= each <= high
