"""`kafkacore query`: DuckDB over topics, once and as records come."""

from __future__ import annotations

import base64
import io
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, errors
from kafkacore.cli import query
from kafkacore.cli.app import run
from kafkacore.decode.registry import prefix_of
from kafkacore.testing import EmbeddedCluster
from tests.kit.programs import run_python
from tests.kit.rows import each_row

FLIGHTS = [{"carrier": "UA" if n % 2 else "AA", "delay": n / 2} for n in range(100)]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as started:
        for name, partitions in (("flights", 3), ("my-names.v1", 1), ("bytes", 1), ("empty", 1), ("bad", 1), ("also", 1), ("many", 3)):
            started.create_topic(name, partitions=partitions)
        with KafkaProducer(bootstrap_servers=started.bootstrap_servers) as producer:
            producer.send_many("flights", [json.dumps(each) for each in FLIGHTS], keys=[str(n) for n in range(100)])
            producer.send_many("my-names.v1", ["UA,United", "AA,American"], keys=["UA", "AA"])
            producer.send_many("bytes", [b"\xff\x00", None])
            producer.send_many("many", [b"x"] * 15_000, partitions=[0, 1, 2] * 5_000)
            producer.send_many("bad", ['{"a": 1}', '{"a": }'])
            producer.send_many("also", ['{"n": 1}'])
        yield started


@pytest.fixture
def ask(cluster, capsys):
    def call(*arguments):
        status = run(["query", *arguments, "-b", cluster.bootstrap_servers])
        out, err = capsys.readouterr()
        return status, out, err

    return call


AVERAGE = "select carrier, avg(delay) as delay from flights group by 1 order by 1"


def test_objects_are_columns(ask):
    status, out, err = ask(AVERAGE)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines() if "A" in line] == [["│", "AA", "│", "24.5", "│"], ["│", "UA", "│", "25.0", "│"]]
    assert ask(AVERAGE, "--json") == (0, '{"carrier":"AA","delay":24.5}\n{"carrier":"UA","delay":25.0}\n', "")
    assert ask(AVERAGE, "--csv") == (0, '"carrier","delay"\n"AA",24.5\n"UA",25\n', "")


def test_topics_are_joined_with_others_and_with_themselves(ask):
    joined = 'select n.value as name, count(*) as n from flights f join "my-names.v1" n on n.key = f.carrier group by 1 order by 1'
    assert ask(joined, "--json")[1] == '{"name":"AA,American","n":50}\n{"name":"UA,United","n":50}\n'
    itself = "with late as (select * from flights where delay > 40) select count(*) as n from late a join flights b on a._key = b._key"
    assert ask(itself, "--json")[1] == '{"n":19}\n'


def test_text_bytes_schemas_and_parts(ask, tmp_path):
    (tmp_path / "s").write_text("carrier STRING")
    assert ask("select count(carrier) as n from flights", "--schema", f"@{tmp_path / 's'}", "--json")[1] == '{"n":100}\n'
    assert ask("select value from bytes where value is not null", "--json")[1] == '{"value":"/wA="}\n'
    assert ask("select hex(value) as v from bytes limit 1", "--json")[1] == '{"v":"FF00"}\n'
    assert ask("select length(value) > 0 as l from flights limit 1", "--format", "string", "--json")[1] == '{"l":true}\n'
    assert ask("select sum(delay) as s from flights", "--schema", "delay INT", "--on-error", "null", "--json")[1].startswith('{"s":')
    assert ask("select count(*) as n from flights", "--last", "2", "--json")[1] == '{"n":6}\n'
    assert ask("select count(*) as n, count(a) as a from bad", "--on-error", "null", "--json")[1] == '{"n":2,"a":1}\n'
    assert ask("select count(*) as n from bad", "--on-error", "skip", "--json")[1] == '{"n":1}\n'


