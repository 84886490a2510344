"""Tasks of one event loop work on the records of a group side by side: those of a partition in order, and only what is done is committed.

A partition is paused while a batch of it is worked on: poll goes on with records of the others, and keeps the member in its group.
SIGTERM and Ctrl+C let each task finish its record; then what is done is committed and the group left, so that the next member goes on with
the first record that was not worked on. One task uses the consumer; the others only work.

    python examples/async_workers.py orders --tasks 8
"""

import argparse
import asyncio
import signal
from collections.abc import Collection, Iterable

from kafkacore import ConsumerRecord, TopicPartition, errors
from kafkacore.aio import KafkaConsumer, RebalanceListener


async def handle(record: ConsumerRecord, seconds: float) -> None:
    """The work, here a wait as for a database or another service."""
    print(f"{record.topic}-{record.partition} offset {record.offset}: begun {record.value!r}", flush=True)
    await asyncio.sleep(seconds)
    print(f"{record.topic}-{record.partition} offset {record.offset}: done", flush=True)


class Workers(RebalanceListener):
    """Works on one batch of each partition at a time."""

    def __init__(self, consumer: KafkaConsumer, group: asyncio.TaskGroup, tasks: int, seconds: float) -> None:
        self._consumer = consumer
        self._group = group
        self._free = asyncio.Semaphore(tasks)
        self._seconds = seconds
        self._batches: dict[TopicPartition, asyncio.Task[None]] = {}
        self._done: dict[TopicPartition, int] = {}  # offsets to commit: of the first record that is not done
        self._leaving: set[TopicPartition] = set()

    def begin(self, tp: TopicPartition, records: list[ConsumerRecord]) -> None:
        self._consumer.pause(tp)
        self._batches[tp] = self._group.create_task(self._work(tp, records))

    async def _work(self, tp: TopicPartition, records: list[ConsumerRecord]) -> None:
        for record in records:
            async with self._free:
                if tp in self._leaving:
                    return
                await handle(record, self._seconds)
            self._done[tp] = record.offset + 1

    @property
    def busy(self) -> bool:
        return bool(self._batches)

    async def settle(self) -> None:
        """Commits what is done, and lets partitions go on whose batch is done."""
        for tp in [tp for tp, batch in self._batches.items() if batch.done()]:
            del self._batches[tp]
            self._consumer.resume(tp)
        done, self._done = self._done, {}
        try:
            if done:
                await self._consumer.commit(done)
        except errors.RebalanceInProgress:
            self._done = done | self._done  # after the next poll, which takes part in the rebalance

    async def finish(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends the work on partitions with the records under way, and commits."""
        self._leaving.update(partitions)
        if batches := [self._batches.pop(tp) for tp in partitions if tp in self._batches]:
            await asyncio.wait(batches)
        self._leaving.difference_update(partitions)
        await self.settle()

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self.finish(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:  # another member has them and begins where the last commit was
            if batch := self._batches.pop(tp, None):
                batch.cancel()
            self._done.pop(tp, None)


async def work(topic: str, options: argparse.Namespace) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap_server,
        group_id=options.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=100,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, consumer.wakeup)
    async with consumer, asyncio.TaskGroup() as group:
        workers = Workers(consumer, group, options.tasks, options.seconds)
        consumer.subscribe([topic], listener=workers)
        try:
            while True:
                for tp, records in (await consumer.poll(timeout=0.05 if workers.busy else None)).items():
                    workers.begin(tp, records)
                await workers.settle()
        except errors.WakeupError:
            await workers.finish(consumer.assignment())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--group", default="async-workers")
    parser.add_argument("--tasks", type=int, default=8, help="records that are worked on at once, at most one of each partition")
    parser.add_argument("--seconds", type=float, default=0.1, help="what a record takes")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()
    asyncio.run(work(options.topic, options))


if __name__ == "__main__":
    main()
