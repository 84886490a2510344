"""A record that the client itself refuses in a transaction: what is committed would be a part, so the transaction can only be aborted.

A table of the refusals: docs/transactions.md. Source: KafkaProducer.doSend, TransactionManager.maybeTransitionToErrorState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import transaction_support
from transaction_support import GUARD_S, new_topic, transactional, values_in

from kafkacore import KafkaProducer, errors
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row
from tests.kit.waiting import fresh

pytestmark = pytest.mark.usefixtures("client_face")
FACED = [transaction_support]
PARTITIONS = 3
LARGE = bytes(50_000)


@pytest.fixture(scope="module", params=[2, 1], ids=lambda version: f"version {version}")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(features={"transaction.version": request.param}, config={"auto_create_topics_enable": False}) as cluster:
        yield cluster


def broken(value: Any) -> bytes:
    """A serializer that does not take everything."""
    if value == b"broken":
        raise LookupError("no such schema")
    return value  # type: ignore[no-any-return]


def lost(topic: str, key: Any, value: Any, cluster: Any) -> int:
    if value == b"broken":
        raise LookupError("no such shard")
    return 0


class Columns:
    """A value that is no bytes."""


CASES: dict[str, tuple[type[BaseException], dict[str, Any], Callable[[Any, str], object]]] = {
    "too large": (errors.RecordTooLarge, {}, lambda p, t: p.send(t, LARGE)),
    "too large with a key": (errors.RecordTooLarge, {}, lambda p, t: p.send(t, b"v", LARGE)),
    "larger than memory": (errors.RecordTooLarge, {"max_request_size": 1 << 24}, lambda p, t: p.send(t, bytes(1 << 21))),
    "unknown partition": (errors.UsageError, {}, lambda p, t: p.send(t, b"v", partition=PARTITIONS)),
    "negative partition": (errors.UsageError, {}, lambda p, t: p.send(t, b"v", partition=-1)),
    "no metadata": (errors.KafkaTimeoutError, {"max_block_ms": 300}, lambda p, t: p.send("no-" + t, b"v")),
    "no such name": (errors.KafkaError, {}, lambda p, t: p.send("no name", b"v")),
    "serializer": (LookupError, {"value_serializer": broken}, lambda p, t: p.send(t, b"broken")),
    "key serializer": (LookupError, {"key_serializer": broken}, lambda p, t: p.send(t, b"v", b"broken")),
    "partitioner": (LookupError, {"partitioner": lost}, lambda p, t: p.send(t, b"broken")),
    "no bytes": (TypeError, {}, lambda p, t: p.send(t, Columns())),
    "odd headers": (TypeError, {}, lambda p, t: p.send(t, b"v", headers=[1])),
    "negative time": (ValueError, {}, lambda p, t: p.send(t, b"v", timestamp_ms=-5)),
    "send_many": (errors.RecordTooLarge, {}, lambda p, t: p.send_many(t, [b"v"] * 10 + [LARGE] + [b"v"] * 10)),
    "send_many of columns": (errors.RecordTooLarge, {}, lambda p, t: p.send_many(t, pa.array([b"v"] * 10 + [LARGE]))),
    "send_many of odd lengths": (ValueError, {}, lambda p, t: p.send_many(t, [b"v"], [b"k"] * 2)),
    "send_many, partitions": (errors.UsageError, {}, lambda p, t: p.send_many(t, [b"v"] * 2, partitions=[0, PARTITIONS])),
    "send_many, serializer": (LookupError, {"value_serializer": broken}, lambda p, t: p.send_many(t, [b"v", b"broken", b"v"])),
    "send_many, no metadata": (errors.KafkaTimeoutError, {"max_block_ms": 300}, lambda p, t: p.send_many("no-" + t, [b"v"])),
    "send_frame": (errors.UsageError, {}, lambda p, t: p.send_frame(t, pa.table({"v": ["a", "b"], "k": ["a", None]}), value="v", key="k")),
    "send_frame, too large": (errors.RecordTooLarge, {}, lambda p, t: p.send_frame(t, pa.table({"v": [b"a", LARGE]}), value="v")),
    "send_frame, columns": (errors.UsageError, {}, lambda p, t: p.send_frame(t, pa.table({"v": ["a"]}), value="w")),
}


@each_row("first", [False, True], ids=["known topic", "new topic"])
@each_row("case", CASES)
def test_a_refused_record_leaves_only_the_abort(cluster: Any, case: str, first: bool) -> None:
    kind, settings, refused = CASES[case]
    topic = new_topic(cluster)
    more = {"max_request_size": 20_000, "buffer_memory": 1 << 20, "linger_ms": 0} | settings
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=fresh("refused"), **more) as producer:
        producer.init_transactions(GUARD_S)
        producer.begin_transaction()
        if not first:
            producer.send(topic, b"before")
        with pytest.raises(kind) as cause:
            refused(producer, topic)
        with pytest.raises(errors.TransactionAbortable, match="refused a record of the transaction") as later:
            producer.send(topic, b"after")
        assert later.value.txn_requires_abort
        assert not later.value.fatal
        assert later.value.__cause__ is cause.value
        with pytest.raises(errors.TransactionAbortable, match="abort_transaction") as ended:
            producer.commit_transaction(GUARD_S)
        assert ended.value.txn_requires_abort
        with pytest.raises(errors.TransactionAbortable):
            producer.send_many(topic, [b"after"])
        producer.abort_transaction(GUARD_S)
        producer.begin_transaction()
        producer.send(topic, b"whole")
        producer.commit_transaction(GUARD_S)
    assert values_in(cluster.bootstrap_servers, topic) == ["whole"]


def test_a_block_that_catches_the_refusal_is_aborted(cluster: Any) -> None:
    topic = new_topic(cluster)
    with transactional(cluster.bootstrap_servers, max_request_size=20_000) as producer:
        with pytest.raises(errors.TransactionAbortable), producer.transaction():
            producer.send(topic, b"one")
            with pytest.raises(errors.RecordTooLarge):
                producer.send(topic, LARGE)
        with producer.transaction():
            producer.send(topic, b"two")
    assert values_in(cluster.bootstrap_servers, topic) == ["two"]


def test_offsets_are_not_taken_after_a_refusal(cluster: Any) -> None:
    topic = new_topic(cluster)
    with transactional(cluster.bootstrap_servers, max_request_size=20_000) as producer:
        producer.begin_transaction()
        with pytest.raises(errors.RecordTooLarge):
            producer.send(topic, LARGE)
        with pytest.raises(errors.TransactionAbortable):
            producer.send_offsets_to_transaction({(topic, 0): 1}, "group", GUARD_S)
        with pytest.raises(errors.TransactionAbortable):
            producer.prepare_transaction(GUARD_S)
        producer.abort_transaction(GUARD_S)
