"""What a REPL, a test's output and a log show of clients and results, and small things that users hand in first."""

from __future__ import annotations

import asyncio
import base64
import datetime
import gc
import json
import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kafkacore
from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, aio, errors
from kafkacore.testing import Drop, EmbeddedCluster
from kafkacore.types import topic_id_text
from tests.kit.clusters import embedded
from tests.kit.rows import each_row

GUARD = 20.0


cluster = embedded({"t": 1})


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def test_dir_shows_what_is_for_users() -> None:
    names = [name for name in dir(kafkacore) if not name.startswith("__")]
    assert set(kafkacore.__all__) <= set(names)
    assert not {"Any", "TYPE_CHECKING", "import_module", "os", "sys"} & set(names) and not [name for name in names if name[0] == "_"]


# ---- results of administration


def test_results_with_a_failure_are_false(admin: KafkaAdminClient) -> None:
    assert admin.create_topics([NewTopic("good")])
    mixed = admin.create_topics([NewTopic("other"), NewTopic("bad name")])
    assert not mixed and list(mixed) == ["other"] and list(mixed.errors) == ["bad name"]
    assert not admin.create_topics([NewTopic("good")])
    assert not admin.create_topics([])


LOOKS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda results: len(results),
    "in": lambda results: "t" in results,
    "check": lambda results: results.check(),
    "errors": lambda results: results.errors,
    "bool": lambda results: bool(results),
    "repr": lambda results: repr(results),
    "item": lambda results: results["t"],
    "succeeded": lambda results: results.succeeded,
}


@pytest.mark.parametrize("look", sorted(LOOKS))
def test_failures_that_nobody_looked_at_are_logged(admin: KafkaAdminClient, caplog: pytest.LogCaptureFixture, look: str) -> None:
    results = admin.create_topics([NewTopic("t")])
    try:
        LOOKS[look](results)
    except errors.TopicExists as error:
        error.__traceback__ = None
    del results
    gc.collect()
    said = [record.getMessage() for record in caplog.records if record.name == "kafkacore.admin"]
    if look in ("nothing", "in"):
        (line,) = said
        assert line.startswith("1 of 1 item failed and the program did not look at the results, which check() raises; the first is 't': ")
        assert "TOPIC_ALREADY_EXISTS" in line
    else:
        assert said == []


def test_a_created_topic_is_short_and_its_id_readable(admin: KafkaAdminClient, cluster: EmbeddedCluster) -> None:
    created = admin.create_topics([NewTopic("short")])["short"]
    text = base64.urlsafe_b64encode(bytes(created.topic_id)).decode().rstrip("=")
    assert repr(created) == (
        f"CreatedTopic(name='short', topic_id={text}, num_partitions=1, replication_factor=1, configs={{{len(created.configs)} settings}})"
    )
    assert len(created.configs) > 20 and type(created.topic_id) is bytes and topic_id_text(created.topic_id) == text
    described = admin.describe_topics(["short"])["short"]
    assert described.topic_id == created.topic_id and f"topic_id={text}, is_internal=False, partitions=[PartitionInfo(" in repr(described)
    assert pickle.loads(pickle.dumps(created)) == created and topic_id_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    by_id = admin.describe_topics_by_broker([], topic_ids=[created.topic_id])  # goes into a request as it is
    (seen,) = by_id.succeeded.values()
    assert seen.by_id[created.topic_id].name == "short"


# ---- clients in a REPL