def test_how_a_registry_is_asked(ask, registry_server, cluster, capsys, monkeypatch, tmp_path):
    schema = {"type": "object", "properties": {"carrier": {"type": "string"}, "delay": {"type": "number"}}}
    number = registry_server.add("framed-value", json.dumps(schema), kind="JSON")
    cluster.create_topic("framed", partitions=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("framed", prefix_of(number) + b'{"carrier": "UA"}').result()
    monkeypatch.setenv("LOGIN", "me:hush")
    words = ["--format", "json", "--registry", registry_server.url, "-X", "schema.registry.basic.auth.user.info=secret://env/LOGIN"]
    assert ask("select carrier from framed", *words, "--json") == (0, '{"carrier":"UA"}\n', "")
    assert registry_server.authorizations[-1] == "Basic " + base64.b64encode(b"me:hush").decode()
    asked = len(registry_server.asked)
    assert run(["export", "framed", str(tmp_path / "f.parquet"), *words, "-b", cluster.bootstrap_servers]) == 0
    assert len(registry_server.asked) > asked and capsys.readouterr().out.startswith("1 record of framed")
    status, _, err = ask("select 1 from framed", "-X", "schema.registry.proxy=http://p")
    assert status == 2 and "schema.registry.proxy goes with --registry URL" in err
    status, _, err = ask("select 1 from framed", *words, "-X", "schema.registry.hush=x")
    assert status != 0 and "schema.registry.hush is no setting" in err


@each_row("command", ["query 'select 1 from flights'", "export flights FILE"])
@each_row(
    ("words", "says"),
    [
        ("--registry http://127.0.0.1:1", "--registry: is for --format json and --format avro"),
        ("--registry http://127.0.0.1:1 --format auto", "--registry: is for --format json and --format avro"),
        ("--format avro", "--format: avro takes --registry URL, or --schema"),
    ],
)
def test_a_registry_and_values_go_together(cluster, capsys, tmp_path, command, words, says):
    arguments = shlex.split(f"{command} {words}".replace("FILE", str(tmp_path / "f.parquet")))
    assert run([*arguments, "-b", cluster.bootstrap_servers]) == 2
    assert says in capsys.readouterr().err


@each_row("form", ["--json", "--csv"])
def test_ctrl_c_while_rows_are_printed(ask, monkeypatch, form):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(query, "json_column", interrupted)
    monkeypatch.setattr("pyarrow.csv.write_csv", interrupted)
    assert ask("select * from flights", form)[0] == 130


@pytest.mark.parametrize("form", ["--json", "--csv"])
@pytest.mark.parametrize("topic", ["flights", "many"])  # before DuckDB has rows, and when it has some
def test_a_timeout_while_rows_are_read_is_one_line(ask, monkeypatch, topic, form):
    def late(self, tp, *args, **options):
        if topic == "many" and late.read < 2:
            late.read += 1
            yield from read_range(self, tp, *args, **options)
        raise errors.KafkaTimeoutError("nothing came", topic=topic)

    late.read, read_range = 0, KafkaConsumer.read_range
    monkeypatch.setattr(KafkaConsumer, "read_range", late)
    status, _, err = ask(f"select * from {topic}", "--format", "string", form)
    assert (status, err) == (1, f"kafkacore: nothing came [topic {topic}]\n")


@each_row(
    ("arguments", "status", "text"),
    [
        (["selec"], 1, "syntax error"),
        (["select nothing from flights"], 1, "nothing"),
        (["select 1"], 1, "names no topic"),
        (["create table x (a int)"], 1, "create is no query; one asks topics"),
        (["create table x as select * from flights"], 1, "create is no query"),
        (["insert into flights values (1)"], 1, "insert is no query"),
        (["attach 'x.db'"], 1, "attach is no query"),
        (["set memory_limit = '1TB'"], 1, "set is no query"),
        (["select * from flights; drop table flights"], 1, "drop is no query"),
        (["select * from flights, not_there"], 1, "not_there"),
        (["select * from arguments"], 1, "arguments"),  # a topic and never a variable
        (["select (case when delay > 40 then 'x' else '1' end)::int as n from flights", "--json"], 1, "Could not convert string 'x'"),
        (["select * from empty"], 1, "no value yet"),
        (["select count(bad.a) from also, bad"], 1, "[topic bad, partition 0, offset 1]"),
        (["select * from flights", "--schema", "a WHAT"], 2, "WHAT"),
        (["select * from flights", "--format", "xml"], 2, "--format"),
        (["select * from flights", "--on-error", "x"], 2, "--on-error"),
        (["select * from flights", "--csv", "--json"], 2, "--csv"),
        (["select * from flights", "--memory", "much"], 1, "Memory"),
    ],
)
def test_what_cannot_be_is_one_line(ask, arguments, status, text):
    found, out, err = ask(*arguments)
    assert (found, out) == (status, "") and text in err and err.count("\n") == 1, err
    assert "exception" not in err.lower()  # the topic's error in its own words, not in DuckDB's


def test_without_files_nothing_outside_topics_is_read_or_written(ask, tmp_path):
    secret, out = tmp_path / "secret.csv", tmp_path / "out.csv"
    secret.write_text("a\n42\n")
    reading = f"select f.*, s.a from flights f, read_csv('{secret}') s limit 1"
    for sql, writes in ((reading, False), (f"copy (from flights) to '{out}'", True)):
        status, shown, err = ask(sql, "--no-files")
        assert (status, shown) == (1, "") and "Cannot access file" in err and err.count("\n") == 1 and not out.exists()
        status, shown, err = ask(sql, "--json")
        assert (status, err) == (0, "") and ("42" in shown) is not writes and out.exists() is writes
    for sql in ("select * from flights, read_csv('https://127.0.0.1:1/x.csv')", f"select * from flights, '{secret}' s"):
        status, shown, err = ask(sql, "--no-files")
        assert (status, shown) == (1, "") and err.count("\n") == 1, err
    rows = "select md5(concat(_key, '-', i)) as k, string_agg(repeat('x', 1000)) as s from flights, range(1000) r(i) group by 1"
    asked = ask(f"select sum(length(s)) as n from ({rows})", "--no-files", "--memory", "50MB", "--json")
    assert asked == (0, '{"n":100000000}\n', "")  # more than the memory: it may spill into its own directory
    assert ask(AVERAGE, "--no-files", "--json") == ask(AVERAGE, "--json")


def test_a_long_table_says_that_it_is_cut(ask, monkeypatch):
    monkeypatch.setattr(query, "SHOWN_ROWS", 10)
    status, out, err = ask("select delay from flights")
    assert status == 0 and err == "the first 10 of 100 rows; --json and --csv print all\n" and len(out.splitlines()) == 14


class Output(io.StringIO):
    """Standard output whose lines a test waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def write(self, text: str) -> int:
        self.lines.put(text)
        return len(text)


def following(cluster, monkeypatch, *arguments):
    """`query --follow` on a thread: its lines, and what ends it."""
    output = Output()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(query, "PAUSE_S", 0.0)
    ended: queue.SimpleQueue[object] = queue.SimpleQueue()
    began: list[query.Follower] = []
    before = query.Follower.__init__

    def seen(self, *given):
        before(self, *given)
        began.append(self)

    monkeypatch.setattr(query.Follower, "__init__", seen)

    def call() -> None:
        ended.put(run(["query", *arguments, "--follow", "--json", "-b", cluster.bootstrap_servers]))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()

    def end(interrupt: bool = True) -> object:
        if interrupt:
            began[0]._into.put(("", KeyboardInterrupt()))
        status = ended.get(timeout=120)
        thread.join(60)
        return status

    return output.lines, end


def comes(lines, wanted):
    """Evaluations up to the wanted one; a record may come with one before or after another."""
    while (found := json.loads(lines.get(timeout=120))) != wanted:
        pass
    return found


def test_following_asks_again_and_keeps_the_last_records(cluster, monkeypatch):
    cluster.create_topic("kept", partitions=2)

    def send(producer, numbers):
        producer.send_many("kept", [f'{{"n": {n}}}' for n in numbers], partitions=[n % 2 for n in numbers]).result(60)

    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        send(producer, range(50))
        lines, end = following(cluster, monkeypatch, "select min(n) as low, max(n) as high from kept", "--last", "10")
        comes(lines, [{"low": 30, "high": 49}])
        send(producer, range(50, 75))
        comes(lines, [{"low": 55, "high": 74}])
    assert end() == 130


def test_following_two_topics_fails_with_the_error_of_one(cluster, monkeypatch, capsys):
    cluster.create_topic("broken", partitions=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("broken", '{"n": 1}').result(60)
        both = "select (select count(*) from broken) as n, (select count(*) from flights) as others"
        lines, end = following(cluster, monkeypatch, both)
        comes(lines, [{"n": 1, "others": 100}])
        producer.send("broken", "{").result(60)
        assert end(interrupt=False) == 1
    assert "[topic broken, partition 0, offset 1]" in capsys.readouterr().err


def test_ctrl_c_ends_a_process_that_follows(cluster):
    command = [sys.executable, "-m", "kafkacore", "query", "select count(*) as n from flights", "--follow", "--json"]
    at = {**os.environ, "KAFKACORE_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=at) as process:
        assert json.loads(process.stdout.readline())[0]["n"] > 0
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err == "waiting for records of flights; Ctrl+C ends\n"


INTERRUPTED = """
import os, signal, sys
from kafkacore.cli import query
from kafkacore.cli.app import run

before = query.TopicScan._batches

def batches(self):
    yield from before(self)
    os.kill(os.getpid(), signal.SIGINT)

query.TopicScan._batches = batches
sys.exit(run(["query", "select count(*) from flights f, range(10000000000) r where f.delay + r.range > 5"]))
"""


def test_ctrl_c_ends_a_query_that_duckdb_computes(cluster):
    done = run_python("-c", INTERRUPTED, env={"KAFKACORE_BOOTSTRAP_SERVERS": cluster.bootstrap_servers})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_consumer_s_kinds_of_values(cluster):
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        found = {name: query.kind_of(consumer, name) for name in ("flights", "my-names.v1", "bytes", "empty", "bad")}
    assert found == {"flights": "json", "my-names.v1": "string", "bytes": "binary", "empty": "json", "bad": "json"}
