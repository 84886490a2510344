"""Each numbered rule at the head of a file of the package names the tests that go red when the rule is broken.

    3. A send that finds a line joins it. [test_a_send_joins_the_line]

The name is that of a test function, or of a state machine's test case, which one file of tests/ alone has. The head of a Python file is
its docstring, that of a compiled one the comment or docstring that it begins with.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [path for suffix in ("py", "pyx", "pxd", "pxi") for path in sorted((ROOT / "kafkacore").rglob(f"*.{suffix}"))]


class Rule(NamedTuple):
    """One numbered rule: where it stands, what it says, the tests that it names."""

    file: str
    number: int
    text: str
    tests: list[str]

    def __str__(self) -> str:
        return f"{self.file}, rule {self.number}"


def head_of(path: Path) -> str:
    text = path.read_text()
    docstring = re.match(r'[rR]?"""(.*?)"""', text, re.DOTALL)
    return docstring[1] if docstring else re.match(r"(#.*\n|\n)*", text)[0].replace("#", "")


def rules_of(file: str, head: str) -> Iterator[Rule]:
    """The rules of one head. A rule goes on until the next number or an empty line."""
    for match in re.finditer(r"^ *(\d+)\. ((?:.+\n?)+?)(?=^ *\d+\. |^\s*$|\Z)", head, re.MULTILINE):
        text = " ".join(match[2].split())
        named = re.search(r" \[((?:[tT]est\w*(?:, )?)+)\]$", text)
        yield Rule(file, int(match[1]), text, named[1].split(", ") if named else [])


@cache
def rules() -> list[Rule]:
    return [rule for path in SOURCES for rule in rules_of(str(path.relative_to(ROOT / "kafkacore")), head_of(path))]


@cache
def places() -> dict[str, set[str]]:
    """The files that have a test of each name: functions, methods, and `TestQueue = Queue.TestCase`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("*.py"):
        for function, cases in re.findall(r"^ *(?:async )?def (test_\w+)|^(Test[\w, ]*) = ", path.read_text(), re.MULTILINE):
            for name in [function] if function else cases.split(", "):
                found[name].add(path.name)
    return found


def test_each_rule_names_a_test():
    assert len(rules()) > 300
    assert [str(rule) for rule in rules() if not rule.tests] == []


def test_each_test_that_a_rule_names_is_in_one_file():
    wrong = {f"{rule}: {name}": sorted(places()[name]) for rule in rules() for name in rule.tests if len(places()[name]) != 1}
    assert wrong == {}


def test_how_a_rule_is_read():
    head = "Rules:\n\n1. One thing. [test_one]\n2. Two lines of\n   text. [test_two,\n  TestThree]\n3. No [list] of tests.\n\nSource: 4.\n"
    assert [tuple(rule) for rule in rules_of("x.py", head)] == [
        ("x.py", 1, "One thing. [test_one]", ["test_one"]),
        ("x.py", 2, "Two lines of text. [test_two, TestThree]", ["test_two", "TestThree"]),
        ("x.py", 3, "No [list] of tests.", []),
    ]
