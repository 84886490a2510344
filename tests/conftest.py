"""Settings for all tests."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import settings

# A busy machine is not a failure, so no example has a deadline.
settings.register_profile("kafkacore", deadline=None)
settings.load_profile("kafkacore")

# What a shell starts in the background ignores Ctrl+C, and so would everything that is tested here.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, tests/interop counts as one file: its tests share one Apache Kafka, which would start once per worker.

    Groups (`--dist loadgroup`) would say the same, but pytest 9.2 drops the suffix by which xdist 3.8 finds them.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneKafka(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/interop" if nodeid.startswith("tests/interop/") else super()._split_scope(nodeid)

    return OneKafka(config, log)
