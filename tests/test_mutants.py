"""Mutation testing: the faults that are planted, whom they meet, and the table of rooms."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import mutant_rooms  # noqa: E402
import mutants  # noqa: E402
import mutations  # noqa: E402
import warm  # noqa: E402

MOST_KNOWN = 4
"""How many known survivors there are. It may only shrink."""
CODE = '''
"""No 5 here."""
LIMIT = 5
def one(self, a: int | None = 3) -> bool:
    """Nor 7 here."""
    log.debug("%d", 7)
    assert a != 8
    if not a:
        raise ValueError(f"{a + 1}")
    for each in self.all:
        self.count += each
    self.last = call(a, each, key=True)
    return (a < 2 and each is not None)  # a < 9
'''


def planted(code: str, file: str = "kafkacore/x.py") -> dict[str, list[str]]:
    """The faults of a file, by operator."""
    found: dict[str, list[str]] = {}
    for mutant in mutations.mutants_of(code.encode(), file):
        if file.endswith(".py"):
            ast.parse(mutant.plant(code.encode()))
        found.setdefault(mutant.operator, []).append(mutant.becomes)
    return found


def test_the_faults_of_python_code() -> None:
    assert planted(CODE) == {
        "number": [
            *("LIMIT = 4", "LIMIT = 6"),
            *(f"def one(self, a: int | None = {number}) -> bool:" for number in (2, 4)),
            *(f"return (a < {number} and each is not None) # a < 9" for number in (1, 3)),
        ],
        "condition negated": ["if (a):"],
        "statement deleted": ["pass", "pass", "pass"],
        "first element only": ['for each in __import__("itertools").islice(self.all, 1):'],
        "arithmetic": ["self.count -= each"],
        "arguments swapped": ["self.last = call(each, a, key=True)"],
        "argument dropped": ["self.last = call(a, each)"],
        "True, False": ["self.last = call(a, each, key=False)"],
        "comparison": ["return (a <= 2 and each is not None) # a < 9", "return (a < 2 and each is None) # a < 9"],
        "and, or": ["return (a < 2 or each is not None) # a < 9"],
    }


def test_every_file_of_the_package_has_a_room() -> None:
    package = ROOT / "kafkacore"
    files = {str(path.relative_to(package)) for path in package.rglob("*") if path.suffix in mutants.SUFFIXES}
    assert mutant_rooms.owners(package).keys() == files
    assert all(mutant_rooms.EXCEPTIONS.values())


def test_every_pattern_of_the_table_is_of_use() -> None:
    package = ROOT / "kafkacore"
    owners = mutant_rooms.owners(package)
    for name, room in mutant_rooms.ROOMS.items():
        for pattern in room.files:
            assert name in {owners[str(path.relative_to(package))] for path in package.glob(pattern)}, (name, pattern)
        for pattern in room.tests:
            assert any((ROOT / "tests").glob(pattern)), (name, pattern)


def test_the_weekly_run_names_every_room() -> None:
    workflow = (ROOT / ".github" / "workflows" / "mutants.yml").read_text()
    named = [room for rooms in re.findall(r"rooms: ([^,]+),", workflow) for room in rooms.split()]
    assert sorted(named) == sorted(mutant_rooms.ROOMS)


def test_the_lines_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    diff = "+++ b/kafkacore/a.py\n@@ -1,2 +3,2 @@ x\n+x\n+y\n@@ -9 +11 @@\n+z\n@@ -20,3 +21,0 @@\n+++ b/kafkacore/b.h\n@@ -0,0 +1 @@\n+a\n"
    monkeypatch.setattr(mutants, "git", lambda *_: diff)
    assert mutants.changed_lines("main") == {"kafkacore/a.py": {3, 4, 11}, "kafkacore/b.h": {1}}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, outcomes: tuple[str, ...] = ()) -> int:
    """The command, with the outcomes that mutants shall have."""

    def results_of(room: str, chosen: list[mutations.Mutant], *_: Any) -> list[mutants.Result]:
        return [mutants.Result(room, each, outcome, 1, "") for each, outcome in zip(chosen, outcomes, strict=True)]

    monkeypatch.setattr(sys, "argv", ["mutants", *arguments])
    monkeypatch.setattr(mutants, "results_of", results_of)
    return mutants.main()


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(("killed", "incompetent"), 0), (("killed", "survived"), 1), (("not covered", "killed"), 1)],
    ids=["none", "a survivor", "a line without a test"],
)
def test_the_gate_lets_no_survivor_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcomes: tuple[str, ...], code: int
) -> None:
    assert run(monkeypatch, "--room", "metrics", "--count", "2", outcomes=outcomes) == 0
    assert run(monkeypatch, "--room", "metrics", "--count", "2", "--gate", outcomes=outcomes) == code
    assert f"metrics{2:21}" in capsys.readouterr().err


def test_known_survivors_are_mutants_still_and_shrink_in_number() -> None:
    known = mutants.known_survivors()
    assert len(known) == MOST_KNOWN
    for each in known:
        names = {mutant.name for mutant in mutations.mutants_of((ROOT / each.file).read_bytes(), each.file)}
        assert each[:3] in names, each


WARM = b"""
class Engine:
    def step(self):
        return [each for each in (1, 2)]
    def other(self):
        return 1
def outer():
    def inner():
        return 5
    return inner()
"""


@pytest.mark.parametrize(
    ("old", "new", "planted", "found"),
    [
        (b"return 1", b"return 2", True, ([1, 2], 2, 5)),
        (b"return 5", b"return 6", True, ([1, 2], 1, 6)),
        (b"(1, 2)", b"(1, 3)", True, ([1, 3], 1, 5)),
        (b"def other", b"def another", False, ([1, 2], 1, 5)),
    ],
)
def test_functions_that_are_imported_get_the_changed_code(
    tmp_path: Path, old: bytes, new: bytes, planted: bool, found: tuple[Any, ...]
) -> None:
    file = str(tmp_path / "x.py")
    names: dict[str, Any] = {}
    exec(compile(WARM, file, "exec"), names)
    assert warm.plant(file, WARM, WARM.replace(old, new)) is planted
    engine = names["Engine"]()
    assert (engine.step(), engine.other(), names["outer"]()) == found
