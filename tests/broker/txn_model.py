"""A transaction shard without a log: operations are applied as the runtime would, and every record is kept to be replayed elsewhere."""

from kafkacore import errors
from kafkacore.broker.coordinator_shard import ReplayedRecord
from kafkacore.broker.txns.shard import ProducerIdAndEpoch, TransactionShard

T0 = 1_700_000_000_000
TXN = "txn"
P0, P1 = ("topic", 0), ("topic", 1)


class NoTimers:
    def schedule(self, key, delay_ms, operation):
        raise AssertionError("a shard sets no timers itself")

    def cancel(self, key):
        raise AssertionError("a shard sets no timers itself")

    def is_scheduled(self, key):
        return False


class Keeper:
    """Applies operations to a shard."""

    def __init__(self, version=2, first_id=1000):
        self.version = version
        self.next_id = first_id
        self.shard = self.new_shard()
        self.shard.loaded()
        self.log = []
        self.now_ms = T0

    def new_shard(self):
        return TransactionShard(0, NoTimers(), lambda: self.version, self._new_id)

    def _new_id(self):
        self.next_id += 1
        return self.next_id - 1

    def apply(self, result):
        """Writes and replays; the decision, whose error is raised as its client would see it."""
        for record in result.records:
            self.log.append(record)
            self.shard.replay(ReplayedRecord(len(self.log) - 1, -1, -1, *record))
        if result.appended is not None:
            result.appended(None)
        decision = result.response
        if getattr(decision, "error", None) is not None:
            raise decision.error
        return decision

    def reload(self):
        """A new coordinator reads the log."""
        self.shard.unloaded()
        self.shard = self.replayed()

    def replayed(self):
        shard = self.new_shard()
        for offset, record in enumerate(self.log):
            shard.replay(ReplayedRecord(offset, -1, -1, *record))
        shard.loaded()
        return shard

    @property
    def txn(self):
        return self.shard.transactions[TXN]

    @property
    def state(self):
        return self.txn.state.label

    def init(self, expected=None, timeout_ms=60_000):
        return self.apply(self.shard.init_producer_id(TXN, timeout_ms, expected, self.now_ms)).producer

    def add(self, producer, *partitions, client=2):
        return self.apply(self.shard.add_partitions(TXN, producer, partitions or (P0,), client, self.now_ms)).producer

    def end(self, producer, commit, client=2):
        return self.apply(self.shard.end(TXN, producer, commit, client, self.now_ms)).producer

    def complete(self):
        """All markers are written."""
        prepared = self.txn
        assert self.shard.marked(prepared, prepared.partitions)
        self.apply(self.shard.complete(prepared, self.now_ms))

    def outcome(self, act):
        """The code of an operation, 0 without an error."""
        try:
            act()
        except errors.KafkaError as error:
            return error.code
        return 0


def next_epoch(producer, by=1):
    return ProducerIdAndEpoch(producer.producer_id, producer.epoch + by)
