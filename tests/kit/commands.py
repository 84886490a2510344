"""The command line as tests call it: what a command prints, and the one line that it fails with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkacore.cli.app import run


class Commands:
    """Runs commands in this process; `out` and `err` are what the last one printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: str, status: int = 0) -> str:
        """What it prints on stdout."""
        self.capsys.readouterr()
        found = run(list(words))
        self.out, self.err = self.capsys.readouterr()
        assert found == status, (words, found, self.out, self.err)
        return self.out

    def json(self, *words: str, status: int = 0) -> Any:
        """The document that it prints with --json."""
        return json.loads(self(*words, "--json", status=status))

    def fails(self, *words: str, status: int = 1) -> str:
        """The one line that it leaves on stderr."""
        self(*words, status=status)
        (line,) = self.err.splitlines()
        assert line.startswith("kafkacore: ")
        return line
