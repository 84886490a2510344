"""Each effect once: a database keeps the results and, in the same transaction, the offsets that they came from.

The records are payments: the key is an account, the value an amount. The database says where to go on, not the group: when partitions are
assigned the consumer seeks to the offsets that it holds. A process that is killed has done a batch and moved its offset, or neither.

A member that has lost its partitions without knowing it may still write. So each transaction first looks at the offset again, and leaves
out the records before it: another member has done them.

    python examples/sqlite_offsets.py payments --database accounts.db
"""

import argparse
import sqlite3
from collections.abc import Collection, Iterable

from kafkacore import ConsumerRecord, KafkaConsumer, TopicPartition
from kafkacore.consumer import RebalanceListener

TABLES = """
CREATE TABLE IF NOT EXISTS accounts (account TEXT PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, partition));
"""


class Accounts:
    """Balances, and the offsets of the payments that are in them."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.executescript(TABLES)

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Where to go on; None where no payment was booked yet."""
        row = self._database.execute("SELECT next_offset FROM offsets WHERE topic = ? AND partition = ?", tp).fetchone()
        return None if row is None else int(row[0])

    def book(self, tp: TopicPartition, payments: Iterable[ConsumerRecord]) -> int:
        """Books payments of a partition and moves its offset, both or neither. Returns how many were new."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")  # from here on no other process writes
        with database:
            done = self.next_offset(tp) or 0
            new = [record for record in payments if record.offset >= done]
            database.executemany(
                "INSERT INTO accounts VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET balance = balance + excluded.balance",
                [((record.key or b"").decode(), int(record.value or b"0")) for record in new],
            )
            if new:
                database.execute("REPLACE INTO offsets VALUES (?, ?, ?)", (*tp, new[-1].offset + 1))
        return len(new)


class FromDatabase(RebalanceListener):
    """Begins where the database says."""

    def __init__(self, consumer: KafkaConsumer, accounts: Accounts) -> None:
        self._consumer = consumer
        self._accounts = accounts

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            offset = self._accounts.next_offset(tp)
            if offset is None:
                self._consumer.seek_to_beginning(tp)
            else:
                self._consumer.seek(tp, offset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--database", required=True)
    parser.add_argument("--group", default="accounts")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()

    accounts = Accounts(options.database)
    with KafkaConsumer(
        bootstrap_servers=options.bootstrap_server,
        group_id=options.group,
        enable_auto_commit=False,  # the group shares the partitions out, and keeps no offsets
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([options.topic], listener=FromDatabase(consumer, accounts))
        try:
            while True:
                for tp, payments in consumer.poll(timeout=None).items():
                    print(f"{tp.topic}-{tp.partition}: booked {accounts.book(tp, payments)} of {len(payments)} payments", flush=True)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
