"""Work that takes longer than max_poll_interval_ms: threads do it, and polling goes on so that the member stays in its group.

A partition with a batch under way is paused: poll hands out nothing of it, but takes part in rebalances and shows the group that this
member lives. When the batch is done its offset is committed and the partition resumed. Before partitions go to another member, the batches
of these are finished and committed.

    python examples/slow_work.py films --seconds 30 --max-poll-interval-ms 10000
"""

import argparse
import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from kafkacore import ConsumerRecord, KafkaConsumer, TopicPartition
from kafkacore.consumer import RebalanceListener


def convert(records: list[ConsumerRecord], seconds: float) -> int:
    """The slow work, on a thread of the pool. Returns the offset to commit."""
    for record in records:
        time.sleep(seconds)
        print(f"{record.topic}-{record.partition} offset {record.offset}: done", flush=True)
    return records[-1].offset + 1


class Batches(RebalanceListener):
    """The batches that threads are working on, at most one of each partition."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._under_way: dict[TopicPartition, Future[int]] = {}

    def begin(self, tp: TopicPartition, batch: Future[int]) -> None:
        self._under_way[tp] = batch
        self._consumer.pause(tp)

    def finish(self, tp: TopicPartition) -> None:
        """Waits for a batch, which is done already or about to be given up, and commits it."""
        next_offset = self._under_way.pop(tp).result()
        self._consumer.commit({tp: next_offset})
        print(f"{tp.topic}-{tp.partition}: committed {next_offset}", flush=True)
        self._consumer.resume(tp)

    def finish_those_done(self) -> None:
        for tp in [tp for tp, batch in self._under_way.items() if batch.done()]:
            self.finish(tp)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self._under_way:
                self.finish(tp)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:  # another member has them and does their batches again
            self._under_way.pop(tp, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--group", default="converters")
    parser.add_argument("--seconds", type=float, default=30.0, help="what a record takes")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--max-poll-interval-ms", type=int, default=300_000)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()

    with (
        ThreadPoolExecutor(options.threads) as pool,
        KafkaConsumer(
            bootstrap_servers=options.bootstrap_server,
            group_id=options.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=10,
            max_poll_interval_ms=options.max_poll_interval_ms,
        ) as consumer,
    ):
        batches = Batches(consumer)
        consumer.subscribe([options.topic], listener=batches)
        try:
            while True:
                for tp, records in consumer.poll(timeout=0.1).items():
                    batches.begin(tp, pool.submit(convert, records, options.seconds))
                batches.finish_those_done()
        except KeyboardInterrupt:
            pass  # the end of the blocks finishes what is under way, commits it and leaves the group


if __name__ == "__main__":
    main()
