"""The programs in examples/ do what they say, as processes on an embedded cluster."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.groups import committed_offsets as committed

EXAMPLES = Path(__file__).parent.parent / "examples"
PARTITIONS = 4
STEP = re.compile(r"-(\d) offset (\d+): (begun|done)")

Start = Callable[..., "subprocess.Popen[str]"]


cluster = embedded()


@pytest.fixture
def servers(cluster: EmbeddedCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)]).check()
    return name


@pytest.fixture
def start(servers: str, topic: str) -> Iterator[Start]:
    """Starts an example; all that still run are killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def started(name: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(EXAMPLES / name), topic, "--bootstrap-server", servers, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield started
    for process in running:
        process.send_signal(signal.SIGINT)  # so that a pool ends its workers
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def send(servers: str, topic: str, values: list[str], key: Callable[[int], str] = str) -> None:
    """Values in turns to the partitions."""
    with KafkaProducer(bootstrap_servers=servers) as producer:
        keys = [key(i).encode() for i in range(len(values))]
        numbers = [i % PARTITIONS for i in range(len(values))]
        producer.send_many(topic, [value.encode() for value in values], keys=keys, partitions=numbers)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next lines that a program prints; fewer where it ends."""
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    assert all(found), found
    return found


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> list[str]:
    """Ends a program with Ctrl+C, which every example takes for an order, not for an error, or with another signal."""
    process.send_signal(number)
    assert process.stdout is not None
    rest = process.stdout.readlines()
    assert process.wait(60) == 0
    return rest


def test_broadcast_gives_every_process_every_record(servers: str, topic: str, start: Start) -> None:
    send(servers, topic, [f"v{i}" for i in range(20)], key=lambda i: f"k{i % 5}")
    processes = [start("broadcast.py", "--process", name) for name in ("a", "b")]
    for process in processes:
        seen = lines(process, 20)
        assert sorted(Counter(re.findall(r"b'(v\d+)'", "".join(seen))).items()) == sorted((f"v{i}", 1) for i in range(20))
        assert seen[-1].endswith("(5 keys)\n")
    send(servers, topic, ["more"])
    for process in processes:
        assert "more" in lines(process, 1)[0]
        assert end(process) == []
    assert committed(servers, "broadcast.a") == {}


def test_workers_share_the_records(servers: str, topic: str, start: Start) -> None:
    send(servers, topic, [str(i) for i in range(40)])
    pool = start("workers.py", "--workers", "2", "--group", topic)
    found = lines(pool, 40)
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        while True:  # the first that comes has all partitions until the second is in
            members = admin.describe_groups([topic]).check()[topic].members
            if sorted(len(member.partitions) for member in members) == [2, 2]:
                break
    assert sorted(member.client_id for member in members) == ["worker-0", "worker-1"]
    send(servers, topic, ["last"] * 8)
    found += lines(pool, 8)
    by_worker = defaultdict(set)
    for worker, partition in re.findall(r"worker (\d): partition (\d)", "".join(found[-8:])):  # processes may write into one line
        by_worker[worker].add(partition)
    assert sorted(map(len, by_worker.values())) == [2, 2]
    assert end(pool) == []
    values = Counter(re.findall(r"b'(\d+)'", "".join(found)))
    assert values == Counter(map(str, range(40)))
    assert committed(servers, topic) == dict.fromkeys(range(PARTITIONS), 12)


def test_manual_commit_is_behind_the_work(servers: str, topic: str, start: Start) -> None:
    send(servers, topic, [str(i) for i in range(30)])
    member = start("manual_commit.py", "--group", topic, "--batch", "5")
    found = []
    while sum(int(line.split()[1]) for line in found if line.startswith("committed")) < 30:
        found += lines(member, 1)
        if found[-1].startswith("committed"):
            assert found[-1].startswith("committed ") and int(found[-1].split()[1]) <= 5
    assert sorted(int(v) for v in re.findall(r"b'(\d+)'", "".join(found))) == list(range(30))
    assert sum(committed(servers, topic).values()) == 30
    assert end(member) == []


def test_the_database_has_each_effect_once_whenever_it_is_killed(servers: str, topic: str, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "accounts.db"
    count = 20_000
    send(servers, topic, ["1"] * count, key=lambda i: f"account-{i % 3}")
    words = ("--database", str(file))

    def booked() -> int:
        with contextlib.closing(sqlite3.connect(file)) as database:
            return int(database.execute("SELECT coalesce(sum(balance), 0) FROM accounts").fetchone()[0])

    for turn in range(2):
        member = start("sqlite_offsets.py", *words, "--group", f"{topic}-{turn}")  # no wait for the session of the one that was killed
        lines(member, 5)
        member.kill()  # in the middle of whatever it does
        member.wait()
    assert 0 < booked() < count
    member = start("sqlite_offsets.py", *words, "--group", topic)
    while booked() < count:
        lines(member, 1)
    end(member)
    with contextlib.closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT sum(balance) FROM accounts").fetchone() == (count,)
        assert dict(database.execute("SELECT partition, next_offset FROM offsets")) == dict.fromkeys(range(PARTITIONS), count // PARTITIONS)
    assert committed(servers, topic) == {}


def test_slow_work_keeps_the_member_in_its_group(servers: str, topic: str, start: Start) -> None:
    send(servers, topic, [str(i) for i in range(16)])
    # A batch takes 4 x 1 s, longer than the interval: a member that did not poll would be out, and its commit refused. The interval is
    # long enough for a machine that is busy with other work.
    slow = ("--seconds", "1", "--max-poll-interval-ms", "3000", "--threads", "4", "--group", topic)
    member = start("slow_work.py", *slow)
    found = []
    # a poll hands out 10 of the 16, so a partition may take two batches; threads may write into one line
    while sum(line.count(": committed 4") for line in found) < PARTITIONS:
        found += lines(member, 1)
    assert sum(line.count(": done") for line in found) == 16
    assert committed(servers, topic) == dict.fromkeys(range(PARTITIONS), 4)
    send(servers, topic, ["more"] * 4)  # the partitions are not paused any more; Ctrl+C in the work finishes and commits it
    done = Counter(re.findall(r"-(\d) offset 4: done", "".join(lines(member, 1) + end(member))))
    assert done and set(done.values()) == {1}
    assert committed(servers, topic) == {p: 4 + done[str(p)] for p in range(PARTITIONS)}


@pytest.fixture
def target(servers: str, topic: str) -> str:
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(f"{topic}.results", PARTITIONS)]).check()
    return f"{topic}.results"


def results(servers: str, target: str, count: int) -> dict[bytes | None, list[bytes | None]]:
    """What a reader of committed data sees of each key, up to the ends of the partitions; no fewer than `count` records."""
    found = defaultdict(list)
    places = [TopicPartition(target, p) for p in range(PARTITIONS)]
    with KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(tp) < ends[tp] for tp in places):
            for records in consumer.poll(timeout=1).values():
                for record in records:
                    found[record.key].append(record.value)
    assert sum(map(len, found.values())) >= count
    return found


def test_each_record_is_copied_once_whenever_the_copier_is_killed(servers: str, topic: str, target: str, start: Start) -> None:
    count = 20_000
    send(servers, topic, [f"v{i}" for i in range(count)], key=lambda i: f"k{i % 8}")
    words = (target, "--name", topic, "--group", topic)
    for _ in range(2):
        member = start("exactly_once.py", *words, "--batch", "50")
        lines(member, 5)
        member.kill()  # in the middle of whatever it does
        member.wait()
    done = sum(committed(servers, topic).values())
    assert 0 < done < count
    member = start("exactly_once.py", *words)
    while sum(committed(servers, topic).values()) < count:
        lines(member, 1)
    end(member)
    expected = {f"k{key}".encode(): [f"V{i}".encode() for i in range(key, count, 8)] for key in range(8)}
    assert results(servers, target, count) == expected


def steps(printed: list[str]) -> list[tuple[int, int, str]]:
    """(partition, offset, begun or done) of each line."""
    return [(int(p), int(offset), what) for p, offset, what in STEP.findall("".join(printed))]


def test_tasks_work_side_by_side_and_keep_the_order_of_a_partition(servers: str, topic: str, start: Start) -> None:
    send(servers, topic, [str(i) for i in range(40)])
    printed = lines(start("async_workers.py", "--group", topic, "--tasks", "3", "--seconds", "0.02"), 80)
    under_way: set[int] = set()
    most = 0
    offsets = defaultdict(list)
    for partition, offset, what in steps(printed):
        if what == "begun":
            assert partition not in under_way
            offsets[partition].append(offset)
            under_way.add(partition)
        else:
            under_way.remove(partition)
        most = max(most, len(under_way))
    assert offsets == {partition: list(range(10)) for partition in range(PARTITIONS)}
    assert most == 3


def test_a_signal_lets_tasks_finish_and_commits_what_is_done(servers: str, topic: str, start: Start) -> None:
    send(servers, topic, [str(i) for i in range(400)])
    words = ("--group", topic, "--seconds", "0.05")
    member = start("async_workers.py", *words)
    printed = lines(member, 20)
    printed += end(member, signal.SIGTERM)
    begun, done = ({(p, offset) for p, offset, what in steps(printed) if what == wanted} for wanted in ("begun", "done"))
    assert begun == done
    assert 0 < len(done) < 400
    assert committed(servers, topic) == Counter(partition for partition, _ in done)
    send(servers, topic, ["more"] * 4)
    next_member = start("async_workers.py", "--group", topic, "--seconds", "0", "--tasks", "2")
    rest = lines(next_member, 2 * (404 - len(done)))
    rest += end(next_member)
    assert done.isdisjoint({(p, offset) for p, offset, _ in steps(rest)})
    assert committed(servers, topic) == dict.fromkeys(range(PARTITIONS), 101)


def test_faststream_commits_what_it_has_priced(servers: str, topic: str, start: Start) -> None:
    pytest.importorskip("faststream.kafka")
    prices = f"{topic}.results"
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(prices, PARTITIONS)]).check()
    send(servers, topic, [json.dumps({"item": str(i)}) for i in range(200)])
    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as reader:
        reader.assign([(prices, p) for p in range(PARTITIONS)])
        seen = 0
        for enough in (10, 200):
            priced = start("faststream_orders.py", prices)
            while seen < enough:
                seen += sum(map(len, reader.poll(timeout=None).values()))
            end(priced, signal.SIGTERM)
            done = sum(committed(servers, "prices").values())
            assert sum(map(len, results(servers, prices, done).values())) == done
    found = [json.loads(value or b"") for values in results(servers, prices, 200).values() for value in values]
    assert Counter(each["item"] for each in found) == Counter(map(str, range(200)))


def test_every_example_is_in_the_list_and_says_what_it_shows() -> None:
    listed = set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))
    there = {file.name: ast.get_docstring(ast.parse(file.read_text())) for file in EXAMPLES.glob("*.py")}
    assert listed == set(there)
    assert all(f"python examples/{name}" in (text or "") for name, text in there.items())
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_examples*.py"))
    assert all(f'"{name}"' in tests for name in there)


def test_hot_keys_have_a_partition_for_themselves(start: Start) -> None:
    process = start("hot_keys.py", "--hot", "busy", "busy-1", "busy-2", *(f"calm-{i}" for i in range(20)))
    out, _ = process.communicate(timeout=60)
    went = dict(line.split(": partition ") for line in out.splitlines())
    assert {went.pop("busy-1"), went.pop("busy-2")} == {str(PARTITIONS - 1)}
    assert len(went) == 20
    assert str(PARTITIONS - 1) not in went.values()
