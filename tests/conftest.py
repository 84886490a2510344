"""Settings for all tests."""

from __future__ import annotations

import gc
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A busy machine is not a failure, so no example has a deadline.
settings.register_profile("kafkacore", deadline=None)
settings.load_profile("kafkacore")

# What a shell starts in the background ignores Ctrl+C, and so would everything that is tested here.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests of tests/interop in files that need no Kafka, or one of their own.
APART = (
    "admin_answers",
    "broker_killed",
    "group_answers",
    "histories",
    "log_files",
    "metadata_log_tool",
    "odd_requests",
    "stored_definitions",
    "three_brokers",
    "transactions_alike",
)


def unit_of(file: str) -> str:
    """What a worker takes whole: a file, or all those that share a Kafka, which would start once per worker."""
    path = Path(file)
    return "tests/interop" if path.parent.name == "interop" and path.stem.removeprefix("test_") not in APART else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, units are files, but for those that share a Kafka.

    Groups (`--dist loadgroup`) would say the same, but pytest 9.2 drops the suffix by which xdist 3.8 finds them.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneKafka(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # by time, not by number: the order of `pytest_collection_modifyitems`
    return OneKafka(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers begin with what has many slow tests: none of it is left for the end, when the others have nothing more to do."""
    if not hasattr(config, "workerinput"):
        return
    weights: Counter[str] = Counter()
    for item in items:
        weights[unit_of(str(item.path))] += 20 if item.get_closest_marker("slow") or item.get_closest_marker("kafka") else 1
    items.sort(key=lambda item: (-weights[unit_of(str(item.path))], str(item.path)))


def pytest_collection_finish() -> None:
    """All that was imported stays: the collector need not look at it again, half a second a time."""
    gc.collect()
    gc.freeze()
