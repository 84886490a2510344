"""Where the controller lives: its lock, its log, and those who follow the log.

Rules:

1. Everything here happens under one lock, which is held for a decision and never while waiting: no socket, no other lock but a
   follower's queue of messages. [test_followers_hear_of_it_under_the_lock_before_the_answer_and_read_at_their_own_pace,
   test_who_waits_for_the_cluster_does_not_hold_the_controllers_lock]
2. A request's records are appended, replayed and offered to the followers before its response is given out, so a client with a response
   can find its records. [test_followers_hear_of_it_under_the_lock_before_the_answer_and_read_at_their_own_pace]
3. Followers read the log at their own pace, from the offset their image has reached. What all have read is dropped from memory.
   [test_followers_hear_of_it_under_the_lock_before_the_answer_and_read_at_their_own_pace]

Source: org.apache.kafka.controller.QuorumController, org.apache.kafka.raft.RaftClient.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kafkacore import errors
from kafkacore.broker.cluster import FEATURES, ClusterImage, new_uuid, uuid_text
from kafkacore.broker.controller import brokers
from kafkacore.broker.controller.log import MetadataLog
from kafkacore.broker.controller.periodic import Periodic
from kafkacore.broker.controller.snapshots import SnapshotId
from kafkacore.broker.controller.state import ControllerState, Requester
from kafkacore.broker.controller.writer import Controller
from kafkacore.broker.log import Piece
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.clock import Clock, SystemClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import KafkaError, UsageError
from kafkacore.protocol.metadata_log import AbortTransactionRecord, MetadataRecord
from kafkacore.protocol.schema import Request, Response

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RecordBatch(NamedTuple):
    """Records that were written together."""

    base_offset: int
    records: Sequence[MetadataRecord]

    @property
    def next_offset(self) -> int:
        """Of the record after them."""
        return self.base_offset + len(self.records)


class Follower(Protocol):
    """Who keeps an image of its own."""

    def records_written(self) -> None:
        """There is more to read. Called under the controller's lock, from any thread: it must only leave a message."""

    def applied_offset(self) -> int:
        """How far its image has got."""


