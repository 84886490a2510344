"""Builds and runs nullbroker.c: a broker that costs almost nothing, so that what is measured is the client."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def _compiler() -> list[str]:
    """The C compiler: $CC with its words ("ccache gcc"), or Python's own."""
    if given := os.environ.get("CC"):
        return shlex.split(given)
    return shlex.split(sysconfig.get_config_var("CC") or "cc")[:1]


@functools.cache
def binary() -> Path:
    """The program, compiled once by each process that wants it, unless its parent has: $NULLBROKER is where."""
    if given := os.environ.get("NULLBROKER"):
        return Path(given)
    directory = Path(tempfile.mkdtemp(prefix="nullbroker-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    flags = ["-O2", "-w", "-I", str(HERE.parent / "kafkacore" / "native")]
    subprocess.run([*_compiler(), *flags, "-o", str(directory / "nullbroker"), str(HERE / "nullbroker.c"), "-lpthread"], check=True)
    return directory / "nullbroker"


class NullBroker:
    """A running null broker.

    Args:
        partitions: partitions that every topic has.
        batches: topic name -> the one record batch that its fetches are answered with, again and again.
        high_watermark: end offset of every partition.
        verify: read and check the CRC of every produced batch instead of dropping it in the kernel.
    """

    def __init__(
        self, partitions: int = 4, batches: dict[str, bytes] | None = None, high_watermark: int = 1 << 40, verify: bool = False
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="nullbroker-"))
        atexit.register(self.close)
        for topic, batch in (batches or {}).items():
            (self._directory / f"{topic}.batch").write_bytes(batch)
        command = [str(binary()), "0", str(partitions), str(self._directory), str(high_watermark), *(["--verify"] if verify else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.pid = self._process.pid

    def counters(self) -> dict[str, float]:
        """What it counted so far: requests, batches, records, bytes, bad CRCs and its CPU seconds."""
        self._process.send_signal(signal.SIGUSR1)
        assert self._process.stdout is not None
        counted: dict[str, float] = json.loads(self._process.stdout.readline())
        return counted

    def close(self) -> None:
        """End it and remove its directory; harmless when repeated."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> NullBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
