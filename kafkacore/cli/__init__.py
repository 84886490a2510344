"""The command line. Its libraries (typer, rich) are an extra; without them the command says so in one line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def _open_standard_streams() -> None:
    """Gives a stream that the caller has closed (`>&-`) a descriptor that fails as a closed one does, so that no socket gets its number.

    Nothing can be said on a closed stderr: that one takes everything.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        with contextlib.suppress(OSError):
            os.close(number)  # open, but not as a stream of this kind
        descriptor = os.open(os.devnull, os.O_WRONLY if name in ("stdin", "stderr") else os.O_RDONLY)
        setattr(sys, name, open(descriptor, "w" if number else "r", closefd=False))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process: status 0 ok, 1 failed, 2 wrong usage.

    Args:
        arguments: what follows the program's name; None for sys.argv.
    """
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that does not know a letter of a name is shown its escape
            stream.reconfigure(errors="backslashreplace")
    try:
        from kafkacore.cli.app import run
    except KeyboardInterrupt:  # while its libraries are loading
        sys.exit(130)
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        print(f"kafkacore: the command line needs the package {missing.name}: pip install typer rich", file=sys.stderr)
        sys.exit(1)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
