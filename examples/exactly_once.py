"""Consume, transform, produce: each record has its effect once, whenever a process or a broker dies.

The results and the offsets that they came from are in one transaction: readers with `isolation_level="read_committed"` see both or neither.
An error that calls for an abort costs the batch a second try: the consumer goes back to where the batch began. After any other error the
program ends, and its next start goes on from the committed offsets: `init_transactions` ends what the last process left open, and that
comes before the first offset is read. A process that another one with its name has replaced is fenced: it ends and has no effect.

The name is the transactional id and the static member id, so a process that comes back has its partitions at once. Several processes share
the work with a name each.

    python examples/exactly_once.py orders invoices --name invoicing-1
"""

import argparse
from collections.abc import Mapping

from kafkacore import ConsumerRecord, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors

Polled = Mapping[TopicPartition, list[ConsumerRecord]]


def transform(value: bytes | None) -> bytes | None:
    """The work."""
    return None if value is None else value.upper()


def copy(consumer: KafkaConsumer, producer: KafkaProducer, polled: Polled, target: str) -> None:
    """A transaction: the results of a batch, and its offsets."""
    with producer.transaction():
        for records in polled.values():
            for record in records:
                producer.send(target, transform(record.value), key=record.key, timestamp_ms=record.timestamp_ms)
        offsets = {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in polled.items()}
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())


def go_back(consumer: KafkaConsumer, polled: Polled) -> None:
    """The next poll returns the batch again. Partitions that are lost by now begin at their committed offsets, wherever they are read."""
    for tp in consumer.assignment() & polled.keys():
        consumer.seek(tp, polled[tp][0].offset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("target")
    parser.add_argument("--name", required=True, help="a name of this process that no other one has, and that it keeps")
    parser.add_argument("--group", default="exactly-once")
    parser.add_argument("--batch", type=int, default=500, help="records of one transaction at most")
    parser.add_argument("--tries", type=int, default=5, help="aborts in a row after which the program ends")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()

    producer = KafkaProducer(bootstrap_servers=options.bootstrap_server, transactional_id=options.name)
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap_server,
        group_id=options.group,
        group_instance_id=options.name,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=options.batch,
    )
    with producer, consumer:
        aborts = 0
        try:
            producer.init_transactions()
            consumer.subscribe([options.topic])
            while True:
                polled = consumer.poll(timeout=None)
                if not polled:
                    continue
                try:
                    copy(consumer, producer, polled, options.target)
                except errors.KafkaError as error:
                    aborts += 1
                    if error.fatal or not error.txn_requires_abort or aborts == options.tries:
                        raise
                    print(f"aborted: {error}", flush=True)
                    go_back(consumer, polled)
                else:
                    aborts = 0
                    print(f"committed {sum(map(len, polled.values()))} records", flush=True)
        except (errors.ProducerFenced, errors.FencedInstanceId) as error:
            raise SystemExit(f"another process has the name {options.name}: {error}") from None
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
