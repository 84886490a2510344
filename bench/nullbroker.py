"""Builds and runs nullbroker.c: a broker that costs almost nothing, so that what is measured is the client."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


class NullBroker:
    """A running null broker.

    Args:
        partitions: partitions that every topic has.
        batches: topic name -> the one record batch that its fetches are answered with, for ever.
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
        binary = self._directory / "nullbroker"
        compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
        flags = ["-O2", "-w", "-I", str(HERE.parent / "kafkacore" / "native")]
        subprocess.run([compiler, *flags, "-o", str(binary), str(HERE / "nullbroker.c"), "-lpthread"], check=True)
        command = [str(binary), "0", str(partitions), str(self._directory), str(high_watermark), *(["--verify"] if verify else [])]
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
