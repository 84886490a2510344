"""Commits by hand, a commit per batch, when the whole batch is done: at least once.

A process that is killed between the work and the commit leaves its batch to the next member, which does it again. So the work must bear
that; `sqlite_offsets.py` shows how to have each effect once.

    python examples/manual_commit.py orders
"""

import argparse
from collections.abc import Iterable

from kafkacore import ConsumerRecord, KafkaConsumer, errors


def handle(batch: Iterable[ConsumerRecord]) -> None:
    for record in batch:
        print(f"{record.topic}-{record.partition} offset {record.offset}: {record.value!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--group", default="manual-commit")
    parser.add_argument("--batch", type=int, default=100, help="records of one batch at most")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()

    with KafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap_server,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=options.batch,
    ) as consumer:
        try:
            while True:
                polled = consumer.poll(timeout=None)
                for records in polled.values():
                    handle(records)
                try:
                    consumer.commit()  # the positions: everything that poll has returned
                except errors.RebalanceInProgress:
                    continue  # poll takes part in the rebalance; the positions of what this member keeps are committed the next time
                except errors.CommitFailed as error:
                    print(f"another member does this batch again: {error}", flush=True)
                else:
                    print(f"committed {sum(map(len, polled.values()))} records", flush=True)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
