"""`kafkacore perf produce` and `perf consume` against an embedded broker: the figures belong together; bad input is one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition, protocol
from kafkacore.cli import perf_clients
from kafkacore.cli.perf_report import MIB, Progress, Samples
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.commands import Commands
from tests.kit.rows import each_row

cluster = embedded()


@pytest.fixture
def topic(at: str, request: pytest.FixtureRequest) -> str:
    """A topic with 3 partitions, of this test alone."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics([NewTopic(name, 3)]).check()
    return name


def values_in(at: str, topic: str) -> list[bytes]:
    with KafkaConsumer(bootstrap_servers=at) as consumer:
        found = []
        for partition in range(3):
            tp = TopicPartition(topic, partition)
            for columns in consumer.read_range(tp, 0, consumer.end_offsets([tp])[tp]):
                found += columns.values.to_pylist()
        return found


def check_rates(shown: dict[str, Any], records: int, size: int) -> None:
    assert (shown["records"], shown["bytes"]) == (records, size)
    assert shown["records_per_s"] == pytest.approx(records / shown["seconds"], rel=0.01)
    assert shown["mb_per_s"] == pytest.approx(size / shown["seconds"] / MIB, rel=0.01, abs=0.001)


def check_times(times: dict[str, float]) -> None:
    assert list(times) == ["mean", "p50", "p95", "p99", "p99_9", "max"]
    assert 0 <= times["p50"] <= times["p95"] <= times["p99"] <= times["p99_9"] <= times["max"]


@pytest.mark.parametrize("columns", [[], ["--columns"]])
def test_what_is_produced_is_consumed(columns: list[str], at: str, topic: str, cli: Commands) -> None:
    words = ["-n", "25000", "--record-size", "70", "--json", "-X", "acks=1", "-X", "compression.type=lz4", *columns]
    sent = json.loads(cli("perf", "produce", topic, *words))
    check_rates(sent, 25_000, 25_000 * 70)
    check_times(sent["latency_ms"])
    assert sent["latency_samples"] == (3 if columns else 25_000)
    values = values_in(at, topic)
    assert len(values) == 25_000 and {len(value) for value in values} == {70}
    assert len(set(values)) == 1000  # not one value over and over, which would compress too well
    assert re.fullmatch(rb"[A-Z]+", values[0])

    read = cli.json("perf", "consume", topic, "-n", "25000", *columns)
    check_rates(read, 25_000, 25_000 * 70)
    check_times(read["poll_ms"])
    check_times(read["record_age_ms"])
    assert (read["group"], read["join_ms"]) == (None, 0.0)
    assert read["fetches"] > 0 and 0 <= read["fetch_latency_avg_ms"] <= read["fetch_latency_max_ms"]  # whole ms: 0 is possible
    assert read["record_age_ms"]["max"] < 600_000


def test_a_group_joins_and_commits(at: str, topic: str, cli: Commands) -> None:
    cli("perf", "produce", topic, "-n", "900", "--json")
    read = cli.json("perf", "consume", topic, "-g", topic, "-n", "900")
    assert read["join_ms"] > 0
    assert read["join_ms"] + read["fetch_ms"] == pytest.approx(read["seconds"] * 1000, abs=0.1)
    assert read["fetch_records_per_s"] == pytest.approx(900 / read["fetch_ms"] * 1000, rel=0.05)
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        assert sum(found.offset for found in admin.list_group_offsets(topic).values() if found) == 900
    cli("perf", "consume", topic, "-g", topic, "-n", "1", "--timeout", "0.3", status=1)  # it has read all
    assert cli.err == "kafkacore: 0 of 1 record: nothing came for 0.3 s\n"


def test_no_more_than_asked_and_all_without_a_number(topic: str, cli: Commands) -> None:
    cli("perf", "produce", topic, "-n", "2000", "--json")
    assert cli.json("perf", "consume", topic, "-n", "1234")["records"] == 1234
    read = cli.json("perf", "consume", topic, "--timeout", "3")
    assert read["records"] == 2000
    assert read["seconds"] * 1000 == pytest.approx(read["fetch_ms"], abs=0.1)
    assert cli.json("perf", "consume", topic, "--from", "latest", "--timeout", "0.2")["records"] == 0


def test_payloads_of_a_file(at: str, topic: str, tmp_path: Path, cli: Commands) -> None:
    (tmp_path / "payloads").write_bytes(b"one\ntwo\n\nthree\n")
    assert cli.json("perf", "produce", topic, "-n", "7", "--payload-file", str(tmp_path / "payloads"))["bytes"] == 2 * 11 + 3
    assert sorted(values_in(at, topic)) == sorted([b"one", b"two", b"three"] * 2 + [b"one"])
    (tmp_path / "payloads").write_bytes(b"a\tb\tc\nd")
    words = ["--payload-file", str(tmp_path / "payloads"), "--payload-delimiter", "\\t", "--columns", "--json"]
    cli("perf", "produce", topic, "-n", "3", *words)
    assert set(values_in(at, topic)) == {b"one", b"two", b"three", b"a", b"b", b"c\nd"}


