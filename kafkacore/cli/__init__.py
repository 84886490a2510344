"""The command line. Its libraries (typer, rich) are an extra; without them the command says so in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process: status 0 ok, 1 failed, 2 wrong usage.

    Args:
        arguments: what follows the program's name; None for sys.argv.
    """
    try:
        from kafkacore.cli.app import run
    except KeyboardInterrupt:  # while its libraries are loading
        sys.exit(130)
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        print(f"kafkacore: the command line needs the package {missing.name}: pip install 'kafkacore[cli]'", file=sys.stderr)
        sys.exit(1)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
