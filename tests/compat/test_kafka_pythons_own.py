"""kafka-python's own integration tests, as its source distribution has them, over kafkacore.compat.kafka.

pip fetches the distribution into the cache directory; its tests run unmodified in a process of their own, where `import kafka` gives
kafkacore's names (kafka_alias.py). What is left out has its reason here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.both_packages import ALL, CLUSTERS, cluster_of

VERSION = "3.0.12"
HERE = Path(__file__).parent
FILES = ("test_producer_integration.py", "test_consumer_integration.py", "test_admin_integration.py")
INSIDE = "looks into kafka-python's own objects: "
LEFT_OUT = {
    "test_consumer": INSIDE + "consumer._client.cluster",
    "test_kafka_version_infer": "api_version is the release that kafka-python takes a broker for; the engine asks for versions of requests",
    "test_kafka_consumer_unsupported_encoding": INSIDE + "patches kafka.codec.has_gzip",
    "test_group": INSIDE + "consumer._coordinator.heartbeat",
    "test_heartbeat_thread": INSIDE + "consumer._coordinator.heartbeat",
    "test_describe_configs_broker_resource_returns_configs": INSIDE + "admin._client.least_loaded_node()",
    "test_describe_configs_mixed_resources_returns_configs": INSIDE + "admin._client.least_loaded_node()",
    "test_describe_log_dirs": INSIDE + "admin._manager.cluster.brokers()",
    "test_alter_partition_reassignments": INSIDE + "admin._manager.cluster.brokers()",
    "test_create_partitions": "assigns replicas to broker 0, and the brokers here begin at 1",
    "test_kafka_consumer_offsets_for_time_old": "for brokers before 0.10.1, which it skips itself",
}
"""Tests by name. test_sasl_integration.py and test_ssl_integration.py start brokers by Kafka's shell scripts, which are not there."""
SETTINGS: dict[str, Any] = {
    "group_min_session_timeout_ms": 500,
    "num_partitions": 4,
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
    "super_users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def source() -> Path:
    """The unpacked distribution."""
    root = os.environ.get("KAFKACORE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkacore"
    where = Path(root) / f"kafka-python-{VERSION}"
    unpacked = where / f"kafka_python-{VERSION}"
    if (where / "done").exists():
        return unpacked
    where.mkdir(parents=True, exist_ok=True)
    wanted = ["--no-deps", "--no-binary", ":all:", "--dest", str(where), f"kafka-python=={VERSION}"]
    fetched = subprocess.run([sys.executable, "-m", "pip", "download", *wanted], capture_output=True, text=True, timeout=300)
    if fetched.returncode:
        pytest.skip(f"kafka-python's source distribution cannot be fetched: {fetched.stderr.strip().splitlines()[-1]}")
    with tarfile.open(next(where.glob("*.tar.gz"))) as archive:
        archive.extractall(where, filter="data")
    (where / "done").touch()
    return unpacked


@pytest.fixture(scope="module", params=CLUSTERS if ALL else CLUSTERS[:1])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a cluster with an authorizer."""
    with cluster_of(request.param, **SETTINGS) as found:
        yield found.addresses


def run_its_tests(source: Path, servers: str, out: Path) -> dict[str, str]:
    """The tests that ran, each with what became of it: "" when it passed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent.parent)]),
        "KAFKA_PYTHON_SOURCE": str(source),
        "KAFKA_URI": f"kafka://{servers}",
        "KAFKA_VERSION": "4.3.1",
        "KAFKA_ROOT": str(source),
    }
    report = out / "report.xml"
    deselected = [f"--deselect=test/integration/{file}::{name}" for file in FILES for name in LEFT_OUT]
    options = ["-p", "kafka_alias", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(source), f"--junitxml={report}", "-q"]
    paths = [f"test/integration/{file}" for file in FILES]
    # kafka-python's repository sets no time limit; a hang shall show here and not at the end of the night
    command = [sys.executable, "-m", "pytest", *options, "--timeout=90", *deselected, *paths]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=900)
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, str] = {}
    for each in ElementTree.parse(report).iter("testcase"):
        failed = next((part for part in each if part.tag in ("failure", "error")), None)
        skipped = next((part for part in each if part.tag == "skipped"), None)
        if skipped is None:
            found[each.attrib["name"]] = "" if failed is None else f"{failed.attrib.get('message')}\n{failed.text}"
    return found


@pytest.mark.night  # programs over both packages (test_kafka_behaviour.py) are compared in each run
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_tests_pass(source: Path, cluster: str, tmp_path: Path) -> None:
    found = run_its_tests(source, cluster, tmp_path)
    failed = {name: why for name, why in found.items() if why}
    assert not failed, "\n\n".join(f"{name}: {why}" for name, why in failed.items())
    assert len(found) >= 40


def test_what_is_left_out_is_there(source: Path) -> None:
    text = "".join((source / "test" / "integration" / file).read_text() for file in FILES)
    assert [name for name in LEFT_OUT if f"def {name}(" not in text] == []
