"""Words of kcat, Kafka's scripts and rpk: from the table itself, and command lines as hands type them."""

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
from kafkacore.cli.app import application
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


@each_row(
    ("typed", "ours"),
    [
        ("-C -b h -t flights -o beginning -c 3", "consume flights -b h --from beginning --max 3"),
        ("-P -t flights file -K :", "produce flights file -k :"),
        ("-G readers flights", "consume -g readers flights"),
        ("topics -b h --topic flights --create --partitions 3", "topics create flights -b h --partitions 3"),
        ("topic describe flights", "topics describe flights"),
        ("groups --group g --reset-offsets --to-earliest --execute", "groups reset g --to earliest --execute"),
        ("consume --topic=flights --from-beginning --max-messages=2", "consume flights --from earliest --max 2"),
        ("consume flights -k -t", "consume flights -k -t"),
        ("produce t -- -t", "produce t -- -t"),
        ("topics list", "topics list"),
        ("frobnicate -t x", "frobnicate -t x"),
        ("", ""),
    ],
)
def test_command_lines(typed: str, ours: str) -> None:
    assert translated(ROOT, shlex.split(typed)) == shlex.split(ours)


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
        for group in ("one", "two"):
            cli("groups", "reset", group, "places", "--to", "end", "--execute", *where)
        assert list(json.loads(cli("groups", "describe", *where))) == ["one", "two"]
        cli("groups", "describe", "one", "three", *where, status=1)
        assert list(json.loads(cli.out)) == ["one"] and "three" in cli.err
