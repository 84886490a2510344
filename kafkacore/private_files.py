"""Files that hold records, state or secrets: their owner may read them, other users of the machine may not.

A mode that a file or directory has already is left: its owner may have opened it to a group on purpose.

Source: CWE-276, CWE-732.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


def make_directory(path: Path) -> None:
    """Makes a directory, and those above it that are missing; nothing where it is there.

    Raises:
        OSError: it cannot be made.
    """
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(DIRECTORY_MODE, exist_ok=True)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def open_file(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Opens a file; one that is made by that is its owner's alone.

    Args:
        path: of the file.
        mode: as of `open`.
        options: further arguments of `open`.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, mode, opener=_opener, **options)


def write_file(path: Path, content: bytes) -> None:
    """Writes a file whole.

    Raises:
        OSError: it cannot be written.
    """
    with open_file(path, "wb") as file:
        file.write(content)
