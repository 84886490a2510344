"""The metadata log on disk, `__cluster_metadata-0`: what the controller decided, in Kafka's file format.

    <directory>/meta.properties                 cluster.id, node.id
    <directory>/__cluster_metadata-0/*.log      one batch per decision, one record per fact

`DumpLogSegments --cluster-metadata-decoder` reads it. The controller loads it by replaying it from its start: there are no snapshots, so it
grows with every decision, by about 60 bytes for each partition that changes. Like all logs it is synced to the disk as flush.messages and
flush.ms say, by default when it is closed.

Source: org.apache.kafka.raft.KafkaRaftClient, kafka.raft.KafkaMetadataLog.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkacore.broker.cluster import TopicConfig
from kafkacore.broker.log import LogManager
from kafkacore.broker.log.checkpoints import META_PROPERTIES, read_meta_properties
from kafkacore.broker.worker import InlineWorker
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import CorruptDataError, RecordTooLarge
from kafkacore.protocol.metadata_log import MetadataRecord, decode_record, encode_record
from kafkacore.records import BatchBuilder, read_batches

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
CONTROLLER_ID = 3000
"""Node id of the controller; clients never see it."""
LEADER_EPOCH = 1
_READ_BYTES = 1 << 20
_MAX_BATCH_BYTES = 64 << 20


class MetadataLog:
    """The log and its directory."""

    def __init__(self, directory: str | os.PathLike[str], config: BrokerConfig, clock: Clock, new_cluster_id: str) -> None:
        """Takes the directory and recovers the log.

        Args:
            directory: for the log; made if necessary.
            config: segments, indexes, flushes.
            clock: for the batches' timestamps.
            new_cluster_id: the cluster's id if the directory is new.

        Raises:
            UsageError: the directory is in use, or not a controller's.
            KafkaStorage: it cannot be used.
        """
        self.cluster_id = read_meta_properties(Path(directory) / META_PROPERTIES).get("cluster.id", new_cluster_id)
        self._clock = clock
        self._logs = LogManager(config, [directory], InlineWorker(), clock)
        self._config = config
        self.open()

    def open(self) -> None:
        """Takes the directory and recovers the log, at first and after `close`; nothing happens if it is open.

        Raises:
            UsageError, KafkaStorage: as in the constructor.
        """
        if not self._logs.is_open:
            self._logs.start({"cluster.id": self.cluster_id, "node.id": str(CONTROLLER_ID)})
            self.log = self._logs.open(METADATA_TOPIC, METADATA_TOPIC_ID, 0, TopicConfig.build({}, self._config))

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Writes the records of one decision as one batch.

        Raises:
            KafkaStorage, RecordTooLarge: they are not in the log.
        """
        wall_ms = self._clock.wall_ms()
        builder = BatchBuilder(max_bytes=_MAX_BATCH_BYTES)
        for record in records:
            if not builder.append(encode_record(record), timestamp_ms=wall_ms):
                raise RecordTooLarge(f"{len(records)} records of one decision do not fit a batch of {_MAX_BATCH_BYTES} bytes")
        batch = next(iter(read_batches(builder.build(), check_crcs=False)))
        self.log.append(batch, LEADER_EPOCH, wall_ms=wall_ms)

    def batches(self) -> Iterator[tuple[int, list[MetadataRecord]]]:
        """All that was written: the first offset of each batch, and its records.

        Raises:
            CorruptDataError, UnsupportedVersion: a record cannot be read, and without it the rest means nothing.
        """
        offset = self.log.start_offset
        if offset:
            raise CorruptDataError(f"the metadata log begins at offset {offset}: the records before are gone")
        while offset < self.log.end_offset:
            for piece in self.log.read(offset, _READ_BYTES, self.log.end_offset, at_least_one=True):
                data = piece if isinstance(piece, memoryview) else piece.read()
                for batch in read_batches(data):
                    yield batch.base_offset, [decode_record(record.value or b"") for record in batch.records()]
                    offset = batch.last_offset + 1

    def close(self) -> None:
        """Writes everything to the disk and gives the directory back."""
        self._logs.close()
