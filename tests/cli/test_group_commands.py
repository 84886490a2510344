"""`kafkacore consume --group` commits what was printed and nothing else; `groups describe` shows the members while they run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from kafkacore.cli.app import run
from kafkacore.cli.member import GroupReader, Output
from kafkacore.cli.pipe_end import PipeEnd
from kafkacore.cli.record_choice import Choice
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.commands import Commands
from tests.kit.groups import committed_offsets
from tests.kit.rows import each_row
from tests.kit.waiting import until, until_equal

COMMAND = [sys.executable, "-m", "kafkacore", "consume"]


cluster = embedded()


@pytest.fixture
def topic(at: str, request: pytest.FixtureRequest) -> str:
    """A topic with 4 partitions, of this test alone."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200]
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics([NewTopic(name, 4)]).check()
    return name


def fill_partitions(servers: str, topic: str, count: int, partitions: int = 4, size: int = 0) -> None:
    """Values "PARTITION:OFFSET", so many in each partition."""
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for partition in range(partitions):
            values = [(b"%d:%d" % (partition, offset)).ljust(size, b".") for offset in range(count)]
            producer.send_many(topic, values, partitions=[partition] * count)


def offsets_behind(output: bytes) -> dict[int, int]:
    """Per partition the offset behind the last record printed whole; they must come without a gap and in order."""
    behind: dict[int, int] = {}
    for line in output.splitlines(keepends=True):
        if line.endswith(b"\n"):
            partition, offset = map(int, line.rstrip(b".\n").split(b":"))
            assert offset == behind.get(partition, 0)
            behind[partition] = offset + 1
    return behind


