"""Which records of the metadata log count, batch for batch: for who reads the log, here or behind a port.

    control batch                        of the quorum of controllers: changes no image, and is kept for snapshots
    Begin ... End                        all records in between count at the end (KIP-868)
    Begin ... Abort                      none does

A transaction may go over many batches, and several may share one. A Kafka that died within one left it open: the next controller aborts it.

Source: org.apache.kafka.image.loader.MetadataBatchLoader, org.apache.kafka.raft.internals.KRaftControlRecordStateMachine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from kafkacore.errors import CorruptDataError
from kafkacore.protocol.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_record,
)

CONTROL_KEY = struct.Struct(">hh")  # version, type
LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(2, 7)
"""Types of control records. Source: org.apache.kafka.common.record.ControlRecordType."""


class Replay:
    """What the batches of a log or snapshot come to, in its order.

    Attributes:
        quorum: the newest record of each type that says who the quorum's voters are, as a Kafka wrote it.
    """

    def __init__(self) -> None:
        """No transaction is open."""
        self.quorum: dict[int, bytes] = {}
        self._open: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun that has not ended."""
        return self._open is not None

    def batch(self, batch: Any) -> list[MetadataRecord]:
        """The records that count once a batch is read.

        Args:
            batch: as `read_batches` gives it.

        Raises:
            CorruptDataError, UnsupportedVersion: a record cannot be read, and without it the rest means nothing.
        """
        if batch.is_control:
            for record in batch.records():
                kind = CONTROL_KEY.unpack_from(record.key or b"\0\0\0\0")[1]
                if kind in (KRAFT_VERSION, KRAFT_VOTERS):
                    self.quorum[kind] = bytes(record.value or b"")
            return []
        return self.records(decode_record(record.value or b"") for record in batch.records())

    def records(self, records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
        """Those of some records, and of the ones before, that count now.

        Args:
            records: the next ones of the log.

        Raises:
            CorruptDataError: a transaction begins in another one, or ends that has not begun.
        """
        counting: list[MetadataRecord] = []
        for record in records:
            if isinstance(record, BeginTransactionRecord):
                if self._open is not None:
                    raise CorruptDataError("a transaction of the metadata log begins within another one")
                self._open = []
            elif isinstance(record, (EndTransactionRecord, AbortTransactionRecord)):
                if self._open is None:
                    raise CorruptDataError("a transaction of the metadata log ends that has not begun")
                if isinstance(record, EndTransactionRecord):
                    counting += self._open
                self._open = None
            else:
                (counting if self._open is None else self._open).append(record)
        return counting
