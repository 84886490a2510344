"""Which topics the expressions of all groups of a broker match.

Expressions are kept compiled, with the topics that each was compared with: when topics come, only those are looked at. Looking happens in
the broker's thread, so all expressions together get a share of its time: a burst, and then so much per millisecond. What is not found out
by then is not known yet. The caller asks again a little later, and the work goes on where it stopped, even within a name.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager.maybeUpdateRegularExpressions, which has a thread of its own for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from kafkacore.broker.groups.topic_regex import Matching, Regex

BURST_COST = 100_000
"""What may be spent at once: about 10 ms."""
COST_PER_MS = 2_000
"""What is added per millisecond, to go on with: about a fifth of the thread's time."""
MAX_EXPRESSIONS = 64
ASK_AGAIN_MS = 5
"""When to ask again what was not known yet."""
_COST_OF_NAME = 5
_NAMES_PER_COST = 4  # of a set that is compared with another


class _Expression:
    """An expression and what is known of it.

    Attributes:
        regex: compiled.
        version: of the topics that are being looked at.
        matched, others: the topics that were.
        left: those that were not.
        matching: how far the last one of these is.
        topics: the answer, if none is left.
    """

    __slots__ = ("left", "matched", "matching", "others", "regex", "topics", "version")

    def __init__(self, regex: Regex) -> None:
        self.regex = regex
        self.version = -1
        self.matched: set[str] = set()
        self.others: set[str] = set()
        self.left: list[str] = []
        self.matching: Matching | None = None
        self.topics: frozenset[str] | None = None


class RegexResolver:
    """Finds the topics of expressions, within a budget. One for all groups of a broker."""

    def __init__(self, now_ms: Callable[[], int], names: Callable[[], Iterable[str]]) -> None:
        """Knows nothing yet.

        Args:
            now_ms: the time, by which the budget grows.
            names: all topics.
        """
        self._now_ms = now_ms
        self._names = names
        self._expressions: OrderedDict[str, _Expression] = OrderedDict()
        self._budget = BURST_COST
        self._budget_ms = now_ms()

    def check(self, pattern: str) -> None:
        """Compiles an expression that a member wants.

        Raises:
            InvalidRegularExpression: it cannot be compiled.
        """
        self._expression(pattern)

    def topics(self, pattern: str, version: int) -> frozenset[str] | None:
        """The topics whose whole names match.

        Args:
            pattern: a valid expression.
            version: of the topics; the same one as long as they do not change.

        Returns:
            None if they are not known yet: ask again after `ASK_AGAIN_MS`.
        """
        expression = self._expression(pattern)
        if expression.version == version and expression.topics is not None:
            return expression.topics
        now_ms = self._now_ms()
        self._budget = min(self._budget + max(now_ms - self._budget_ms, 0) * COST_PER_MS, BURST_COST)
        self._budget_ms = now_ms
        if self._budget <= 0:
            return None
        if expression.version != version:
            self._begin(expression, version)
        left, regex = expression.left, expression.regex
        while left:
            if self._budget <= 0:
                return None
            name, before = left[-1], regex.cost
            found = regex.go_on(name, expression.matching or regex.start, self._budget)
            self._budget -= regex.cost - before + _COST_OF_NAME
            if isinstance(found, Matching):
                expression.matching = found
                return None
            expression.matching = None
            left.pop()
            (expression.matched if found else expression.others).add(name)
        expression.topics = frozenset(expression.matched)
        return expression.topics

    def _expression(self, pattern: str) -> _Expression:
        expression = self._expressions.get(pattern)
        if expression is None:
            expression = _Expression(Regex(pattern))
            if len(self._expressions) >= MAX_EXPRESSIONS:
                self._expressions.popitem(last=False)
            self._expressions[pattern] = expression
            self._budget -= expression.regex.cost
        else:
            self._expressions.move_to_end(pattern)
        return expression

    def _begin(self, expression: _Expression, version: int) -> None:
        """The topics have changed: looks at those that are new, forgets those that were deleted."""
        names = set(self._names())
        expression.version, expression.topics, expression.matching = version, None, None
        expression.matched &= names
        expression.others &= names
        expression.left = list(names - expression.matched - expression.others)
        self._budget -= len(names) // _NAMES_PER_COST
