"""The source as Spark drives it, without a Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from kafkacore import KafkaProducer
from kafkacore.spark.source import KAFKA_SCHEMA, WITH_HEADERS, KafkaSource
from kafkacore.testing import EmbeddedCluster

running: list[Any] = []


def stream_reader(given: dict[str, str], schema: Any = WITH_HEADERS) -> Any:
    running.append(KafkaSource(given).streamReader(schema))
    return running[-1]


class Query:
    """A stream driven as Spark 4.3 does it; `offset` is what the checkpoint would hold. A new query has had its batch 0, which is empty."""

    def __init__(self, cluster: EmbeddedCluster, offset: dict[str, Any] | None = None, **options: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "startingOffsets": "earliest", **options}
        self.reader = stream_reader(given)
        self.offset = self.reader.initialOffset() if offset is None else offset
        self.replay: list[int] = []
        if offset is None:
            assert self.batch() is None

    @classmethod
    def of(cls, reader: Any, offset: dict[str, Any]) -> Query:
        """One whose reader has been driven so far."""
        query = cls.__new__(cls)
        query.reader, query.offset, query.replay = reader, offset, []
        return query

    @property
    def at(self) -> dict[str, Any]:
        """The offset without the ids of topics."""
        return places(self.offset)

    def plan(self, limit: Any = None) -> list[Any] | None:
        """The tasks of the next batch; None if there is none. The batch is taken as done."""
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        if end == self.offset:
            return None
        start, self.offset = self.offset, end
        self.last = start, end
        return list(self.reader.partitions(start, end))

    def batch(self, limit: Any = None) -> list[bytes | None] | None:
        """The values of the next batch, sorted by where they are from."""
        plan = self.plan(limit)
        return None if plan is None else read(self.reader, plan)

    def batches(self) -> list[list[bytes | None]]:
        """All batches until there is none."""
        found = []
        while (batch := self.batch()) is not None:
            found.append(batch)
        return found


def places(offset: dict[str, Any]) -> dict[str, Any]:
    """What Spark's log holds of a batch's end, without the ids of topics."""
    return {name: partitions for name, partitions in offset.items() if "@" not in name}


def read(reader: Any, plan: list[Any]) -> list[bytes | None]:
    """As executors do it: reader and tasks arrive pickled."""
    values = []
    for task in pickle.loads(pickle.dumps(plan)):
        for batch in reader.read(task):
            values += batch.column("value").to_pylist()
    return values


def rows(cluster: EmbeddedCluster, **options: str) -> list[bytes | None]:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
    reader: Any = KafkaSource(given).reader(KAFKA_SCHEMA)
    return read(reader, list(reader.partitions()))


def send(producer: KafkaProducer, topic: str, values: Iterator[int] | range | list[int], partition: int = 0) -> None:
    for i in values:
        producer.send(topic, b"%d" % i, partition=partition)
    producer.flush()


def numbers(values: list[bytes | None] | None) -> list[int]:
    assert values is not None
    return [int(value or b"-1") for value in values]
