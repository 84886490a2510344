"""What terminals, pipes, signals and other people's names do to a command."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, errors
from kafkacore.cli.app import run
from kafkacore.protocol import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kafkacore.testing import EmbeddedCluster
from tests.kit.commands import Commands
from tests.kit.rows import each_row

COMMAND = [sys.executable, "-m", "kafkacore"]
ESCAPE = "\x1b[31mred\u202e\x07\x9b2J"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        for n in range(30):
            cluster.create_topic(f"rough-{n:02}")
        yield cluster


@each_row("words", ["topics describe --json", "--help"])
def test_a_reader_that_leaves_ends_a_command_silently(at: str, words: str) -> None:
    near, far = os.pipe()
    os.close(near)
    done = subprocess.run([*COMMAND, *words.split()], stdout=far, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(far)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_terminal_that_knows_ascii_only(at: str, cluster: EmbeddedCluster) -> None:
    """Names come out as escapes; nothing fails for want of a letter."""
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.alter_client_quotas({(("user", "Zoë"),): {"producer_byte_rate": 1}}).check()
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    for words, status in ((["quotas", "describe"], 0), (["topics", "describe", "Zoë"], 1)):
        done = subprocess.run([*COMMAND, *words], env=environment, capture_output=True, timeout=120, check=False)
        shown = (done.stdout + done.stderr).decode("ascii")
        assert "Traceback" not in shown and done.returncode == status and (status or r"Zo\xeb" in shown)


def test_no_color_and_narrow_terminals(at: str) -> None:
    for environment in ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb", "COLUMNS": "20"}):
        done = subprocess.run(
            [*COMMAND, "topics", "describe"], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0 and "rough-00" in done.stdout
        if "NO_COLOR" in environment:
            assert not re.search(r"\x1b\[(?:3[0-7]|4[0-7]|9[0-7])[;m]", done.stdout)


def test_names_of_others_have_no_effect(at: str, cluster: EmbeddedCluster, cli: Commands) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.alter_client_quotas({(("user", ESCAPE), ("client-id", ESCAPE)): {"producer_byte_rate": 1}}).check()
        admin.alter_user_scram_credentials({(ESCAPE, "SCRAM-SHA-256"): "x"}).check()
        admin.alter_group_offsets(ESCAPE, {("rough-00", 0): 0}).check()
        admin.alter_configs({("client_metrics", "m"): {"match": "client_id=a"}}).check()
    acl = AclDescription(principal=f"User:{ESCAPE}", host=ESCAPE, operation=3, permission_type=3)
    resource = DescribeAclsResource(resource_type=2, resource_name=ESCAPE, pattern_type=3, acls=[acl])
    cluster.control("DescribeAcls", lambda _: DescribeAclsResponse(error_code=0, resources=[resource]))
    try:
        for words in (
            ["quotas", "describe"],
            ["users", "list"],
            ["groups", "list"],
            ["groups", "describe"],
            ["acls", "list"],
            ["acls", "remove", "--all", "--dry-run"],
        ):
            for more in ([], ["--json"]):
                cli(*words, *more)
                assert not set("\x1b\u202e\x07\x9b") & set(cli.out + cli.err), words
                if more:
                    assert ESCAPE in str(json.loads(cli.out)) or "\\x1b" in str(json.loads(cli.out))
                else:
                    assert r"\x1b[31mred\u202e\x07\x9b2J" in cli.out
        cli("users", "delete", ESCAPE, "--yes")
        cli("users", "list", ESCAPE, status=1)
        assert "\x1b" not in cli.out + cli.err
    finally:
        cluster.control("DescribeAcls", None)


@pytest.mark.parametrize("words", ["topics list", "consume t -g g", "produce t"])
def test_ctrl_c_while_a_broker_is_silent(words: str) -> None:
    """At once, with status 130 and without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(120)  # a command that ends before it comes would leave us here
        process = subprocess.Popen(
            [*COMMAND, *words.split(), "-b", f"127.0.0.1:{silent.getsockname()[1]}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if words.startswith("produce"):
            process.stdin.write("a line\n")
            process.stdin.flush()
        connection, _ = silent.accept()  # it has come so far
        guard = threading.Timer(120, process.kill)
        guard.start()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        guard.cancel()
        connection.close()
    assert process.returncode == 130
    assert "Traceback" not in said
    # A client's thread connects before the command counts records: a signal that comes in between has nothing to count.
    assert said in ("", {"produce t": "0 records delivered to t\n"}.get(words, ""))


def test_large_lines_and_binary_keys(at: str, tmp_path: os.PathLike[str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    file = os.path.join(tmp_path, "lines")
    with open(file, "wb") as out:
        out.write(b"\xff\x00\x01\tfirst\n" + b"k\t" + b"x" * 3_000_000 + b"\n")
    assert run(["produce", "rough-00", file, "-k", r"\t"]) == 1
    said = capfdbinary.readouterr().err.decode()
    assert said.count("\n") == 1 and "1 record delivered before" in said and "MESSAGE_TOO_LARGE" in said
    assert run(["configs", "set", "max.message.bytes=5000000", "--topic", "rough-00"]) == 0
    assert run(["produce", "rough-00", file, "-k", r"\t", "-X", "max.request.size=4000000"]) == 0
    capfdbinary.readouterr()
    assert run(["consume", "rough-00", "--from", "-2", "-e", "-f", "%k=%S\\n"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00\x01=5\nk=3000000\n"


def test_ctrl_c_says_how_many_records_were_printed(at: str, cluster: EmbeddedCluster) -> None:
    cluster.produce("rough-01", [b"%d" % n for n in range(3)])
    words = [*COMMAND, "consume", "rough-01", "--from", "earliest"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3):
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=120)
    assert (process.returncode, shown) == (130, "3 records of rough-01\n")


def test_a_failure_says_how_many_records_were_printed(
    at: str, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, cli: Commands
) -> None:
    cluster.produce("rough-02", [b"a", b"b"])
    real = KafkaConsumer.poll
    found: list[int] = []

    def poll(consumer: KafkaConsumer, *how: Any, **named: Any) -> Any:
        if sum(found) == 2:
            raise errors.TopicAuthorization("taken away", topic="rough-02")
        polled = real(consumer, *how, **named)
        found.append(sum(map(len, polled.values())))
        return polled

    monkeypatch.setattr(KafkaConsumer, "poll", poll)
    cli("consume", "rough-02", "--from", "earliest", status=1)
    assert cli.out == "a\nb\n"
    assert "taken away" in cli.err and cli.err.endswith("; 2 records printed before\n")
