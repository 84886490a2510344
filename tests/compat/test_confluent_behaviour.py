"""The same programs over confluent-kafka and over kafkacore.compat.confluent see the same; librdkafka's defaults and hashes."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from types import ModuleType

import pytest

from kafkacore.compat import confluent as ours
from kafkacore.compat.confluent.client_settings import ALIASES, CONSUMER_SETTINGS, DEFAULTS, PRODUCER_SETTINGS
from kafkacore.testing import EmbeddedCluster
from tests.compat import confluent_clients, confluent_details, confluent_serving
from tests.compat.both_packages import Servers, compare_programs
from tests.compat.confluent_face import Face
from tests.kit.clusters import embedded
from tests.kit.rows import each_row

real = pytest.importorskip("confluent_kafka", minversion="2.16")

cluster = embedded(config={"group_min_session_timeout_ms": 500, "auto_create_topics_enable": False})


def see_the_same(subtests: pytest.Subtests, subject: ModuleType, cluster: EmbeddedCluster) -> None:
    """On a real Kafka test_confluent_admin.py does it, which starts one."""
    packages = ("kafkacore.compat.confluent", "confluent_kafka")
    compare_programs(subtests, [subject], Face, packages, Servers("embedded", cluster.bootstrap_servers), set())


def test_programs_of_clients_see_the_same(cluster: EmbeddedCluster, subtests: pytest.Subtests) -> None:
    see_the_same(subtests, confluent_clients, cluster)


def test_programs_of_what_poll_serves_see_the_same(cluster: EmbeddedCluster, subtests: pytest.Subtests) -> None:
    see_the_same(subtests, confluent_serving, cluster)


def test_programs_of_details_see_the_same(cluster: EmbeddedCluster, subtests: pytest.Subtests) -> None:
    see_the_same(subtests, confluent_details, cluster)


def librdkafka() -> dict[str, str]:
    """Its settings with their defaults."""
    (path,) = Path(str(real.__file__)).parent.parent.glob("confluent_kafka.libs/librdkafka*")
    library = ctypes.CDLL(str(path))
    found: dict[str, str] = {}
    for kind in ("rd_kafka_topic_conf", "rd_kafka_conf"):
        new, dump = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_dump")
        new.restype, dump.restype = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
        dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        count = ctypes.c_size_t()
        pairs = dump(new(), ctypes.byref(count))
        found |= {pairs[i].decode(): pairs[i + 1].decode() for i in range(0, count.value, 2)}
    return found


def test_every_setting_of_librdkafka_is_in_the_tables_with_its_default() -> None:
    known = librdkafka()
    hidden = {"test.mock.num.brokers", "test.mock.broker.rtt"}
    names = {ALIASES.get(name, name) for name in known} - hidden
    assert names <= set(PRODUCER_SETTINGS)
    assert names <= set(CONSUMER_SETTINGS)
    for name, default in DEFAULTS.items():
        if default is not None and name in known and name != "auto.commit.interval.ms":
            assert str(default).lower() == known[name].lower(), name


@each_row("name", ["murmur2", "consistent", "fnv1a"])
def test_partitions_of_keys(name: str) -> None:
    keys = [b"key-%d" % nth for nth in range(500)] + [b""]
    for key, count in itertools.product(keys, (1, 7, 100)):
        assert getattr(ours, name)(key, count) == getattr(real, name)(key, count)