@each_row("kind", [KafkaProducer, KafkaConsumer, KafkaAdminClient])
def test_a_client_says_where_it_is_and_whether_it_is_closed(cluster: EmbeddedCluster, kind: Any) -> None:
    assert repr(cluster) == f"<EmbeddedCluster, 1 broker: {cluster.bootstrap_servers}>"
    client = kind(bootstrap_servers=cluster.bootstrap_servers)
    assert re.fullmatch(rf"{kind.__name__}\({cluster.bootstrap_servers}(; 0 partitions)?\)", repr(client))
    client.close()
    assert re.fullmatch(rf"{kind.__name__}\({cluster.bootstrap_servers}(; 0 partitions)?; closed\)", repr(client))


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaAdminClient])
def test_a_forgotten_client_gives_one_warning_of_its_own(cluster: EmbeddedCluster, kind: Any) -> None:
    client = kind(bootstrap_servers=cluster.bootstrap_servers)
    client.list_topics()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert [str(each.message).partition("(")[0] for each in seen] == [f"unclosed {kind.__name__}"]
    assert seen[0].category is ResourceWarning and "; closed" not in str(seen[0].message)


@pytest.mark.parametrize("kind", [aio.KafkaConsumer, aio.KafkaAdminClient])
def test_a_forgotten_client_of_asyncio_too(cluster: EmbeddedCluster, kind: Any) -> None:
    async def use_and_forget() -> None:
        client = kind(bootstrap_servers=cluster.bootstrap_servers)
        await client.list_topics()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(use_and_forget())
        deadline = time.monotonic() + GUARD
        gc.collect()
        while not seen and time.monotonic() < deadline:
            gc.collect()
    assert len(seen) == 1 and "was never closed" in str(seen[0].message), [str(each.message) for each in seen]


# ---- what is handed in


def test_offsets_for_times_takes_datetimes(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("times")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
        for day in range(3):
            producer.send("times", b"x", timestamp_ms=at + datetime.timedelta(days=day))
    second = at + datetime.timedelta(days=1)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        local = second.astimezone().replace(tzinfo=None)
        for wanted in (second, local, np.datetime64("2024-01-02"), int(second.timestamp() * 1000)):
            found = consumer.offsets_for_times({("times", 0): wanted})[("times", 0)]
            assert found is not None and found.offset == 1
        with pytest.raises(TypeError, match=r"the time of times-0 must be epoch milliseconds .* are int"):
            consumer.offsets_for_times({("times", 0): 1704153600.5})  # type: ignore[dict-item]
        with pytest.raises(errors.UsageError, match="not negative"):
            consumer.offsets_for_times({("times", 0): -1})


def test_settings_of_a_name_alone(admin: KafkaAdminClient) -> None:
    for call in (lambda: admin.describe_configs(["t"]), lambda: admin.alter_configs({"t": {}})):  # type: ignore[list-item, dict-item]
        with pytest.raises(errors.UsageError, match=r"\(kind, name\) pair, as \('topic', 't'\), not to 't'"):
            call()
    with pytest.raises(errors.UsageError, match=r"as \('topic', 'ab'\)"):
        admin.describe_configs(["ab"])  # type: ignore[list-item]
    assert "retention.ms" in admin.describe_configs([("topic", "t")])[("topic", "t")]  # type: ignore[index]


def test_a_pair_out_of_json(cluster: EmbeddedCluster) -> None:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        pairs = json.loads('[["t", 0]]')
        assert set(consumer.end_offsets(pairs)) == {("t", 0)}
        consumer.assign(pairs)
        consumer.seek(pairs[0], 0)
        assert consumer.assignment() == {("t", 0)}
        for wrong in (["t", "0"], ["t"], "t0", {"topic": "t"}, ["t", 0, 0]):
            with pytest.raises(errors.UsageError, match="pair"):
                consumer.end_offsets([wrong])  # type: ignore[list-item]


def test_a_timeout_is_the_one_that_was_given(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("slow")
    cluster.control("Produce", lambda request: Drop)
    try:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.partitions_for("slow")
            batch = producer.send_many("slow", [b"a", b"b"])
            for timeout, said in ((0.1, "0.1"), (0.123456789, "0.123457")):
                with pytest.raises(errors.KafkaTimeoutError, match=rf"^not all of 2 records have an outcome within {said} s;.*topic slow"):
                    batch.result(timeout)
            producer.close(0)
    finally:
        cluster.control("Produce", None)