def test_slices_keep_to_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    class Time:
        now = 50.0

        @classmethod
        def monotonic(cls) -> float:
            return cls.now

        @classmethod
        def sleep(cls, seconds: float) -> None:
            assert seconds > 0
            cls.now += seconds

    monkeypatch.setattr(perf_clients, "time", Time)
    sent = [(Time.now, first, count) for first, count in perf_clients.paced(5000, 1000, 1000, 50.0)]
    assert sum(count for _, _, count in sent) == 5000
    assert all(now - 50.0 >= first / 1000 - 1e-9 for now, first, _ in sent)  # none before its time
    assert Time.now == pytest.approx(55.0, abs=0.02)
    Time.now = 60.0
    assert sum(count for _, count in perf_clients.paced(25_000, 0, 1000, 60.0)) == 25_000
    assert Time.now == 60.0
    Time.now = 70.0
    slow = [(Time.now, count) for _, count in perf_clients.paced(3, 0.5, 1000, 70.0)]
    assert slow == [(70.0, 1), (72.0, 1), (74.0, 1)]


def test_percentiles_of_the_samples_and_rates_of_intervals() -> None:
    samples = Samples()
    assert samples.summary() == {}
    for ms in range(1, 1001):
        samples.add(float(ms))
    assert samples.summary() == {"mean": 500.5, "p50": 500.5, "p95": 950.05, "p99": 990.01, "p99_9": 999.001, "max": 1000.0}

    progress = Progress(0.0)
    progress.points = [(0.0, 0), (0.5, 100), (0.5, 100), (1.0, 400)]
    assert progress.rates() == [(0.5, 200.0), (1.0, 600.0)]


def test_output_for_people_and_pictures(topic: str, tmp_path: Path, cli: Commands) -> None:
    sent = tmp_path / "new" / "sent.png"
    shown = cli("perf", "produce", topic, "-n", "3000", "--throughput", "3000", "--plot", str(sent))
    took = re.search(r"3,000 records, 300,000 bytes in ([\d.]+) s: [\d,]+ records/s", shown)
    assert took and float(took[1]) >= 0.98  # not faster than --throughput says
    assert "to the acknowledgement (3,000 samples), ms: mean" in shown and "p99.9" in shown
    assert "records/s over time" in shown
    shown = cli("perf", "consume", topic, "-n", "3000", "-g", topic)
    assert "joined in" in shown and "age of a record" in shown
    assert sent.read_bytes()[:4] == b"\x89PNG"


@each_row(
    ("words", "status", "said"),
    [
        (["produce", "t", "-n", "0"], 2, "--num-records"),
        (["produce", "t", "--record-size", "0"], 2, "--record-size"),
        (["produce", "t", "--throughput", "-2"], 2, "--throughput"),
        (["produce", "t", "--payload-delimiter", ""], 2, "--payload-delimiter"),
        (["produce", "t", "--payload-delimiter", "\\x"], 2, "--payload-delimiter"),
        (["produce", "t", "--payload-file", "no-such-file"], 1, "no-such-file"),
        (["produce", "t", "--payload-file", "/dev/null"], 1, "there is no payload in it"),
        (["produce", "t", "-X", "acks=7"], 2, "acks"),
        (["produce", "t", "-n", "3", "--record-size", "2000000"], 1, "max_request_size"),
        (["consume", "t", "--from", "5"], 2, "--from"),
        (["consume", "t", "-n", "0"], 2, "--num-records"),
        (["consume", "t", "--timeout", "0"], 2, "--timeout"),
        (["consume", "perf-no-such-topic"], 1, "perf-no-such-topic"),
        (["consume", "t", "-g", ""], 2, "group_id is empty"),
    ],
)
def test_bad_input_is_one_clear_line(at: str, words: list[str], status: int, said: str, cli: Commands) -> None:
    with KafkaProducer(bootstrap_servers=at) as producer:
        producer.partitions_for("t")
    cli("perf", *words, status=status)
    (line,) = [line for line in cli.err.splitlines() if "warning" not in line]
    assert line.startswith("kafkacore: ") and said in line


@each_row("columns", [[], ["--columns"]])
def test_records_that_are_refused_are_a_failure(
    columns: list[str], cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch, cli: Commands
) -> None:
    monkeypatch.setattr(perf_clients, "SAMPLED", 1)  # also those whose latency is not taken

    def refuse(request: protocol.ProduceRequest) -> protocol.ProduceResponse:
        (each,) = request.topic_data
        code = Code.TOPIC_AUTHORIZATION_FAILED
        refused = [protocol.PartitionProduceResponse(index=part.index, error_code=code) for part in each.partition_data]
        answer = protocol.TopicProduceResponse(name=each.name, topic_id=each.topic_id, partition_responses=refused)
        return protocol.ProduceResponse(responses=[answer])

    cluster.control("Produce", refuse)
    try:
        assert "TOPIC_AUTHORIZATION_FAILED" in cli.fails("perf", "produce", topic, "-n", "3000", *columns)
    finally:
        cluster.control("Produce", None)
