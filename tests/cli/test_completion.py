"""What the shell completes, asked for as the shell does; and help texts."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from kafkacore.cli import completion, help_text
from kafkacore.cli.app import application, being_completed, first_word, run
from kafkacore.testing import EmbeddedCluster
from tests.kit.commands import Commands
from tests.kit.rows import each_row

ROOT: Any = typer.main.get_command(application([]))
help_text.tidy(ROOT)


@pytest.fixture(scope="module")
def at() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        for name in ("flights", "flags", "other"):
            cluster.create_topic(name)
        assert run(["groups", "reset", "readers", "flights", "--to", "earliest", "--execute", "-b", cluster.bootstrap_servers]) == 0
        yield cluster.bootstrap_servers


def completed(at: str, *typed: str) -> list[str]:
    """What zsh is offered for the last word. The environment names the cluster."""
    environment = {
        **os.environ,
        "KAFKACORE_BOOTSTRAP_SERVERS": at,
        "_KAFKACORE_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": " ".join(("kafkacore", *typed)),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kafkacore"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def test_completions(at: str) -> None:
    assert completed(at, "consume", "fl") == ["flags", "flights"]
    source = staticmethod(lambda parameter: None)
    context: Any = type("Context", (), {"params": {"bootstrap_server": at, "topics": ["flags"]}, "get_parameter_source": source})
    assert completion.topics(context, "fl") == ["flights"]  # flags stands there already
    assert completion.groups(context, "") == ["readers"]
    assert completion.brokers(context, "") == ["1"]
    assert completion.words("one", "two")("O") == ["one"]
    assert completion.listed("read", "write")("read,w") == ["read,write"]


@each_row("servers", ["127.0.0.1:1", "no-such-host.invalid", "::1", "host:port"])
def test_a_completion_that_fails_is_silent_and_quick(servers: str, capfd: pytest.CaptureFixture[str]) -> None:
    context: Any = type("Context", (), {"params": {"bootstrap_server": servers, "setting": ["nonsense"]}})
    assert completion.topics(context, "") == []
    context.params.pop("setting")
    assert completion.topics(context, "") == []
    assert capfd.readouterr() == ("", "")


def test_a_broker_that_says_nothing_holds_a_completion_for_a_second() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        context: Any = type("Context", (), {"params": {"bootstrap_server": f"127.0.0.1:{silent.getsockname()[1]}"}})
        start = time.monotonic()
        assert completion.topics(context, "") == []
        assert time.monotonic() - start < 25  # 1 s, on a machine that is busy; other commands wait for 30 s


def commands(command: Any = ROOT, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its path."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}".strip())


COMPLETED = {
    "": "groups group --topic --group --broker --broker-logger --operation --isolation --key-format --value-format -f",
    "produce": "topic -c --format",
    "consume": "topics -g --from --to",
    **dict.fromkeys(("topics offsets", "topics trim", "perf produce"), "topic"),
    **dict.fromkeys(("topics create", "topics describe", "topics alter", "topics delete", "groups reset", "perf consume"), "topics"),
    "groups delete-offsets": "topics",
    "groups list": "--state",
    "users set": "--mechanism",
}
"""The arguments and options whose values the shell completes, by command; "" for all commands."""
JSON = {"consume": "As --format json"} | dict.fromkeys(("dump-log", "broker", "query", "groups lag"), "an object a line")


@each_row(("path", "command"), [*commands()], ids=[path for path, _ in commands()])
def test_help_reads_well(path: str, command: Any, monkeypatch: pytest.MonkeyPatch, cli: Commands) -> None:
    """In 80 columns: nothing is cut off, no types of Python, no doubled brackets; every command and option has a sentence."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    shown = cli(*path.split(), "--help")
    assert max(map(len, shown.splitlines())) <= 80
    assert re.search(r"--help +-h +Show this", shown)  # with no type: it takes no value
    for odd in ("<bool>", "<str>", "<int", "<list", "[[", "{TOPIC", "...]...", "…"):
        assert odd not in shown, odd
    assert command.help and command.help.rstrip().endswith((".", ")"))
    assert not hasattr(command, "commands") or command.no_args_is_help
    completed = {param.opts[0] for param in command.params if getattr(param, "_custom_shell_complete") is not None}  # noqa: B009
    wanted = {*COMPLETED[""].split(), *COMPLETED.get(path, "").split()}
    assert completed == wanted & {param.opts[0] for param in command.params}
    for param in command.params:
        if getattr(param, "hidden", False) or (param.name == "partition" and path.startswith("transactions")):
            continue
        assert param.help, param.name
        assert "--json" not in param.opts or JSON.get(path, "one JSON document") in param.help
        assert re.search(r"[.)]$", param.help) or "completion" in param.name, (param.name, param.help)


def test_the_shape_of_a_usage_line(cli: Commands) -> None:
    for words, usage in (
        (["produce"], "produce [OPTIONS] TOPIC [FILE...]"),
        (["groups", "reset"], "groups reset [OPTIONS] GROUP [TOPIC...]"),
        (["topics", "create"], "topics create [OPTIONS] TOPIC..."),
        (["configs", "set"], "configs set [OPTIONS] [KEY=VALUE...]"),
    ):
        assert usage in cli(*words, "--help")
    cli("topics", "create", status=2)
    assert "Missing argument 'TOPIC...'" in cli.err


@each_row(
    ("typed", "named"),
    [
        ("kafkacore consume fl", "consume"),
        ("kafkacore topic ", "topics"),
        ("kafkacore pro", None),
        ("kafkacore ", None),
        ("", None),
        ("kafkacore topics consume f", None),  # leads to another command
    ],
)
def test_what_is_completed_loads_its_command_alone(monkeypatch: pytest.MonkeyPatch, typed: str, named: str | None) -> None:
    for variable in ("_TYPER_COMPLETE_ARGS", "COMP_WORDS"):
        monkeypatch.setenv(variable, typed)
        assert first_word(being_completed()) == named
        commands = typer.main.get_command(application([])).commands  # type: ignore[attr-defined]
        assert {*commands} == {named} if named else len(commands) > 10
        monkeypatch.delenv(variable)
