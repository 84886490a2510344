"""A partitioner of your own: keys that are busy have the last partition for themselves, so that their backlog holds up no other key.

It prints where each key went.

    python examples/hot_keys.py orders --hot "customer-1,customer-7" customer-1 customer-2 customer-7
"""

import argparse
import random
from typing import Any

from kafkacore import KafkaProducer


class HotDataPartitioner:
    """Keys that contain one of the hot words go to the last partition, all others to any other."""

    def __init__(self, hot: list[str]) -> None:
        self._hot = hot

    def __call__(self, topic: str, key: Any, value: Any, cluster: Any) -> int:
        available = [partition.index for partition in cluster.available_partitions(topic)]
        if len(available) == 1 or (key is not None and any(word in key for word in self._hot)):
            return available[-1]
        return random.choice(available[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("keys", nargs="+")
    parser.add_argument("--hot", default="hot_data", help="words, with commas (default %(default)s)")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()

    partitioner = HotDataPartitioner(options.hot.split(","))
    with KafkaProducer(bootstrap_servers=options.bootstrap_server, partitioner=partitioner) as producer:
        futures = [(key, producer.send(options.topic, b"an order", key=key)) for key in options.keys]
        producer.flush()
    for key, future in futures:
        print(f"{key}: partition {future.result().partition}")


if __name__ == "__main__":
    main()
