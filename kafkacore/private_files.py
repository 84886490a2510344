"""Files that hold records, state or secrets: their owner may read them, other users of the machine may not.

A mode that a file or directory has already is left: its owner may have opened it to a group on purpose.

Source: CWE-276, CWE-732.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
_LOCK_NAME = "owner.lock"


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


class OwnedDirectory:
    """A temporary directory that goes with its owner, also when that is killed: then the next one of its kind removes it.

    The owner keeps a lock on a file in it, which the system frees when the process is gone, whatever ended it. A directory without that
    file was left before anything was in it, and stays.

    Attributes:
        path: of the directory.
    """

    def __init__(self, prefix: str) -> None:
        """Makes the directory, after those of the same prefix that this user's processes left.

        Args:
            prefix: how its name begins; its own for each kind of content.

        Raises:
            OSError: it cannot be made.
        """
        for each in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _remove_left(each)
        while True:
            self._temporary = tempfile.TemporaryDirectory(prefix=prefix)
            self.path = Path(self._temporary.name)
            with contextlib.suppress(FileNotFoundError):
                lock = os.open(self.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT, FILE_MODE)
                self._unlock = weakref.finalize(self, os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(lock), os.stat(self.path / _LOCK_NAME)):
                    return
            self.close()  # another process found it between these steps, and took it for one that is left

    def close(self) -> None:
        """Removes the directory."""
        self._temporary.cleanup()
        self._unlock()


def _remove_left(directory: Path) -> None:
    """Removes a directory whose owner is gone; not another user's, nor what a link leads to."""
    try:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        lock = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except BlockingIOError:
        pass  # its owner is there
    finally:
        os.close(lock)
