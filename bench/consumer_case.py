"""One client that reads in a group, in a process of its own; prints one JSON line. Run by consumer.py.

    python bench/consumer_case.py CASE SERVERS TOPIC GROUP COUNT RECORDS_IN_TOPIC

It begins again at the start of the topic when it has read it all (0: the topic has no end). CPU is user and system time of the whole
process, from when the first records have come; threads of every client count.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 20_000
COMMIT_MS = 200
"""Between two automatic commits: so often that even the shortest run has some."""
WAIT_MS = 100
"""A fetch at the end of the topic waits for so long; it takes no CPU time."""
PATIENCE_S = 60


class Reading:
    """What every case does with its client: read until it has enough, and tell what that took."""

    def __init__(self, count: int, records_in_topic: int) -> None:
        self._count = count
        self._in_topic = records_in_topic
        self._left_in_topic = records_in_topic
        self._begun: tuple[float, float] | None = None
        self._got = 0
        self._heard = time.monotonic()

    def took(self, records: int) -> bool:
        """Counts records; True when it is time to begin the topic again."""
        if records:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > PATIENCE_S:
            raise SystemExit("no record came")
        self._got += records
        if self._begun is None and self._got >= WARM_UP:
            self._got = 0
            self._begun = time.process_time(), time.perf_counter()
        self._left_in_topic -= records
        if self._in_topic and self._left_in_topic <= 0:
            self._left_in_topic = self._in_topic
            return True
        return False

    @property
    def goes_on(self) -> bool:
        return self._begun is None or self._got < self._count

    def result(self) -> dict[str, float]:
        assert self._begun is not None
        cpu, wall = time.process_time() - self._begun[0], time.perf_counter() - self._begun[1]
        return {"cpu_ns": cpu / self._got * 1e9, "wall_ns": wall / self._got * 1e9}


def kafkacore_consumer(servers: str, topic: str, group: str) -> Any:
    from kafkacore import KafkaConsumer

    return KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
        fetch_max_wait_ms=WAIT_MS,
    )


def kafkacore_objects(servers: str, topic: str, group: str, reading: Reading) -> dict[str, float]:
    with kafkacore_consumer(servers, topic, group) as consumer:
        while reading.goes_on:
            got = 0
            for records in consumer.poll(timeout=1, max_records=500).values():
                for record in records:
                    record.value  # noqa: B018 - touched, as an application would
                got += len(records)
            if reading.took(got):
                consumer.seek_to_beginning(*consumer.assignment())
        return reading.result()


def kafkacore_columns(servers: str, topic: str, group: str, reading: Reading) -> dict[str, float]:
    with kafkacore_consumer(servers, topic, group) as consumer:
        while reading.goes_on:
            if reading.took(sum(map(len, consumer.poll_batch(timeout=1)))):
                consumer.seek_to_beginning(*consumer.assignment())
        return reading.result()


def confluent_consume(servers: str, topic: str, group: str, reading: Reading) -> dict[str, float]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
            "fetch.wait.max.ms": WAIT_MS,
        }
    )
    consumer.subscribe([topic])
    while reading.goes_on:
        messages = consumer.consume(500, timeout=0.2)
        for message in messages:
            if message.error() is not None:
                raise SystemExit(f"confluent: {message.error()}")
            message.value()
        if reading.took(len(messages)):
            for where in consumer.assignment():
                consumer.seek(confluent_kafka.TopicPartition(where.topic, where.partition, 0))
    result = reading.result()
    consumer.close()
    return result


def aiokafka_getmany(servers: str, topic: str, group: str, reading: Reading) -> dict[str, float]:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    async def main() -> dict[str, float]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            fetch_max_wait_ms=WAIT_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        await consumer.start()
        while reading.goes_on:
            got = 0
            for records in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                for record in records:
                    record.value  # noqa: B018 - touched, as an application would
                got += len(records)
            if reading.took(got):
                await consumer.seek_to_beginning()
        result = reading.result()
        await consumer.stop()
        return result

    return asyncio.run(main())


def kafka_python_poll(servers: str, topic: str, group: str, reading: Reading) -> dict[str, float]:
    import kafka

    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
        fetch_max_wait_ms=WAIT_MS,
    )
    while reading.goes_on:
        got = 0
        for records in consumer.poll(timeout_ms=1000, max_records=500).values():
            for record in records:
                record.value  # noqa: B018 - touched, as an application would
            got += len(records)
        if reading.took(got):
            consumer.seek_to_beginning()
    result = reading.result()
    consumer.close()
    return result


def by_polls(size: int) -> Callable[[str, str, str, Reading], dict[str, float]]:
    """Polls for so few records that the call is what they cost; 0 means a `for` loop. Without a group where its name is empty."""

    def read(servers: str, topic: str, group: str, reading: Reading) -> dict[str, float]:
        from kafkacore import KafkaConsumer

        settings: dict[str, Any] = {"group_id": group, "auto_commit_interval_ms": COMMIT_MS} if group else {}
        settings |= {"bootstrap_servers": servers, "auto_offset_reset": "earliest", "fetch_max_wait_ms": WAIT_MS}
        with KafkaConsumer(topic, **settings) as consumer:
            if not size:
                for record in consumer:
                    record.value  # noqa: B018 - touched, as an application would
                    reading.took(1)
                    if not reading.goes_on:
                        break
            poll = consumer.poll
            while reading.goes_on:
                got = 0
                for records in poll(1, size).values():
                    for record in records:
                        record.value  # noqa: B018 - touched, as an application would
                    got += len(records)
                reading.took(got)
            return reading.result()

    return read


def confluent_by_polls(size: int) -> Callable[[str, str, str, Reading], dict[str, float]]:
    """The same; `poll` for one record, `consume` for more."""

    def read(servers: str, topic: str, group: str, reading: Reading) -> dict[str, float]:
        import confluent_kafka

        settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "fetch.wait.max.ms": WAIT_MS}
        of_group = {"group.id": group, "auto.commit.interval.ms": COMMIT_MS} if group else {"group.id": "-", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings | of_group)
        if group:
            consumer.subscribe([topic])
        else:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        while reading.goes_on:
            if size > 1:
                messages = consumer.consume(size, timeout=1)
                for message in messages:
                    message.value()
                reading.took(len(messages))
            elif (message := consumer.poll(1)) is not None:
                message.value()
                reading.took(1)
        result = reading.result()
        consumer.close()
        return result

    return read


CASES: dict[str, Callable[[str, str, str, Reading], dict[str, float]]] = {
    "kafkacore poll(500)": kafkacore_objects,
    "kafkacore poll_batch()": kafkacore_columns,
    "confluent consume(500)": confluent_consume,
    "aiokafka getmany(500)": aiokafka_getmany,
    "kafka-python poll(500)": kafka_python_poll,
}

POLLS = {1: "poll(1)", 10: "poll(10)", 100: "poll(100)", 0: "for loop"}
"""By how many records at most."""
for size, row in POLLS.items():
    CASES[f"kafkacore {row}"] = by_polls(size)
    CASES[f"confluent {row}"] = confluent_by_polls(size)

if __name__ == "__main__":
    case, servers, topic, group, count, records_in_topic = sys.argv[1:7]
    print(json.dumps(CASES[case](servers, topic, group, Reading(int(count), int(records_in_topic)))), flush=True)
