"""Programs that tests run: a Python with this checkout's package, to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
GUARD_S = 120.0
Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """This process's, with the checkout first among Python's paths."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def run_python(*arguments: str, timeout: float = GUARD_S, env: dict[str, str] | None = None, **options: Any) -> Done:
    """Runs `python ARGUMENTS`; what it prints is text, and its return code the test's to look at."""
    command, more = [sys.executable, *arguments], environment(**(env or {}))
    return subprocess.run(command, env=more, capture_output=True, text=True, timeout=timeout, **options)


class Saying:
    """A Python program in a process of its own. Each line that it prints is a list as JSON, which begins with a word.

    Attributes:
        said: the lists so far.
    """

    def __init__(self, program: str, *arguments: str, flags: tuple[str, ...] = (), guard_s: float = GUARD_S) -> None:
        command = [sys.executable, *flags, "-c", textwrap.dedent(program), *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment())
        self.guard = threading.Timer(guard_s, self.process.kill)
        self.guard.start()
        self.said: list[list[Any]] = []

    def __enter__(self) -> Saying:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.guard.cancel()

    def hear(self, word: str) -> Any:
        """Waits until it says this word, and returns what came last in that line."""
        assert self.process.stdout is not None and self.process.stderr is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if self.said[-1][0] == word:
                return self.said[-1][-1]
        raise AssertionError(f"it ended: {self.said}, {self.process.stderr.read()}")

    def go_on(self, line: str = "") -> None:
        """It may read a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ended(self) -> tuple[int, str]:
        """Its return code and what it wrote to stderr."""
        out, err = self.process.communicate()
        self.guard.cancel()
        self.said += [json.loads(line) for line in out.splitlines()]
        return self.process.returncode, err


def run_program(body: str, *arguments: str) -> Done:
    """Runs the text of a program, which may be indented; what Python warns of is not shown."""
    return run_python("-W", "ignore", "-c", textwrap.dedent(body), *arguments)
