"""`kafkacore perf produce` and `perf consume` against an embedded broker: the figures belong together; bad input is one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition, protocol
from kafkacore.cli import perf_clients, perf_report
from kafkacore.cli.perf_report import MIB, Progress, Samples
from kafkacore.errors import Code, KafkaError
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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of both modules, moved by hand."""
    moved = SimpleNamespace(now=50.0)
    read = SimpleNamespace(monotonic=lambda: moved.now, time=lambda: 1_000 + moved.now)
    monkeypatch.setattr(perf_report, "time", read)
    monkeypatch.setattr(perf_clients, "time", read)
    return moved


def test_rates_and_how_they_went(clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(clock.now)
    for now, kept in ((50.125, False), (50.25, True), (50.4375, False), (50.5, True)):
        clock.now = now
        assert progress.reached(int(now * 4)) is kept
    assert progress.reached(203, last=True)
    assert progress.points == [(0.0, 0), (0.25, 201), (0.5, 202), (0.5, 203)]
    wanted = {"records": 900, "bytes": 3 << 20, "seconds": 4.1234568, "records_per_s": 218.3, "mb_per_s": 0.728}
    found = perf_report.throughput(900, 3 << 20, 4.1234567891)
    assert found == wanted | {"seconds": 4.123457}
    assert perf_report.throughput(1, 0, 0.0)["records_per_s"] == 1e9
    progress.points = [(0.0, 0), (1.0, 100), (2.0, 300), (3.0, 300), (4.0, 900)]
    perf_report.show_rate(found, progress)
    progress.points = [(float(n), n * (n - 1) // 2) for n in range(125)]
    perf_report.show_rate(found, progress)
    progress.points = progress.points[:3]
    perf_report.show_rate(found, progress)
    progress.points = [(0.0, 0), (1.0, 0), (2.0, 0), (3.0, 0)]
    perf_report.show_rate(found, progress)
    perf_report.show_times("x", {"p99_9": 1.5, "max": 2000.0})
    perf_report.show_times("y", {})
    line = "900 records, 3,145,728 bytes in 4.12 s: 218 records/s, 0.7 MB/s"
    over = "records/s over time, up to"
    assert capsys.readouterr().out.splitlines() == [
        *(line, f"{over} 600: ▁▃ █"),
        *(line, f"{over} 123:    ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇▇▇███"),
        *(line, line, f"{over} 0:    ", "x, ms: p99.9 1.50, max 2,000.00"),
    ]


def test_values_are_sent_in_turns(clock: SimpleNamespace) -> None:
    sizes = [
        (len(found), {len(each) for each in found}) for found in (perf_clients.payloads_of(None, b"", n) for n in (100, 100_000, 5 << 20))
    ]
    assert sizes == [(1_000, {100}), (41, {100_000}), (1, {5 << 20})]
    assert set(b"".join(perf_clients.payloads_of(None, b"", 100))) == set(range(ord("A"), ord("Z") + 1))
    sent: list[Any] = []
    asked: list[Any] = []
    producer: Any = SimpleNamespace(
        send=lambda topic, value, on_delivery=None: sent.append((topic, value, on_delivery)),
        send_many=lambda topic, values: sent.append((topic, list(values))) or SimpleNamespace(add_done_callback=asked.append),
    )
    sender = perf_clients.Sender(producer, "t", [b"a", b"b", b"c"], 0)
    sender.objects(4, 5, 2)
    assert [(topic, value) for topic, value, _ in sent] == [("t", each) for each in (b"b", b"c", b"a", b"b", b"c")]
    assert [reported is not None for *_, reported in sent] == [True, False, True, False, True]
    clock.now += 1.5
    errors = [KafkaError("first"), KafkaError("second")]
    for (*_, reported), error in zip(sent[::2], (None, *errors), strict=True):
        reported(None, error)
    assert (sender.latency.summary()["max"], len(sender.latency), sender.failed, sender.failures) == (1_500.0, 1, 2, errors[1:])
    for payloads, ours in (([b"aa", b"bb", b"cc"], [b"cc", b"aa", b"bb", b"cc"]), ([b"a", b"bb", b"c"], [b"c", b"a", b"bb", b"c"])):
        sender = perf_clients.Sender(producer, "t", payloads, 4)
        sender.columns(5, 4, 1)
        assert (sent[-1][0], [bytes(each) for each in sent[-1][1]]) == ("t", ours)
    clock.now += 0.5
    for failed in ({}, {3: errors[0], 4: errors[1]}):
        asked[-1](SimpleNamespace(result=lambda timeout, failed=failed: SimpleNamespace(errors=failed)))
    assert (sender.latency.summary()["max"], len(sender.latency), sender.failed, sender.failures) == (500.0, 1, 2, errors[:1])


def test_what_polls_bring(clock: SimpleNamespace) -> None:
    def record(value: bytes | None, key: bytes | None, age_ms: int) -> Any:
        return SimpleNamespace(value=value, key=key, timestamp_ms=1_050_000 - age_ms)

    given: list[Any] = []
    answers: list[Any] = [{"a": [record(b"abc", b"k", 9), record(None, None, 5)], "b": [record(b"d", None, -5)]}, {}, {}]

    def poll(wait_s: float, most: int) -> Any:
        given.append((wait_s, most))
        return answers.pop(0)

    consumer: Any = SimpleNamespace(poll=poll, config=SimpleNamespace(max_poll_records=500))
    reader = perf_clients.Reader(consumer, columns=False)
    assert [reader.poll(most, 0.5) for most in (501, 7, 0)] == [(3, 5), (0, 0), (0, 0)]
    assert given == [(0.5, 500), (0.5, 7), (0.5, 1)]
    assert (len(reader.polls), len(reader.ages), reader.ages.summary()["max"], reader.ages.summary()["mean"]) == (1, 2, 5.0, 2.5)

    class Batch(list[int]):
        keys = SimpleNamespace(lengths=np.array([-1, 2]))
        values = SimpleNamespace(lengths=np.array([3, -1]))
        timestamps_ms = (1_050_000, 1_049_000)

    def poll_batch(wait_s: float) -> list[Batch]:
        clock.now += wait_s
        return batches.pop(0)

    batches: list[list[Batch]] = [[Batch([0, 0]), Batch([0])], []]
    consumer = SimpleNamespace(poll_batch=poll_batch)
    reader = perf_clients.Reader(consumer, columns=True)
    assert [reader.poll(1, 0.5) for _ in range(2)] == [(3, 10), (0, 0)]
    assert (len(reader.polls), reader.polls.summary()["max"], len(reader.ages), reader.ages.summary()["max"]) == (1, 500.0, 2, 1_500.0)


def test_a_run_is_drawn(clock: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn: list[Any] = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    progress, samples = Progress(clock.now), Samples()
    perf_report.plot_run(tmp_path / "none.png", "t", progress, samples, "age")
    progress.points = [(0.0, 0), (1.0, 5), (3.0, 9)]
    for ms in (0.0, 2.0, 4.0):
        clock.now += 1
        samples.add(ms)
        perf_report.plot_run(tmp_path / "new" / "a.png", "t", progress, samples, "age")
        samples.add(ms + 1)
    empty, _, _, figure = drawn
    assert [len(axis.lines) for axis in empty.axes] == [0, 0]
    above, below = figure.axes
    assert (above.get_ylabel(), above.get_title(), above.get_ylim()[0]) == ("records/s", "t", 0)
    assert (below.get_ylabel(), below.get_xlabel(), below.get_yscale()) == ("age, ms", "seconds", "linear")
    assert above.lines[0].get_xydata().tolist() == [[1, 5], [3, 2]]
    points, *levels = below.lines
    assert points.get_xydata().tolist() == [[1, 0], [1, 1], [2, 2], [2, 3], [3, 4]]
    assert [list(line.get_ydata()) for line in levels] == [[2, 2], [pytest.approx(3.96)] * 2]
    assert (points.get_marker(), points.get_markersize(), points.get_alpha()) == (".", 2, 0.4)
    assert {(line.get_color(), line.get_linewidth(), line.get_linestyle()) for line in levels} == {("black", 0.8, "--")}
    assert [text.get_text() for text in below.texts] == ["p50 2.0 ms", "p99 4.0 ms"]
    later = Samples()
    later.add(2.0)
    perf_report.plot_run(tmp_path / "a.png", "t", progress, later, "age")
    assert drawn[-1].axes[1].get_yscale() == "log"


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