class ControllerHost:
    """The controller of a cluster, for brokers of this process or behind a listener."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        cluster_id: str | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        features: Mapping[str, int] | None = None,
        supported_features: Mapping[str, tuple[int, int]] = FEATURES,
        clock: Clock | None = None,
        state: ControllerState | None = None,
        has_log: bool = False,
    ) -> None:
        """A new cluster without brokers, or the one that the directory holds.

        Args:
            config: settings; Kafka's defaults if left out.
            cluster_id: of a new cluster; a random one if left out.
            directory: for the metadata log; None keeps it in memory.
            features: finalized levels by name; where not given those of the directory, or the highest ones.
            supported_features: (lowest, highest) level by name.
            clock: for sessions of brokers.
            state: for tests: an empty image, with a placer or ids of their own.
            has_log: without a directory, too, a `ControllerServer` can serve the log: it is kept in memory from its first record on.

        Raises:
            UsageError: the directory is in use, or a feature's level is not supported.
            KafkaStorage: the directory cannot be used.
            CorruptDataError, UnsupportedVersion: the log cannot be read.
        """
        self.config = config or BrokerConfig()
        self.clock: Clock = clock or SystemClock()
        self._log: MetadataLog | None = None
        if directory is not None or has_log:
            self._log = MetadataLog(directory, self.config, self.clock, cluster_id or uuid_text(new_uuid()))
            cluster_id = self._log.cluster_id
        self.controller = Controller(self.config, cluster_id, state, supported_features)
        self._lock = threading.RLock()
        self._moved = threading.Condition(self._lock)
        self._followers: list[Follower] = []
        self._history: deque[RecordBatch] = deque()
        self._leaving: dict[int, Callable[[], None]] = {}
        self._periodic = Periodic(self.config, self.clock.now_ms())
        if self._log is not None:
            try:
                self._replay(self._log)
            except BaseException:
                self._log.close()
                raise
        with self._lock:
            if self._log is not None and self._log.replay.is_open:
                self._write([AbortTransactionRecord(reason="the controller that began it is gone")])
            self._name_what_is_not_served()
            if not self.controller.image.features:
                self._write(self.controller.bootstrap())
            self._write(self.controller.finalize(features or {}))
            self._write(brokers.nobody_is_alive(self.controller.state))

    def _replay(self, log: MetadataLog) -> None:
        snapshot = log.load_snapshot()
        if snapshot is not None:
            self.controller.replay(snapshot.records, snapshot.id.end_offset)
        for next_offset, records in log.batches(self.controller.image.next_offset):
            self.controller.replay(records, next_offset)

    def _name_what_is_not_served(self) -> None:
        image = self.controller.image
        unknown = {name: level for name, level in image.features.items() if name not in image.supported_features}
        if unknown:
            logger.warning("the directory is of a Kafka with features that are kept, and not served here: %s", unknown)
        for topic in image.topics.values():
            for name, why in TopicConfig.refused(topic.config.overrides, image.config).items():
                logger.warning("topic %s: %s is kept, and has no effect here: %s", topic.name, name, why)

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self.controller.image.cluster_id

    def read(self, look: Callable[[ClusterImage], T]) -> T:
        """Looks at the controller's image. The function must not keep what changes, nor wait."""
        with self._lock:
            return look(self.controller.image)

    def submit(self, request: Request, version: int, requester: Requester | None = None) -> tuple[Response, int]:
        """Carries out a request.

        Args:
            request: of an API the controller serves.
            version: of the API.
            requester: the client it comes from; None if it comes from a broker or from this process.

        Returns:
            The response, and the offset an image must have reached to know what it tells.
        """
        with self._lock:
            written = self.controller.handle(request, version, self.clock.now_ms(), requester, self.clock.wall_ms())
            self._write(written.records)
            return written.response, self.controller.image.next_offset

    def wait_until(self, condition: Callable[[ControllerState], bool], timeout_s: float) -> bool:
        """Waits for something to become true of the cluster; for threads that may wait, so no broker's.

        Returns:
            Whether it did in time.
        """
        with self._lock:
            return self._moved.wait_for(lambda: condition(self.controller.state), timeout_s)

    def broker_lost(self, broker_id: int, epoch: int) -> None:
        """A broker is known to be dead: it is fenced at once. Nothing happens if a newer incarnation has registered."""
        with self._lock:
            self._write_if_possible(brokers.fence_lost_broker(self.controller.state, broker_id, epoch))

    def reached(self, broker_id: int, epoch: int, offset: int) -> None:
        """A broker has applied the log up to an offset."""
        with self._lock:
            session = self.controller.state.sessions.get(broker_id)
            if session is not None and session.epoch == epoch:
                session.metadata_offset = max(session.metadata_offset, offset)
            waiting = [node for node in self._leaving if node != broker_id]
            for node in waiting:
                self._leaving.pop(node)()
            self._moved.notify_all()

    def when_others_move(self, broker_id: int, notify: Callable[[], None]) -> None:
        """Notifies a broker that waits for the others, once, when another has applied more. `notify` must only leave a message."""
        with self._lock:
            self._leaving[broker_id] = notify

    def do_what_is_due(self) -> int:
        """Fences the brokers that were silent for broker.session.timeout.ms; elects leaders where that is due.

        Returns:
            Milliseconds until there may be something to do again.
        """
        with self._lock:
            now_ms, state = self.clock.now_ms(), self.controller.state
            state.wall_ms = self.clock.wall_ms()
            while records := brokers.fence_silent_broker(state, now_ms) or self._periodic.run(state, now_ms):
                if not self._write_if_possible(records):
                    break
            expiry_ms = brokers.next_expiry_ms(state)
            sessions_ms = self.config.broker_session_timeout_ms if expiry_ms is None else expiry_ms - now_ms
            return min(sessions_ms, self._periodic.next_deadline_ms() - now_ms)

    # ---- the log

    def open(self) -> None:
        """Takes the directory again after `close`; the image is as it was."""
        with self._lock:
            if self._log is not None:
                self._log.open()

    def close(self) -> None:
        """Gives the directory back. Nothing can be written until `open`."""
        with self._lock:
            if self._log is not None:
                self._log.close()

    def _write(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        batch = RecordBatch(self.controller.image.next_offset, records)
        if self._log is not None:
            self._log.append(records)
        self.controller.replay(records, batch.next_offset)
        self._history.append(batch)
        self._trim()
        if self._log is not None and self._log.snapshot_is_due():
            self._log.take_snapshot(self.controller.image.records())
        for follower in self._followers:
            follower.records_written()
        self._moved.notify_all()

    def _write_if_possible(self, records: Sequence[MetadataRecord]) -> bool:
        """Writes what no request asked for, so that a failure goes to the log file, not into an answer."""
        try:
            self._write(records)
        except KafkaError as error:
            logger.error("the controller cannot write its log: %s", error)
            return False
        return True

    def _trim(self) -> None:
        needed = min((follower.applied_offset() for follower in self._followers), default=self.controller.image.next_offset)
        while self._history and self._history[0].next_offset <= needed:
            self._history.popleft()

    def follow(self, follower: Follower) -> tuple[list[MetadataRecord], int]:
        """Adds a follower with an empty image.

        Returns:
            The records that bring it up to date, and the offset of what follows them.
        """
        with self._lock:
            self._followers.append(follower)
            return list(self.controller.image.records()), self.controller.image.next_offset

    def epoch(self) -> int:
        """In which the log is written."""
        with self._lock:
            return self._served_log().epoch

    def end_offset(self) -> int:
        """Of the next record."""
        with self._lock:
            return self.controller.image.next_offset

    def read_log(self, offset: int, max_bytes: int) -> tuple[list[Piece], int]:
        """Batches of the log, from the one that holds an offset, and where the log ends.

        Raises:
            UsageError: the controller keeps no log: it has neither a directory nor `has_log`.
        """
        with self._lock:
            log = self._served_log().log
            if offset >= log.end_offset:
                return [], log.end_offset
            return log.read(offset, max_bytes, log.end_offset, at_least_one=True), log.end_offset

    def _served_log(self) -> MetadataLog:
        if self._log is None:
            raise UsageError("this controller keeps no log that could be read: give it a directory, or has_log=True")
        return self._log

    def snapshot_for(self, offset: int) -> SnapshotId | None:
        """The snapshot that a follower needs who wants to read from an offset; None if the log has what it wants."""
        with self._lock:
            log = self._served_log()
            return log.snapshots.ids[-1] if log.snapshots is not None and offset < log.log.start_offset else None

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """Bytes of a snapshot from a position on, and the size of its file.

        Raises:
            SnapshotNotFound: there is no such snapshot, or it is deleted.
            PositionOutOfRange: the file is shorter.
            KafkaStorage: it cannot be read.
        """
        with self._lock:
            snapshots = self._served_log().snapshots
            if snapshots is None or snapshot not in snapshots.ids:
                raise errors.SnapshotNotFound(f"there is no snapshot {snapshot.file_name}")
            try:
                data, size = snapshots.read(snapshot, position, max_bytes)
            except OSError as error:
                raise errors.KafkaStorage(f"{snapshots.path(snapshot)} cannot be read: {error}") from error
            if not 0 <= position < size:
                raise errors.PositionOutOfRange(f"{snapshot.file_name} has {size} bytes, position {position} is not among them")
            return data, size

    def unfollow(self, follower: Follower) -> None:
        """A follower that will not come back."""
        with self._lock:
            self._followers.remove(follower)
            self._trim()

    def batches_from(self, offset: int) -> list[RecordBatch]:
        """What was written from an offset on."""
        with self._lock:
            return [batch for batch in self._history if batch.base_offset >= offset]
