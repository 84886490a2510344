"""What people see on a terminal: tables, messages, progress bars. Apart from the options, since rich takes its time to load."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from kafkacore.plurals import counted
from kafkacore.printable import printable


class _PrintableConsole(Console):
    """Every text, cells and titles of tables too, is one line without effect on the terminal: it may be a client's or a broker's."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Called by rich for each str."""
        return super().render_str(printable(text), **how)


# Nothing in a record or a name is markup. In a pipe tables are as wide as they need to be.
_PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False}
console = _PrintableConsole(**_PLAIN, width=None if sys.stdout.isatty() else 1000)
messages = _PrintableConsole(**_PLAIN, stderr=True, width=None if sys.stderr.isatty() else 1000)


def byte_progress(description: str, total: int | None, *, visible: bool = True) -> Progress:
    """A bar over bytes on stderr, only where a person looks."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[records]}"),
        TimeElapsedColumn(),
        console=messages,
        transient=True,
        disable=not (visible and messages.is_terminal),
    )
    bar.add_task(printable(description), total=total, records=counted(0, "record"))
    return bar


def record_progress(description: str, total: int | None, *, visible: bool = True) -> Progress:
    """A bar over records on stderr, only where a person looks."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=messages,
        transient=True,
        disable=not (visible and messages.is_terminal),
    )
    bar.add_task(printable(description), total=total)
    return bar


class Stage:
    """Work that takes its time, and what of it is being done."""

    def __init__(self, what: str, bar: Progress | None = None) -> None:
        self._what = what
        self._bar = bar
        self._at = what

    def next(self, step: str) -> None:
        """The next step begins."""
        self._at = f"{self._what}: {step}"
        if self._bar is None:
            messages.print(self._at)
        else:
            self._bar.update(self._bar.task_ids[0], description=self._at, refresh=True)

    def detail(self, text: str) -> None:
        """How far the step is; for a person who looks on."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=f"{self._at}  {text}")


class Silence(Stage):
    """Nobody wants to know."""

    def __init__(self) -> None:
        super().__init__("")

    def next(self, step: str) -> None:
        """Says nothing."""


@contextmanager
def stage(what: str) -> Iterator[Stage]:
    """Says on stderr what is being done: a line that lives, with its seconds, where a person looks; otherwise a line for each step."""
    if not sys.stderr.isatty():                                   # not rich's word for it, which goes by FORCE_COLOR too
        messages.print(what)
        yield Stage(what)
        return
    # The terminal itself: the process's stderr goes elsewhere while processes are started that talk.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        columns = (TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        live = Progress(*columns, console=Console(**_PLAIN, file=terminal), transient=True, refresh_per_second=1)
        with live as bar:
            bar.add_task(what, total=None)
            yield Stage(what, bar)
