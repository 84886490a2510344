"""What people see on a terminal: tables, messages, progress bars. Apart from the options, since rich takes its time to load."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

# Nothing in a record or a name is markup. In a pipe tables are as wide as they need to be.
_PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False}
console = Console(**_PLAIN, width=None if sys.stdout.isatty() else 1000)
messages = Console(**_PLAIN, stderr=True, width=None if sys.stderr.isatty() else 1000)


def byte_progress(description: str, total: int | None, *, visible: bool = True) -> Progress:
    """A bar over bytes on stderr, only where a person looks."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[records]:,} records"),
        TimeElapsedColumn(),
        console=messages,
        transient=True,
        disable=not (visible and messages.is_terminal),
    )
    bar.add_task(description, total=total, records=0)
    return bar


def record_progress(description: str, total: int | None, *, visible: bool = True) -> Progress:
    """A bar over records on stderr, only where a person looks."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=messages,
        transient=True,
        disable=not (visible and messages.is_terminal),
    )
    bar.add_task(description, total=total)
    return bar