def started(*words: str, command: Sequence[str] = COMMAND) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)  # communicate() takes no buffers


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_max_commits_as_many_and_the_next_goes_on_there(at: str, topic: str, protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill_partitions(at, topic, 25)
    words = ["-X", f"group.protocol={protocol}"]
    assert run(["consume", topic, "--group", topic, "--from", "earliest", "--max", "30", *words]) == 0
    first = capsys.readouterr()
    assert first.err == f"30 records of {topic}, committed for group {topic}\n"
    assert sum(committed_offsets(at, topic).values()) == 30
    assert run(["consume", topic, "--group", topic, "--from", "earliest", "--exit-at-end", "--json", *words]) == 0
    second = capsys.readouterr()
    assert second.err == ""
    records = [json.loads(line) for line in second.out.splitlines()]
    printed = first.out.split() + [record["value"] for record in records]
    assert sorted(printed) == sorted(f"{p}:{o}" for p in range(4) for o in range(25))
    assert committed_offsets(at, topic) == dict.fromkeys(range(4), 25)


def test_what_came_after_the_end_is_neither_printed_nor_committed(
    at: str, topic: str, cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_partitions(at, topic, 3)
    end_offsets = KafkaConsumer.end_offsets

    def then_more(self: KafkaConsumer, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = end_offsets(self, partitions)
        fill_partitions(at, topic, 4)
        return found

    monkeypatch.setattr(KafkaConsumer, "end_offsets", then_more)
    assert len(cli("consume", topic, "-g", topic, "--from", "earliest", "-e").splitlines()) == 12
    assert committed_offsets(at, topic) == dict.fromkeys(range(4), 3)


def test_a_signal_commits_what_was_printed_and_leaves(at: str, topic: str) -> None:
    fill_partitions(at, topic, 5000, size=200)
    member = started(topic, "-g", topic, "--from", "earliest", "-X", "auto.commit.interval.ms=600000")
    first = member.stdout.readline()  # a pipe holds 300 of 20,000 records: the next write blocks
    member.send_signal(signal.SIGTERM)
    rest, said = member.communicate(timeout=120)
    behind = offsets_behind(first + rest)
    assert 0 < sum(behind.values()) < 20_000
    assert {p: o for p, o in committed_offsets(at, topic).items() if o} == behind
    assert member.returncode == 128 + signal.SIGTERM
    assert said.decode() == f"{sum(behind.values()):,} records of {topic}, committed for group {topic}\n"
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        assert admin.describe_groups([topic]).check()[topic].state == "Empty"  # it has left: the group does not wait for its session to end


def test_a_signal_while_nothing_comes(at: str, topic: str) -> None:
    fill_partitions(at, topic, 2)
    member = started(topic, "-g", topic, "--from", "earliest")
    lines = b"".join(member.stdout.readline() for _ in range(8))
    member.send_signal(signal.SIGINT)
    assert member.wait(120) == 130
    assert offsets_behind(lines) == committed_offsets(at, topic) == dict.fromkeys(range(4), 2)
    member.communicate()


def test_a_reader_that_leaves_gets_no_record_committed_that_was_not_written(at: str, topic: str) -> None:
    fill_partitions(at, topic, 5000, size=200)
    member = started(topic, "-g", topic, "--from", "earliest", "-X", "auto.commit.interval.ms=600000")
    assert member.stdout.readline()
    member.stdout.close()
    assert member.wait(120) == 141
    assert member.stderr.read() == b""
    member.stderr.close()
    assert 0 < sum(committed_offsets(at, topic).values()) < 2000  # a pipe holds 64 KiB: what was in it counts as written


def test_a_signal_does_not_wait_long_for_brokers_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster() as cluster:
        monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        cluster.create_topic("t", partitions=4)
        fill_partitions(cluster.bootstrap_servers, "t", 2)
        words = ["t", "-g", "g", "--from", "earliest", "-X", "auto.commit.interval.ms=600000"]
        program = "from kafkacore.cli import main, member; member._GOODBYE_S = 0.2; main()"
        member = subprocess.Popen(
            [sys.executable, "-c", program, "consume", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        lines = [member.stdout.readline() for _ in range(8)]
        cluster.pause_broker(1)
        began_s = time.monotonic()
        member.send_signal(signal.SIGINT)
        said = member.communicate(timeout=120)[1]
        took_s = time.monotonic() - began_s
        cluster.resume_broker(1)
    assert len(lines) == 8 and member.returncode == 130
    assert b"will be read again" in said and b"not committed for group g" in said
    assert took_s < 25, "close() alone waits 30 s"


@pytest.mark.parametrize("as_member", [True, False])
def test_a_reader_that_leaves_while_nothing_comes(at: str, topic: str, as_member: bool) -> None:
    """As `consume | head` does, once head has what it wants and the rest fits into the pipe."""
    fill_partitions(at, topic, 25)
    member = started(topic, "--from", "earliest", "-X", "auto.commit.interval.ms=600000", *(["-g", topic] if as_member else []))
    lines = b"".join(member.stdout.readline() for _ in range(100))
    assert offsets_behind(lines) == dict.fromkeys(range(4), 25)
    assert member.poll() is None  # it waits for more
    member.stdout.close()
    assert member.wait(120) == 141
    assert member.stderr.read() == b""
    member.stderr.close()
    assert committed_offsets(at, topic) == (dict.fromkeys(range(4), 25) if as_member else {})


def test_the_wait_for_the_reader_ends_with_the_block() -> None:
    """And it finds a reader that left before it began."""
    read, write = os.pipe()
    woken = threading.Event()
    with open(write, "wb") as stream:
        with PipeEnd().watched(stream) as end:
            end.notify = woken.set
            (waiting,) = (thread for thread in threading.enumerate() if thread.name == "kafkacore-pipe-end")
        assert not waiting.is_alive() and not end.closed and not woken.is_set()
        os.close(read)
        with PipeEnd().watched(stream) as end:
            until(lambda: end.closed)


def test_from_counts_only_where_nothing_is_committed(at: str, topic: str, cli: Commands) -> None:
    fill_partitions(at, topic, 10)
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.alter_group_offsets(topic, {(topic, 0): 8, (topic, 1): 10}).check()
    assert sorted(cli("consume", topic, "-g", topic, "--from", "7", "-e").split()) == "0:8 0:9 2:7 2:8 2:9 3:7 3:8 3:9".split()
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.alter_group_offsets(topic, {(topic, 0): 9}).check()
        admin.create_topics([NewTopic(f"{topic}-2", 1)]).check()
    fill_partitions(at, f"{topic}-2", 3, partitions=1)
    cli("consume", f"{topic}-2", topic, "-g", topic, "--from", "7", "-e")
    assert cli.out.split() == ["0:9"]
    assert f"{topic}-2 has no offset 7 everywhere: partition 0 holds 0 to 2 and is read from 3 on" in cli.err


def test_several_topics(at: str, topic: str, cli: Commands) -> None:
    """With a group and without."""
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics([NewTopic(f"{topic}-2", 1)]).check()
    fill_partitions(at, topic, 2)
    fill_partitions(at, f"{topic}-2", 2, partitions=1)
    for group in (["-g", topic], []):
        lines = cli("consume", topic, f"{topic}-2", *group, "--from", "earliest", "-e", "--json").splitlines()
        found = sorted((r["topic"], r["partition"], r["offset"]) for r in map(json.loads, lines))
        assert len(found) == 10 and found[-1] == (f"{topic}-2", 0, 1)


def test_a_member_may_read_and_commit_nothing(at: str, topic: str, cli: Commands) -> None:
    fill_partitions(at, topic, 2)
    cli("consume", topic, "-g", topic, "--from", "earliest", "-n", "3", "-X", "enable.auto.commit=false")
    assert len(cli.out.split()) == 3
    assert cli.err == f"3 records of {topic}, not committed for group {topic}\n"
    assert committed_offsets(at, topic) == {}


def test_a_member_that_could_not_commit_what_it_printed_fails(at: str, topic: str, monkeypatch: pytest.MonkeyPatch, cli: Commands) -> None:
    fill_partitions(at, topic, 2)
    write = Output.write

    def printed(output: Output, lines: list[bytes]) -> int:
        count = write(output, lines)
        with KafkaAdminClient(bootstrap_servers=at) as admin:
            admin.remove_group_members(topic)  # so the commit comes from a stranger
        return count

    monkeypatch.setattr(Output, "write", printed)
    cli("consume", topic, "-g", topic, "--from", "earliest", "-n", "2", "-X", "heartbeat.interval.ms=2900", status=1)
    assert len(cli.out.split()) == 2
    assert "what was printed since the last commit will be read again" in cli.err
    assert not any(committed_offsets(at, topic).values())


@each_row(
    ("words", "status", "said"),
    [
        (["t", "-g", "g", "-p", "0"], 2, "--partition"),
        (["t", "-g", " "], 2, "group_id is empty"),
        (["t", "-g", "g", "--from", "yesterday"], 2, "earliest, latest, an offset, -N or @TIME"),
        (["cli-no-such-topic", "-g", "g"], 1, "cli-no-such-topic"),
        (["t", "-g", "g", "-X", "session.timeout.ms=1", "-X", "heartbeat.interval.ms=5"], 2, "heartbeat_interval_ms"),
    ],
)
def test_bad_input_is_one_clear_line(at: str, cli: Commands, words: list[str], status: int, said: str) -> None:
    assert said in cli.fails("consume", *words, status=status)


def test_two_share_the_partitions_and_describe_shows_both(at: str, topic: str, cli: Commands) -> None:
    fill_partitions(at, topic, 3)

    def described() -> dict[str, Any]:
        found: dict[str, Any] = cli.json("groups", "describe", topic)[topic]
        return found

    quick = ["-X", "heartbeat.interval.ms=50", "-X", "auto.commit.interval.ms=50"]
    first = started(topic, "-g", topic, "--from", "earliest", "-X", "client.id=first", *quick)
    second = None
    try:
        lines = b"".join(first.stdout.readline() for _ in range(12))
        assert offsets_behind(lines) == dict.fromkeys(range(4), 3)
        second = started(topic, "-g", topic, "--from", "earliest", "-X", "client.id=second", "-X", "group.instance.id=static-2", *quick)

        def shared() -> dict[str, Any] | None:
            found = described()
            is_shared = found["state"] == "Stable" and [len(m["partitions"]) for m in found["members"]] == [2, 2]
            return found if is_shared else None

        found = until(shared)
        one, two = sorted(found["members"], key=lambda member: member["client_id"])
        assert (one["client_id"], one["instance_id"], two["client_id"], two["instance_id"]) == ("first", None, "second", "static-2")
        assert one["host"].strip("/") == two["host"].strip("/") == "127.0.0.1"
        assert one["member_id"].startswith("first-") and two["member_id"].startswith("static-2-")
        assert sorted(one["partitions"] + two["partitions"]) == [[topic, p] for p in range(4)]
        owner = {partition: member["member_id"] for member in (one, two) for _, partition in member["partitions"]}
        rows = {row["partition"]: row for row in found["offsets"]}
        assert {p: (row["committed"], row["end"], row["lag"], row["member_id"]) for p, row in rows.items()} == {
            p: (3, 3, 0, owner[p]) for p in range(4)
        }
        shown = cli("groups", "describe", topic)
        assert f"{topic}: Stable, 2 members, assignor range" in shown
        assert all(word in shown for word in (one["member_id"], "static-2", "127.0.0.1", f"{topic} 0 1", f"{topic} 2 3"))
        assert topic in {group["group_id"] for group in cli.json("groups", "list", "--state", "Stable")}

        fill_partitions(at, topic, 1)  # each gets the records of its own partitions
        mine = {int(first.stdout.readline().split(b":")[0]) for _ in range(2)}
        assert mine == {partition for _, partition in one["partitions"]}
    finally:
        for member in (first, second):
            if member is not None:
                member.send_signal(signal.SIGTERM)
                member.communicate(timeout=120)
    assert described()["state"] in ("Empty", "Stable")  # a static member does not leave


def test_a_member_is_shown_with_all_its_topics(at: str, cli: Commands) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin, KafkaConsumer(bootstrap_servers=at, group_id="pair") as member:
        admin.create_topics([NewTopic("pair-b", 1), NewTopic("pair-a", 2)]).check()
        member.subscribe(["pair-a", "pair-b"])
        until(lambda: member.poll(0.02) is not None and len(member.assignment()) == 3, "both topics are assigned")
        assert "pair-a 0 1, pair-b 0" in " ".join(cli("groups", "describe", "pair").split())
        places = [["pair-a", 0], ["pair-a", 1], ["pair-b", 0]]
        found = cli.json("groups", "describe", "pair")["pair"]
        assert [[row["topic"], row["partition"]] for row in found["offsets"]] == places
        assert [sorted(each["partitions"]) for each in found["members"]] == [places]


def test_a_partition_without_a_committed_offset_has_no_lag(at: str, topic: str, cli: Commands) -> None:
    fill_partitions(at, topic, 3)
    with KafkaConsumer(bootstrap_servers=at, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        until(consumer.assignment, "it is a member", consumer)
        consumer.commit({(topic, 1): 1})
        rows = cli.json("groups", "describe", topic)[topic]["offsets"]
        assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in rows] == [
            (0, None, 3, None),
            (1, 1, 3, 2),
            (2, None, 3, None),
            (3, None, 3, None),
        ]


def test_what_is_printed_is_committed_while_it_runs(at: str, topic: str) -> None:
    fill_partitions(at, topic, 3)
    member = started(topic, "-g", topic, "--from", "earliest", "-X", "auto.commit.interval.ms=50")
    try:
        until_equal(lambda: committed_offsets(at, topic), dict.fromkeys(range(4), 3))
    finally:
        member.kill()
        member.communicate()
    assert member.returncode == -signal.SIGKILL  # so nothing was committed at its end


def test_a_reader_that_takes_too_long_costs_the_membership_but_no_record(at: str, topic: str) -> None:
    fill_partitions(at, topic, 1000, size=200)
    slow = ["-X", "max.poll.interval.ms=2000", "-X", "heartbeat.interval.ms=50", "-X", "auto.commit.interval.ms=50"]
    member = started(topic, "-g", topic, "--from", "earliest", *slow)
    lines = [member.stdout.readline()]  # a pipe holds 300 of 4,000 records: the member is in a write until the rest is read
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        until_equal(lambda: admin.describe_groups([topic]).check()[topic].state, "Empty")

    def read() -> None:
        # Byte by byte, as it is read without a buffer, the member waits for longer than it may on a busy machine, again and again.
        with io.BufferedReader(member.stdout) as buffered:
            lines.extend(buffered)

    reading = threading.Thread(target=read)
    reading.start()
    until_equal(lambda: committed_offsets(at, topic), dict.fromkeys(range(4), 1000))
    member.send_signal(signal.SIGINT)
    said = member.stderr.read()
    reading.join(60)
    assert member.wait(120) == 130
    member.stdout.close()
    member.stderr.close()
    assert len(set(lines)) == 4000 and lines.count(lines[0]) > 1  # it joined again and printed again what it could not commit
    assert b"max_poll_interval_ms (2000 ms)" in said
    assert b"will be read again" in said
    assert re.search(rf"records of {topic}, committed for group {topic}\n$".encode(), said)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is full")
def test_what_a_full_disk_did_not_take_is_not_committed(at: str, topic: str) -> None:
    fill_partitions(at, topic, 5)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, topic, "-g", topic, "--from", "earliest", "-e"], stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 1 and b"No space left on device" in done.stderr
    assert not any(committed_offsets(at, topic).values())


@pytest.mark.parametrize("failure", [None, OSError("the disk is full")], ids=["stopped", "failed"])
def test_nothing_is_printed_behind_a_partition_that_was_not_printed_whole(failure: OSError | None) -> None:
    """Of four partitions the second one is cut off; the position of all from there on goes back to what was not printed."""
    tps = [TopicPartition("t", partition) for partition in range(4)]
    printed: list[bytes] = []
    back: dict[TopicPartition, int] = {}

    def write(lines: list[bytes]) -> int:
        if lines[0] == b"1-0" and failure is not None:
            raise failure
        written = 1 if lines[0] == b"1-0" else len(lines)
        printed.extend(lines[:written])
        return written

    consumer: Any = SimpleNamespace(seek=back.__setitem__)
    choice = Choice(lambda record: b"%d-%d" % (record.partition, record.offset))
    reader = GroupReader(consumer, SimpleNamespace(write=write), PipeEnd(), choice, start=None, commits=True, to=None)  # type: ignore[arg-type]
    polled: Any = {tp: [SimpleNamespace(partition=tp.partition, offset=offset) for offset in range(3)] for tp in tps}
    with contextlib.ExitStack() as stack:
        if failure is not None:
            stack.enter_context(pytest.raises(OSError, match="the disk is full"))
        reader._print(polled, None)
    whole = [b"0-0", b"0-1", b"0-2"]
    assert (printed, back[tps[1]]) == ((whole, 0) if failure is not None else ([*whole, b"1-0"], 1))
    assert [back.get(tp) for tp in (tps[0], *tps[2:])] == [None, 0, 0]
