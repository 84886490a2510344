"""Words of kcat, Kafka's scripts and rpk: from the table itself, and command lines as hands type them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kafkacore.cli.app import _app, run
from kafkacore.cli.foreign import SPELLINGS, TABLE, Foreign, Spelling, translated
from kafkacore.cli.options import separator_of, with_ports
from kafkacore.testing import EmbeddedCluster

ROOT: Any = typer.main.get_command(_app([]))


@pytest.fixture(scope="module")
def at() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def test_no_word_stands_twice() -> None:
    assert len(TABLE) == len(SPELLINGS)


@pytest.mark.parametrize("row", SPELLINGS, ids=[f"{row.command} {row.theirs}" for row in SPELLINGS])
def test_a_row_leads_to_words_of_ours(row: Spelling) -> None:
    """Theirs is none of ours; what it becomes is a command, or an option of that command that takes what is given."""
    command, path = ROOT, row.command.split()
    for word in path:
        command = command.commands[word]
    own = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    subcommands = getattr(command, "commands", {})
    assert row.theirs not in own and row.theirs not in subcommands
    typed = [*path, row.theirs, "VALUE"]
    if row.answer:
        assert not row.ours
        with pytest.raises(Foreign, match=row.theirs):
            translated(ROOT, typed)
        return
    first, *more = row.ours.split() or [""]
    if subcommands:
        assert first in subcommands or first == "--help"
        assert translated(ROOT, typed)[len(path)] == first
    elif first == "{}":
        assert translated(ROOT, [*path, "other", row.theirs, "VALUE"]) == [*path, "VALUE", "other"]
    else:
        assert not first or own[first].is_flag == (not more)
        expected = [word if word != "{}" else "VALUE" for word in row.ours.split()] + ([] if "{}" in more else ["VALUE"])
        assert translated(ROOT, typed) == path + expected


@pytest.mark.parametrize(
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
    assert len(rows) == 11
    for typed, ours in rows:
        assert translated(ROOT, shlex.split(typed)) == shlex.split(ours)


def test_as_typed_against_a_broker(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "--bootstrap-server", at, "--create", "--topic", "typed", "--partitions", "2"]) == 0
    assert run(["topics", "--list", "--bootstrap-servers", at]) == 0
    assert capsys.readouterr().out.splitlines() == ["created typed", "typed"]
    assert run(["-C", "-b", at, "-t", "typed", "-o", "beginning", "-e", "-J"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["consume", "typed", "-b", at, "--property", "print.key=true"]) == 2
    assert "keys are printed with -k" in capsys.readouterr().err
    assert run(["help"]) == 0
    assert "Usage:" in capsys.readouterr().out


def test_escapes_and_ports(at: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [separator_of(each) for each in (r"\t", r"\x1f", r"\\", "|", r"a\q")]
    assert found == [b"\t", b"\x1f", b"\\", b"|", rb"a\q"]
    assert with_ports("localhost, h:1,[::1],[::1]:5,::1") == "localhost:9092,h:1,[::1]:9092,[::1]:5,::1"
    (tmp_path / "lines").write_bytes(b"k\tv\n")
    assert run(["produce", "tabs", str(tmp_path / "lines"), "-b", at, "-k", r"\t"]) == 0
    assert run(["consume", "tabs", "-b", at, "--from", "start", "-e", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["key"], record["value"]) == ("k", "v")
