"""What a partition remembers of its idempotent and transactional producers.

Per producer id: epoch, last five batches, coordinator epoch, and where its open transaction begins. Five batches, because a client may have
that many requests in flight (KIP-98), so a resend of any of them still differs from new data.

Rules:

1. `check` and `check_marker` decide about a batch before it is written and change nothing. `replay` takes in a batch that is in the log,
   whichever broker wrote it, and decides nothing. Leaders call both, followers and recovery `replay` only: all three end in the same state.
   [test_deciding_about_a_batch_or_a_marker_changes_nothing, test_a_snapshot_and_the_rest_of_the_log_give_the_same_state]
2. A transaction is open from its first batch to its marker, and unstable until the high watermark has passed the marker. The last stable
   offset is the first offset of the earliest unstable transaction; see `first_unstable_offset`.
   [test_the_earliest_open_transaction_bounds_what_is_stable]
3. A transactional batch of a producer without an open transaction needs the guard of a verification (KIP-890): the coordinator has said
   that the transaction is open, and no marker has been written since. Without it a late batch would open a transaction without an end.
   [test_a_first_batch_needs_its_guard, test_a_marker_between_verification_and_batch_takes_the_guard_away]
4. A snapshot keeps of each producer the last batch only, as Kafka's. What it leaves out follows from the log after it.
   [test_a_snapshot_and_the_rest_of_the_log_give_the_same_state, test_a_snapshot_has_kafkas_layout]

Snapshot (`.snapshot`):  int16 version 1 | uint32 CRC-32C of the rest | int32 count | count x 46 bytes:
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp, int32 coordinator epoch,
    int64 first offset of the open transaction or -1
Transaction index entry (`.txnindex`), 34 bytes:  int16 version 0 | int64 producer id, first offset, last offset, last stable offset

Source: KIP-98, KIP-890; org.apache.kafka.storage.internals.log.{ProducerStateManager, ProducerAppendInfo, ProducerStateEntry,
VerificationStateEntry, AbortedTxn, TransactionIndex}.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkacore import errors
from kafkacore.codec import crc32c
from kafkacore.errors import CorruptDataError
from kafkacore.records import Batch

if TYPE_CHECKING:
    from kafkacore._codec import Buffer

BATCHES_TO_RETAIN = 5
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1
LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
FIRST_VERSION_WITH_EPOCH_BUMP = 2
"""The transaction.version under which every transaction has an epoch of its own (KIP-890)."""

ABORT, COMMIT = 0, 1
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_ABORTED_VERSION = 0
_ABORTED = struct.Struct(">hqqqq")
ABORTED_TXN_BYTES = _ABORTED.size


class AppendOrigin(enum.Enum):
    """Who writes a batch through the leader: coordinators number no records."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class AbortedTxn(NamedTuple):
    """An entry of the transaction index: readers of committed data skip the producer's batches from first to last offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """The entry as it lies in a `.txnindex` file."""
        return _ABORTED.pack(_ABORTED_VERSION, *self)

    @classmethod
    def decode_all(cls, buffer: Buffer) -> Iterator[AbortedTxn]:
        """The entries of a `.txnindex` file.

        Raises:
            CorruptDataError: a part of an entry, or an unknown version.
        """
        data = memoryview(buffer)
        if data.nbytes % _ABORTED.size:
            raise CorruptDataError(f"a transaction index of {data.nbytes} bytes ends inside an entry of {_ABORTED.size}")
        for version, *fields in _ABORTED.iter_unpack(data):
            if version != _ABORTED_VERSION:
                raise CorruptDataError(f"transaction index entry of version {version}, known is {_ABORTED_VERSION}")
            yield cls(*fields)


def collect_aborted(entries: Iterable[AbortedTxn], offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
    """The aborted transactions that a read of offset..upper_offset touches.

    Args:
        entries: of one segment's index, ascending by last offset.
        offset: the first offset read.
        upper_offset: the end of what is read.

    Returns:
        The entries, and whether later segments can hold no more of them.

    Source: org.apache.kafka.storage.internals.log.TransactionIndex.collectAbortedTxns.
    """
    found = []
    for entry in entries:
        if entry.last_offset >= offset and entry.first_offset < upper_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_offset:
            return found, True
    return found, False


def coordinator_epoch(marker: Batch) -> int:
    """The coordinator epoch in a control batch that ends a transaction.

    Raises:
        CorruptDataError: the marker holds no epoch.
    """
    value = marker.records()[0].value
    if value is None or len(value) < _MARKER_VALUE.size:
        raise CorruptDataError(f"the transaction marker at offset {marker.base_offset} has no coordinator epoch")
    epoch: int = _MARKER_VALUE.unpack_from(value)[1]
    return epoch


def add_sequence(sequence: int, increment: int) -> int:
    """A sequence number further by `increment`, which may be negative; 0 follows 2^31 - 1."""
    return (sequence + increment) & MAX_SEQUENCE


class BatchMetadata(NamedTuple):
    """One batch a producer wrote: its sequence numbers (-1 for none), offsets, and largest timestamp."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry:
    """One producer: its epoch, its last batches (oldest first), and its open transaction."""

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "epoch", "last_timestamp_ms")

    def __init__(
        self,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = -1,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)

    @property
    def last_sequence(self) -> int:
        """Of the last batch; -1 without one."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def set_epoch(self, epoch: int) -> None:
        """Sequences of another epoch say nothing about this one."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class Verification:
    """A question to the coordinator whether a producer's transaction is open; the object itself is the guard.

    Lives until the next batch or marker of the producer is in the log. The lowest sequence seen while waiting is written first: a higher
    one that was verified earlier would make it out of order forever.
    """

    __slots__ = ("epoch", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(self, epoch: int, sequence: int, started_ms: int, supports_epoch_bump: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.started_ms = started_ms
        self.supports_epoch_bump = supports_epoch_bump

    def lower(self, epoch: int, sequence: int) -> None:
        """Another batch asks for the same verification."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        # First offset -> producer id of open transactions. Offsets grow, so the first key is the smallest.
        self.ongoing: dict[int, int] = {}
        # First offset -> offset of the marker, of ended transactions whose marker the high watermark has not passed.
        self.unreplicated: dict[int, int] = {}
        self._verifications: dict[int, Verification] = {}

    # ---- before a batch is written

    def check(
        self,
        batch: Batch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
        *,
        verification_enabled: bool = True,
    ) -> BatchMetadata | None:
        """Decides about a batch of records before it is written; changes nothing.

        Args:
            batch: has a producer id and is no control batch.
            origin: a coordinator's batches carry no sequences.
            verification: the guard with which the transaction was verified, from `start_verification`.
            verification_enabled: transaction.partition.verification.enable.

        Returns:
            None for new data; the earlier batch if this one is a resend.

        Raises:
            InvalidProducerEpoch: a newer epoch of this producer has written.
            OutOfOrderSequence: a gap, a new epoch that does not start at 0, or a resend of something older than five batches.
            InvalidTxnState: a transactional batch outside a transaction, or another kind of batch inside one.
        """
        producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        entry = self.entries.get(producer_id)
        from_client = origin is AppendOrigin.CLIENT
        if entry is not None:
            if from_client and epoch == entry.epoch:
                last_sequence = batch.last_sequence
                for earlier in entry.batches:
                    if earlier.first_sequence == sequence and earlier.last_sequence == last_sequence:
                        return earlier
            if epoch < entry.epoch:
                raise errors.InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch {epoch}")
        if (
            batch.is_transactional
            and verification_enabled
            and not self.has_ongoing_transaction(producer_id, epoch)
            and (verification is None or self._verifications.get(producer_id) is not verification)
        ):
            raise errors.InvalidTxnState(f"the batch of producer {producer_id} belongs to no open transaction")
        if from_client:
            self._check_sequence(producer_id, epoch, sequence, entry)
        if not batch.is_transactional and entry is not None and entry.current_txn_first_offset is not None:
            raise errors.InvalidTxnState(f"producer {producer_id} has an open transaction, and the batch is not transactional")
        return None

    def _check_sequence(self, producer_id: int, epoch: int, sequence: int, entry: ProducerEntry | None) -> None:
        verification = self._verifications.get(producer_id)
        if verification is not None:
            if verification.supports_epoch_bump and sequence != 0 and (entry is None or not entry.batches):
                raise errors.OutOfOrderSequence(
                    f"producer {producer_id} begins with sequence {sequence} instead of 0, and has no batches here"
                )
            if sequence > verification.lowest_sequence:
                raise errors.OutOfOrderSequence(
                    f"producer {producer_id} sent sequence {sequence} before {verification.lowest_sequence} was written"
                )
        # Nothing is known of a producer, for instance because retention deleted all of it: any sequence starts it.
        if entry is None or entry.epoch == NO_PRODUCER_EPOCH:
            return
        if epoch != entry.epoch:
            if sequence != 0:
                raise errors.OutOfOrderSequence(f"producer {producer_id} starts epoch {epoch} at sequence {sequence} instead of 0")
            return
        # Without batches the epoch is known from a marker only: it starts at 0 as well.
        expected = add_sequence(entry.last_sequence, 1) if entry.batches else 0
        if sequence != expected:
            raise errors.OutOfOrderSequence(f"producer {producer_id} sent sequence {sequence}, expected {expected}")

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Decides about a marker before it is written; changes nothing.

        Up to transaction.version 1 a marker carries the epoch of the records it ends; with version 2 the next one, so that a late
        marker cannot end the transaction after the one it was meant for.

        Args:
            producer_id, epoch: of the marker.
            coordinator_epoch: of the coordinator that sends it.
            transaction_version: of the transaction.

        Raises:
            InvalidProducerEpoch: the producer has gone on.
            TransactionCoordinatorFenced: a newer coordinator has written a marker.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if transaction_version >= FIRST_VERSION_WITH_EPOCH_BUMP and epoch <= entry.epoch:
            # The same marker once more, after a lost answer or by a coordinator that reloaded: nothing is open, nothing can go wrong.
            if epoch < entry.epoch or entry.current_txn_first_offset is not None:
                raise errors.InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the marker {epoch}")
        elif epoch < entry.epoch:
            raise errors.InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the marker {epoch}")
        if coordinator_epoch < entry.coordinator_epoch:
            raise errors.TransactionCoordinatorFenced(
                f"coordinator epoch {coordinator_epoch} has passed; one of epoch {entry.coordinator_epoch} has ended a transaction here"
            )

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction here, in this very epoch."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.current_txn_first_offset is not None and entry.epoch == epoch

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool
    ) -> Verification | None:
        """Begins to verify a transaction with its coordinator, before the first batch of it is written.

        Args:
            producer_id, epoch, sequence: of the batch.
            now_ms: the time of day.
            supports_epoch_bump: the client speaks transaction.version 2.

        Returns:
            The guard to write with once the coordinator has agreed; None if the transaction is open and needs no verification.

        Raises:
            InvalidProducerEpoch: a newer epoch of this producer has written; a zombie must not hold it up by its low sequence.
        """
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise errors.InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch {epoch}")
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = self._verifications[producer_id] = Verification(epoch, sequence, now_ms, supports_epoch_bump)
        else:
            verification.lower(epoch, sequence)
        return verification

    # ---- after a batch is in the log

    def replay(self, batch: Batch, base_offset: int | None = None, max_timestamp_ms: int | None = None) -> AbortedTxn | None:
        """Takes in a batch that is in the log.

        Args:
            batch: any batch; one without a producer id changes nothing.
            base_offset: its place in the log, where the given bytes do not say it.
            max_timestamp_ms: likewise.

        Returns:
            The entry for the transaction index if the batch is a marker that aborted something.

        Raises:
            CorruptDataError: a control batch that cannot be read.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        first_offset = batch.base_offset if base_offset is None else base_offset
        if batch.is_control:
            return self._replay_marker(batch, first_offset)
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry()
        timestamp_ms = batch.max_timestamp_ms if max_timestamp_ms is None else max_timestamp_ms
        last_offset = first_offset + (batch.last_offset - batch.base_offset)
        entry.set_epoch(batch.producer_epoch)
        entry.batches.append(BatchMetadata(batch.base_sequence, batch.last_sequence, first_offset, last_offset, timestamp_ms))
        entry.last_timestamp_ms = timestamp_ms
        if batch.is_transactional and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = first_offset
            self.ongoing[first_offset] = producer_id
        self._verifications.pop(producer_id, None)
        return None

    def _replay_marker(self, batch: Batch, offset: int) -> AbortedTxn | None:
        if batch.record_count == 0:
            return None  # compaction took the whole transaction away
        kind = batch.control_type
        if kind not in (ABORT, COMMIT):
            return None
        epoch = coordinator_epoch(batch)
        producer_id = batch.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry()
        entry.set_epoch(batch.producer_epoch)
        entry.coordinator_epoch = epoch
        entry.last_timestamp_ms = batch.max_timestamp_ms
        verification = self._verifications.get(producer_id)
        # With transaction.version 2 the marker of a transaction has the next epoch: one whose epoch has started is not what it ends.
        if verification is not None and not (verification.supports_epoch_bump and verification.epoch >= batch.producer_epoch):
            del self._verifications[producer_id]
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, None
        if first_offset is None:
            return None
        self.ongoing.pop(first_offset, None)
        self.unreplicated[first_offset] = offset
        if kind == COMMIT:
            return None
        return AbortedTxn(producer_id, first_offset, offset, next(iter(self.ongoing), offset + 1))

    # ---- what follows from it

    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction begins that is open, or ended by a marker above the high watermark; None without one."""
        ongoing = next(iter(self.ongoing), None)
        if not self.unreplicated:
            return ongoing
        unreplicated = min(self.unreplicated)
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def high_watermark_updated(self, high_watermark: int) -> bool:
        """Transactions whose markers are below the high watermark are stable now.

        Returns:
            Whether there were any.
        """
        if not self.unreplicated:
            return False
        stable = [first for first, marker in self.unreplicated.items() if marker < high_watermark]
        for first in stable:
            del self.unreplicated[first]
        return bool(stable)

    def start_offset_updated(self, start_offset: int) -> None:
        """The log begins later: ended transactions below its start hold no reader back. Producers are kept, as in Kafka."""
        self.high_watermark_updated(start_offset)

    def has_late_transaction(self, wall_ms: int, max_timeout_ms: int) -> bool:
        """Whether the oldest open transaction has been silent for so long that its coordinator must have lost it."""
        oldest = next(iter(self.ongoing.values()), None)
        entry = None if oldest is None else self.entries.get(oldest)
        return (
            entry is not None
            and entry.last_timestamp_ms > 0
            and wall_ms - entry.last_timestamp_ms > max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        )

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Forgets producers whose last record or marker is older than producer.id.expiration.ms, unless a transaction is open.

        Returns:
            How many were forgotten.
        """
        old = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.current_txn_first_offset is None and wall_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in old:
            del self.entries[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if wall_ms - verification.started_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(old)

    # ---- starting again from a place in the log

    def to_snapshot(self) -> bytes:
        """The producers in Kafka's `.snapshot` format; the caller names the file by the log's end offset."""
        parts = [_COUNT.pack(len(self.entries))]
        for producer_id, entry in self.entries.items():
            last = entry.batches[-1] if entry.batches else None
            first_offset = entry.current_txn_first_offset
            parts.append(
                _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    entry.last_sequence,
                    last.last_offset if last else -1,
                    last.last_offset - last.first_offset if last else 0,
                    entry.last_timestamp_ms,
                    entry.coordinator_epoch,
                    -1 if first_offset is None else first_offset,
                )
            )
        body = b"".join(parts)
        return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, buffer: Buffer, wall_ms: int | None = None, expiration_ms: int | None = None) -> ProducerStates:
        """Reads a snapshot; the log from its offset on has to be replayed afterwards.

        Args:
            buffer: a whole `.snapshot` file.
            wall_ms, expiration_ms: if given, expired producers are left out, as on Kafka's start.

        Raises:
            CorruptDataError: it is none, or damaged.
        """
        data = memoryview(buffer)
        header = _SNAPSHOT_HEADER.size + _COUNT.size
        if len(data) < header:
            raise CorruptDataError(f"a producer snapshot has at least {header} bytes, not {len(data)}")
        version, crc = _SNAPSHOT_HEADER.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise CorruptDataError(f"producer snapshot of version {version}, known is {_SNAPSHOT_VERSION}")
        body = data[_SNAPSHOT_HEADER.size :]
        if crc32c(body) != crc:
            raise CorruptDataError("the CRC of the producer snapshot is wrong")
        (count,) = _COUNT.unpack_from(body)
        if len(data) - header != count * _SNAPSHOT_ENTRY.size:
            raise CorruptDataError(f"the producer snapshot counts {count} producers in {len(data) - header} bytes")
        states = cls()
        for fields in _SNAPSHOT_ENTRY.iter_unpack(data[header:]):
            producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator_epoch, first_offset = fields
            entry = ProducerEntry(epoch, coordinator_epoch, timestamp_ms, first_offset if first_offset >= 0 else None)
            if last_offset >= 0:
                first_sequence = NO_SEQUENCE if last_sequence < 0 else add_sequence(last_sequence, -offset_delta)
                entry.batches.append(BatchMetadata(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp_ms))
            states.entries[producer_id] = entry
        states.ongoing = dict(
            sorted(
                (entry.current_txn_first_offset, producer_id)
                for producer_id, entry in states.entries.items()
                if entry.current_txn_first_offset is not None
            )
        )
        if wall_ms is not None and expiration_ms is not None:
            states.expire(wall_ms, expiration_ms)
        return states
