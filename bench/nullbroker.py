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
from typing import Any

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


def group_answers(topic: str, partitions: int) -> dict[tuple[int, int], bytes]:
    """What a coordinator says to the one member of a classic group: it gets all partitions by range, nothing is committed yet."""
    from kafkacore import TopicPartition
    from kafkacore import protocol as p
    from kafkacore.consumer.group.assignor import MemberAssignment, encode_assignment
    from kafkacore.protocol import group as g

    indexes = range(partitions)
    assignment = encode_assignment(MemberAssignment(tuple(TopicPartition(topic, index) for index in indexes)))
    fetched = [g.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="") for index in indexes]
    committed = [g.OffsetCommitResponsePartition(partition_index=index) for index in indexes]
    answers: list[tuple[Any, int, Any]] = [
        # the newest versions that all clients know
        (p.JoinGroupRequest, 5, p.JoinGroupResponse(generation_id=1, protocol_name="range", leader="another", member_id="member")),
        (p.SyncGroupRequest, 3, p.SyncGroupResponse(assignment=assignment)),
        (p.HeartbeatRequest, 3, p.HeartbeatResponse()),
        (p.LeaveGroupRequest, 1, p.LeaveGroupResponse()),
        (p.OffsetFetchRequest, 3, p.OffsetFetchResponse(topics=[g.OffsetFetchResponseTopic(name=topic, partitions=fetched)])),
        (p.OffsetCommitRequest, 3, p.OffsetCommitResponse(topics=[g.OffsetCommitResponseTopic(name=topic, partitions=committed)])),
    ]
    return {(api.API_KEY, version): b"".join(bytes(part) for part in body.encode(version)) for api, version, body in answers}


class NullBroker:
    """A running null broker.

    Args:
        partitions: partitions that every topic has.
        batches: topic name -> the one record batch that its fetches are answered with, again and again.
        high_watermark: end offset of every partition.
        verify: read and check the CRC of every produced batch instead of dropping it in the kernel.
        answers: (API key, version) -> the body that its requests are answered with; see `group_answers`.
    """

    def __init__(
        self,
        partitions: int = 4,
        batches: dict[str, bytes] | None = None,
        high_watermark: int = 1 << 40,
        verify: bool = False,
        answers: dict[tuple[int, int], bytes] | None = None,
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="nullbroker-"))
        atexit.register(self.close)
        for topic, batch in (batches or {}).items():
            (self._directory / f"{topic}.batch").write_bytes(batch)
        for (key, version), body in (answers or {}).items():
            (self._directory / f"{key}-{version}.answer").write_bytes(body)
        command = [str(binary()), "0", str(partitions), str(self._directory), str(high_watermark), *(["--verify"] if verify else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.pid = self._process.pid

    def counters(self) -> dict[str, float]:
        """What it counted so far: requests, batches, records, bytes, bad CRCs, its CPU seconds; requests by `answers` as "apiKEY"."""
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
