"""Words of kcat, Kafka's scripts and rpk, from the table itself; lines as hands type them: each works the same here, or is answered."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kafkacore import ProducerRecord
from kafkacore.cli.app import application, run
from kafkacore.cli.foreign import translated
from kafkacore.cli.foreign_words import SPELLINGS, TABLE, Foreign, Spelling
from kafkacore.cli.options import separator_of, with_ports
from kafkacore.testing import EmbeddedCluster
from tests.kit.commands import Commands
from tests.kit.rows import each_row

ROOT: Any = typer.main.get_command(application([]))


@pytest.fixture(scope="module")
def at() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def test_no_word_stands_twice() -> None:
    assert len(TABLE) == len(SPELLINGS)


@each_row("row", SPELLINGS, ids=[f"{row.command} {row.theirs}" for row in SPELLINGS])
def test_a_row_leads_to_words_of_ours(row: Spelling) -> None:
    """Theirs is none of ours; what it becomes is a command, or an option of that command that takes what is given."""
    command, path = ROOT, row.command.split()
    for word in path:
        command = command.commands[word]
    own = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    subcommands = getattr(command, "commands", {})
    assert row.theirs not in own and row.theirs not in subcommands
    value, made = row.sample if row.turn else ("VALUE", "VALUE")
    typed = [*path, row.theirs, value]
    if row.answer:
        assert not row.ours
        with pytest.raises(Foreign, match=re.escape(row.theirs)):
            translated(ROOT, typed)
        for named in re.findall(r"`kafkacore ([a-z- ]+?)(?:[A-Z\[|]| --|`)", row.answer):
            below = ROOT
            for word in named.split():
                below = below.commands[word]
        return
    first, *more = row.ours.split() or [""]
    if subcommands:
        found = translated(ROOT, typed)
        if first.startswith("/"):
            assert first[1:] in ROOT.commands and found[0] == first[1:]
        else:
            assert not first or first in subcommands or first.startswith("--")
            assert found[len(path)] == (first or value)
    elif row.ours == "{}":
        found = translated(ROOT, [*path, "other", row.theirs, value])
        assert sorted(found) == sorted([*path, "other", *made.split()])
        assert all(word in own for word in found if word.startswith("-"))
    elif first.startswith("/"):
        assert translated(ROOT, [*typed[:-1], "describe"]) == [first[1:], "describe"]
    elif not row.theirs.startswith("-"):
        assert not first and translated(ROOT, [*path, row.theirs]) == path
    else:
        assert not first or own[first].is_flag == (not more)
        expected = [word.replace("{}", value) for word in row.ours.split()] + ([] if "{}" in row.ours else [value])
        assert translated(ROOT, typed) == path + expected


SCRIPTS = {
    "kcat": "",
    "rpk": "",
    "kafka-topics.sh": "topics",
    "kafka-console-consumer.sh": "consume",
    "kafka-console-producer.sh": "produce",
    "kafka-consumer-groups.sh": "groups",
    "kafka-configs.sh": "configs",
    "kafka-producer-perf-test.sh": "perf produce",
    "kafka-transactions.sh": "transactions",
    "kafka-cluster.sh": "cluster",
}
"""The command here in whose place a script stands."""

SAME = [
    ("kcat consume flights -k -t", "consume flights -k -t"),
    ("kcat produce t -- -t", "produce t -- -t"),
    ("kafka-topics.sh --topic ls --describe", "topics describe ls"),
    ("kcat consume --topic=flights --from-beginning --max-messages=2", "consume flights --from earliest --max 2"),
    ("kafka-consumer-groups.sh --delete-offsets --topic t --group g", "groups delete-offsets g t"),
    ("rpk group offset-delete g -t t:0,1", "groups delete-offsets g t:0,1"),
    ("rpk topic trim-prefix t -o 5 -p 0,1 --no-confirm", "topics trim t --to 5 -p 0,1 --yes"),
    ("kcat -C -b h -t flights -o -5 -e", "consume flights -b h --from -5 -e"),
    ("kcat -b h -C -t flights -p 0 -o 10 -c 1", "consume flights -b h -p 0 --from 10 --max 1"),
    ("kcat -b h -t flights -C -q -u -e", "consume flights --from earliest -b h -e"),  # kcat's begins at the start
    ("kcat -b h -G readers flights copy", "consume -g readers -b h flights copy"),
    ("kcat -P -b h -t flights -K: -z snappy", "produce flights -b h -k : --compression snappy"),
    ("kafka-topics.sh --bootstrap-server h --describe --exclude-internal", "topics describe --bootstrap-server h"),
    ("kafka-console-consumer.sh --topic t --partition 0 --offset 5", "consume t --partition 0 --from 5"),
    ("kafka-console-consumer.sh --topic t --consumer-property auto.offset.reset=earliest", "consume t -X auto.offset.reset=earliest"),
    ("kafka-console-producer.sh --topic t --producer-property acks=all --compression-codec lz4", "produce t -X acks=all --compression lz4"),
    ("kafka-consumer-groups.sh --bootstrap-server h --describe --all-groups", "groups describe --bootstrap-server h"),
    ("kafka-consumer-groups.sh --describe --group g --members --verbose", "groups describe g"),
    ("kafka-consumer-groups.sh --bootstrap-server h --delete --group g --group h2", "groups delete g h2 --bootstrap-server h"),
    ("kafka-consumer-groups.sh --group g --reset-offsets --all-topics --to-latest --dry-run", "groups reset g --to latest --dry-run"),
    (
        "kafka-configs.sh --entity-type topics --entity-name t --alter --delete-config retention.ms,cleanup.policy",
        "configs set --topic t --delete retention.ms --delete cleanup.policy",
    ),
    ("kafka-configs.sh --entity-type broker-loggers --entity-name 1 --describe", "configs describe --broker-logger 1"),
    ("kafka-transactions.sh --bootstrap-server h describe --transactional-id x", "transactions describe x --bootstrap-server h"),
    ("kafka-cluster.sh cluster-id --bootstrap-server h", "cluster --bootstrap-server h"),
    ("rpk topic describe t -c", "topics describe t --configs"),
    ("rpk topic consume t -o :end", "consume t --from earliest -e"),
    ("rpk topic produce t -k key -z lz4 -H a:b", "produce t -k key --compression lz4 -H a:b"),
    ("rpk group seek g --to end --topics t", "groups reset g --to end t"),
    ("rpk cluster health", "cluster"),
    ("rpk acl user create bob", "users set bob"),
    ("rpk topic list --format json", "topics list --json"),
]
ANSWERED = [
    ("kcat -b h -L", "-L: `kafkacore cluster` shows the brokers, `kafkacore topics describe [TOPIC...]` partitions"),
    ("kcat -C -b h -t flights -s value=i", "-s value=i: --value-format avro|protobuf|json and --key-format, with --registry URL"),
    ("kcat -Q -b h -t flights:0:1767225600000", "-Q: `kafkacore topics offsets TOPIC --time MS` shows offsets by time"),
    ("kafka-producer-perf-test.sh --topic t --producer-props acks=1", "--producer-props: settings go one by one: -X KEY=VALUE"),
    ("rpk profile use prod", "profile: profiles are tables of a file, [profiles.NAME]: `kafkacore cluster --profile NAME`"),
    ("kafka-topics.sh --zookeeper z --list", "--zookeeper: Kafka has no ZooKeeper any more: -b HOST:PORT names a broker"),
    ("kafka-console-producer.sh --topic t --compression-codec", "Option '--compression-codec' requires an argument."),
    ("kafka-console-producer.sh --topic t --batch-size 100 --timeout 100 --sync", "--batch-size: -X batch.size=BYTES"),
    ("kafka-consumer-groups.sh --group g --reset-offsets --topic t:0,1 --shift-by -10", "--topic t:0,1: all partitions of a topic "),
    (
        "kafka-configs.sh --entity-type users --entity-name a --alter --add-config 'SCRAM-SHA-256=[password=x]'",
        "--entity-type users: quotas: `",
    ),
    ("rpk topic list -d", "-d: `kafkacore topics describe` shows partitions"),
    ("rpk topic consume t -o +5", "-o +5: --from is earliest, latest, an offset, -N or @TIME; --to, -e and --max say where reading ends"),
    ("rpk topic consume t -r '^a'", "-r ^a: topics are named one by one: `kafkacore consume TOPIC...`; --registry"),
    ("rpk topic add-partitions t -n 3", "add-partitions: `kafkacore topics alter TOPIC --partitions N` with N in all"),
    ("rpk topic describe-storage t", "describe-storage: KafkaAdminClient.describe_log_dirs shows sizes, from Python"),
    ("rpk cluster config get log.retention.ms", "config: `kafkacore configs describe|set|unset --broker-defaults`, or --broker ID"),
    ("rpk security user create bob -p x", "-p: others see a command line: type it, or --password secret://env/NAME"),
    ("rpk topic list --user a --password b --sasl-mechanism SCRAM-SHA-256", "--user: -X security.protocol=SASL_SSL -X sasl.mechani"),
    ("kafka-consumer-groups.sh --bootstrap-server h --list --state", "Option '--state' requires an argument."),
    ("kcat -b h -t flights", "-b: say what to do: -C reads a topic, -P sends to one"),
]


def arguments(line: str) -> list[str]:
    tool, *words = shlex.split(line)
    return shlex.split(SCRIPTS[tool]) + words


@each_row(("line", "ours"), SAME, ids=[line for line, _ in SAME])
def test_a_line_that_means_the_same(line: str, ours: str) -> None:
    """It becomes these words of ours, and they are a command line: with arguments, without an unknown option."""
    words = translated(ROOT, arguments(line))
    assert words == shlex.split(ours)
    command, context = ROOT, None
    while words:
        name = words.pop(0)
        command = command.commands[name]
        if not hasattr(command, "commands"):
            command.make_context(name, words, parent=context)
            break
    assert translated(ROOT, shlex.split(ours)) == shlex.split(ours)


@each_row(("line", "answer"), ANSWERED, ids=[line for line, _ in ANSWERED])
def test_a_line_that_is_answered(line: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With status 2, before anything is asked of a cluster."""
    assert run(arguments(line)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kafkacore: {answer}") and said.count("\n") == 1


def test_the_table_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    rows = re.findall(r"^\| `kafkacore (.*)` \| `kafkacore (.*)` \|$", page, re.MULTILINE)
    assert len(rows) == 24
    for typed, ours in rows:
        assert translated(ROOT, shlex.split(typed)) == shlex.split(ours)


def test_as_typed_against_a_broker(at: str, cli: Commands) -> None:
    assert cli("topics", "--bootstrap-server", at, "--create", "--topic", "typed", "--partitions", "2") == "created typed\n"
    assert cli("topics", "--list", "--bootstrap-servers", at) == "typed\n"
    assert cli("-C", "-b", at, "-t", "typed", "-o", "beginning", "-e", "-J") == ""
    cli("consume", "typed", "-b", at, "--property", "print.key=true", status=2)
    assert "prints keys" in cli.err
    assert "Usage:" in cli("help")


def test_escapes_and_ports(at: str, tmp_path: Path, cli: Commands) -> None:
    found = [separator_of(each) for each in (r"\t", r"\x1f", r"\\", "|", r"a\q")]
    assert found == [b"\t", b"\x1f", b"\\", b"|", rb"a\q"]
    assert with_ports("localhost, h:1,[::1],[::1]:5,::1") == "localhost:9092,h:1,[::1]:9092,[::1]:5,::1"
    (tmp_path / "lines").write_bytes(b"k\tv\n")
    cli("produce", "tabs", str(tmp_path / "lines"), "-b", at, "-k", r"\t")
    record = cli.json("consume", "tabs", "-b", at, "--from", "start", "-e")
    assert (record["key"], record["value"]) == ("k", "v")


def test_groups_are_moved_to_the_places_that_reading_begins_at(at: str, cli: Commands) -> None:
    with EmbeddedCluster() as cluster:
        where = ["-b", cluster.bootstrap_servers, "--json"]
        now = int(time.time() * 1000)
        cluster.create_topic("places", partitions=1)
        ages_ms = (7_200_000, 1_800_000, 60_000, 0)
        cluster.produce("places", [ProducerRecord("places", b"v", timestamp_ms=now - age_ms) for age_ms in ages_ms])
        for place, offset in (
            ("beginning", 0),
            ("start", 0),
            ("end", 4),
            ("-1", 3),
            ("-99", 0),
            ("2", 2),
            ("99999999999999999999", 4),
            ("@-1h", 1),
            ("@-5m", 2),
            ("@-1h1m", 1),
            ("@-9d", 0),
            (f"@{now}", 3),
            ("@2999-01-01", 4),
            ("@2026-05-01T12:00", 0),
        ):
            (found,) = json.loads(cli("groups", "reset", "g", "places", "--to", place, *where))
            assert found["offset"] == offset, place
        for wrong in ("@yesterday", "@-1x", "@-", "soon", "-"):
            cli("groups", "reset", "g", "places", "--to", wrong, *where, status=2)
            assert "--to" in cli.err
