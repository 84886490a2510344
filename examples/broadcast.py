"""Every process gets every record: each process has a group of its own.

Each process keeps the newest value of every key in memory, as a cache of prices or of settings does. Processes in one group would share
the partitions, and each would know a part of the keys only. Nothing is committed: a cache in memory is filled from the start of the topic
again after a restart, and a group without offsets leaves nothing behind on the brokers.

    python examples/broadcast.py prices --process web-1
    python examples/broadcast.py prices --process web-2     # in another terminal: gets the same records
"""

import argparse

from kafkacore import KafkaConsumer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--process", required=True, help="a name of this process that no other one has")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()

    newest: dict[bytes | None, bytes | None] = {}
    with KafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap_server,
        group_id=f"broadcast.{options.process}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        try:
            for record in consumer:
                newest[record.key] = record.value
                print(f"{options.process}: {record.key!r} is {record.value!r} ({len(newest)} keys)", flush=True)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
