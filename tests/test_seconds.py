"""The second of it: each collection in an engine's state names the test in which one of two unlike members fails (tests/seconds.toml)."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import seconds  # noqa: E402
from test_rules import places  # noqa: E402

from kafkacore.legacy.statistics import Counts  # noqa: E402

ENTRIES = {f"{file}:{name}": entry for file, rows in seconds.table().items() for name, entry in rows.items()}


def test_each_collection_has_a_row():
    held = [f"{file}:{name}" for file, names in seconds.engines().items() for name in names]
    assert len(held) > 300
    assert sorted(ENTRIES) == sorted(held)


def test_each_row_names_a_test_of_one_file_or_says_why_there_is_none():
    tests = {name: entry for name, entry in ENTRIES.items() if seconds.is_test(entry)}
    assert {name: sorted(places()[entry]) for name, entry in tests.items() if len(places()[entry]) != 1} == {}
    assert [name for name, entry in ENTRIES.items() if name not in tests and len(entry.split()) < 3] == []


SAMPLE = """
class Engine:
    constant = {}
    def __init__(self, given):
        self.by_name: dict[str, int] = {}
        self.waiting = deque()
        self.given, self.known = given, list(given)
        self.limits = {"a": 1}
        self.lists = defaultdict(list)
        local = []
    def later(self):
        self.more = []
@dataclass
class Row:
    parts: list[int] = field(default_factory=list)
    name: str = field(default="")
"""


def test_what_counts_as_a_collection():
    assert list(seconds.collections_of(SAMPLE)) == ["Engine.by_name", "Engine.waiting", "Engine.lists", "Row.parts"]


def test_two_at_once_are_seen_and_one_after_the_other_is_not():
    watcher, counts = seconds.Watcher(["legacy/statistics.py"]), Counts.__new__(Counts)
    watcher.test = "a test"
    watcher.register(counts)
    for size in (1, 0, 1):
        counts.topics = dict.fromkeys(range(size))
        watcher.look("topics")
    assert watcher.found == {}
    counts.topics[1] = None
    watcher.look("topics")
    assert watcher.found == {"legacy/statistics.py:Counts.topics": ["a test"]}
