"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# pytest and Python keep what they compiled, also where the environment forbids it. Else each worker compiles all tests, and each program
# that tests start compiles the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from hypothesis import HealthCheck, settings  # noqa: E402

if TYPE_CHECKING:
    from tests.decode.registry_server import RegistryServer
    from tests.kit.kdc import Realm

pytest_plugins = ["tests.kit.faces", "tests.quarantine", "tests.skips"]

# A busy machine is not a failure: no example has a deadline, and examples may be drawn slowly. CI tries the same examples in each run: what
# it says is about the commit. All other runs look for new ones.
SAME = "KAFKACORE_SAME_EXAMPLES" in os.environ
settings.register_profile("kafkacore", deadline=None, derandomize=SAME, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kafkacore")

# What a shell starts in the background ignores Ctrl+C, and so would everything that is tested here.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests of tests/interop in files that need no Kafka, or one of their own.
APART = (
    "admin_answers",
    "broker_killed",
    "group_answers",
    "log_files",
    "metadata_log_tool",
    "odd_requests",
    "stored_definitions",
    "three_brokers",
    "transactions_alike",
)
# Those that wait longest. They have a Kafka of their own, so that two workers can wait.
PATIENT = ("exactly_once_copy", "group_positions", "groups_of_many_clients", "modern_members", "read_committed_members", "two_phase_commit")
# Tests of tests/spark/live that start Sparks of their own. The longest: the killed driver, which starts nine.
OWN_SPARK = ("killed", "deployments", "pipeline_example")


def unit_of(nodeid: str) -> str:
    """What a worker takes whole: a file, or all those that share a Kafka or a Spark session, which would start once per worker."""
    file = nodeid.partition("::")[0]
    room, name = Path(file).parent.name, Path(file).stem.removeprefix("test_")
    if room == "interop":
        return file if name in APART else "tests/interop, patient" if name in PATIENT else "tests/interop"
    if room == "live":
        return nodeid if name in OWN_SPARK else file if name == "pipeline_remote" else "tests/spark/live"
    return file


def weight_of(item: pytest.Item) -> int:
    """About how long a test takes."""
    if item.get_closest_marker("spark"):
        return 1_000 if item.name == "test_a_driver_killed_at_every_step" else 100
    return 20 if item.get_closest_marker("slow") or item.get_closest_marker("kafka") else 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, units are files, but for those that share a Kafka or a Spark session.

    Groups (`--dist loadgroup`) would say the same, but pytest 9.2 drops the suffix by which xdist 3.8 finds them.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneKafka(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False  # by time, not by number: the order of `pytest_collection_modifyitems`
    return OneKafka(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "night: repeats at length what its neighbours show, only with KAFKACORE_NIGHT=1")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("KAFKACORE_NIGHT") != "1" and (left_out := [item for item in items if item.get_closest_marker("night")]):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("night") is None]
    _longest_first(config, items)


def _longest_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers begin with what has many slow tests: none of it is left for the end, when the others have nothing more to do."""
    if not hasattr(config, "workerinput"):
        return
    weights: Counter[str] = Counter()
    for item in items:
        weights[unit_of(item.nodeid)] += weight_of(item)
    items.sort(key=lambda item: (-weights[unit_of(item.nodeid)], str(item.path)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Figures that tests give by `record_property`, wherever they ran."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties if report.when == "call" else ():
            terminalreporter.write_line(f"{name}: {value}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: the collector would look at more and more of it, and find nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """All that was imported stays: the collector need not look at it again, half a second a time."""
    _close_pairs_of_kafka_python()
    gc.collect()
    gc.freeze()


def _close_pairs_of_kafka_python() -> None:
    """A client of kafka-python that its constructor refused leaves a socket pair behind, which the collector would find in another test."""
    module = sys.modules.get("kafka.net.selector")
    if module is None:
        return
    begin = module.NetworkSelector.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        weakref.finalize(self, _close, self._wakeup_r, self._wakeup_w)

    module.NetworkSelector.__init__ = init


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        each.close()


@pytest.fixture
def registry_server() -> Iterator[RegistryServer]:
    from tests.decode.registry_server import RegistryServer

    server = RegistryServer()
    yield server
    server.close()


@pytest.fixture
def other_registry() -> Iterator[RegistryServer]:
    from tests.decode.registry_server import RegistryServer

    server = RegistryServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    """A Kerberos realm with a KDC of its own, which this process, and what it starts, goes to."""
    from tests.kit.kdc import KDC_REASON, Realm

    if KDC_REASON is not None:
        pytest.skip(KDC_REASON)
    with Realm() as opened:
        yield opened


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
