"""Programs that run over confluent-kafka and over kafkacore.compat.confluent: small things, where types and codes of errors count."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable
from typing import Any

from tests.compat.both_packages import case
from tests.compat.confluent_face import WAIT_S, Face
from tests.compat.confluent_serving import NOBODY
from tests.kit.waiting import until


@case
def notes_of_offsets(f: Face) -> Any:
    """None, empty and other metadata of a commit."""
    found: list[Any] = []
    consumer = f.consumer(**{"enable.auto.commit": False, "on_commit": lambda error, ps: found.append([p.metadata for p in ps])})
    consumer.assign([f.tp(0, 0)])
    for note in (None, "", "a note"):
        at = f.tp(0, 1) if note is None else f.k.TopicPartition(f.topic, 0, 1, note)
        found.append((at.metadata, [p.metadata for p in consumer.commit(offsets=[at], asynchronous=False)]))
        if note != "":
            found.append([p.metadata for p in consumer.committed([f.tp(0), f.tp(1)], timeout=WAIT_S)])
    return found


@case
def levels_and_contexts_of_logs(f: Face) -> Any:
    made = [f.raised(lambda n=n: f.producer(log_level=n) and n) for n in (0, 3, 7, 8, -1)]  # type: ignore[misc]
    quiet = logging.Logger("of nobody", logging.CRITICAL)
    texts = ("generic,broker", "all", "", "nope", "broker, topic", "generic,nope", "cgrp,fetch,eos,telemetry,conf,mock")
    contexts = [f.raised(lambda text=text: f.producer(debug=text, logger=quiet) and text) for text in texts]  # type: ignore[misc]
    return made, f.raised(lambda: f.consumer(log_level=3) and 3), contexts


@case
def partitions_of_keys_that_are_refused(f: Face) -> Any:
    return [
        f.raised(lambda fn=fn, args=args: getattr(f.k, fn)(*args))[:1]  # type: ignore[misc]
        for fn in ("murmur2", "consistent", "fnv1a")
        for args in (
            (b"k", 0), (b"k", -1), (b"k", 2**31), ("k", 3), (None, 3), (b"k", 1.5), (b"k",), (bytearray(b"k"), 3), (memoryview(b"k"), 3),
        )
    ] + [f.raised(lambda: f.k.murmur2(key=b"k", partition_count=3))]  # fmt: skip


@case
def offsets_of_partitions_that_are_not_assigned(f: Face) -> Any:
    consumer = f.consumer(**{"enable.auto.offset.store": False})
    before = f.raised(lambda: consumer.store_offsets(offsets=[f.tp(1, 1)]))
    consumer.assign([f.tp(0, 0)])
    f.fill(1)
    f.read(consumer, 1)
    return before, [f.raised(lambda nth=nth: consumer.store_offsets(offsets=[f.tp(nth, 1)])) for nth in (0, 1)]  # type: ignore[misc]


@case
def commits_of_nothing(f: Face) -> Any:
    consumer = f.consumer(**{"enable.auto.offset.store": False})
    found = []
    for _ in range(2):
        found += [f.raised(lambda: consumer.commit()), f.raised(lambda: consumer.commit(message=None)),
                  f.raised(lambda: consumer.commit(asynchronous=False))]  # fmt: skip
        consumer.assign([f.tp(0, 0)])
    return found


def given_or_text(fn: Callable[[], Any]) -> Any:
    """What it gives, or its error with the text."""
    try:
        return fn()
    except Exception as error:
        return type(error).__name__, str(error)


@case
def subclasses_that_skip_the_constructor(f: Face) -> Any:
    admin: Any = importlib.import_module(f"{f.k.__name__}.admin")

    def skips(base: Any) -> Any:
        return type("Skips", (base,), {"__init__": lambda self: None})()

    producer, consumer, client = skips(f.k.Producer), skips(f.k.Consumer), skips(admin.AdminClient)
    return [
        given_or_text(fn)
        for fn in (
            lambda: producer.produce(f.topic, b"v"), lambda: producer.poll(0), lambda: producer.flush(0), lambda: len(producer),
            lambda: producer.purge(), lambda: producer.list_topics(timeout=1), lambda: producer.init_transactions(1),
            lambda: producer.produce_batch(f.topic, [{"value": b"v"}]), lambda: producer.set_sasl_credentials("a", "b"), producer.close,
            lambda: consumer.poll(0), lambda: consumer.consume(1, 0), lambda: consumer.subscribe([f.topic]), lambda: consumer.assign([]),
            consumer.assignment, consumer.commit, lambda: consumer.committed([f.tp()]), lambda: consumer.position([f.tp()]),
            lambda: consumer.seek(f.tp(0, 0)), lambda: consumer.list_topics(timeout=1), consumer.memberid, consumer.close,
            lambda: client.create_topics([admin.NewTopic("x", 1, 1)]), lambda: client.list_topics(timeout=1), lambda: client.poll(0),
            lambda: len(client),
        )
    ]  # fmt: skip


SAME = ("type", "client_id", "msg_max", "msg_size_max", "msg_cnt", "txmsgs", "rxmsgs")
OF_PARTITION = (
    "partition", "broker", "leader", "desired", "unknown", "next_offset", "app_offset", "stored_offset", "lo_offset", "hi_offset",
    "ls_offset", "consumer_lag_stored",
)  # fmt: skip


@case
def statistics_of_a_producer(f: Face) -> Any:
    f.fill(1, partition=1)  # a leader that has just been chosen refuses a first try, which counts as transmitted, too
    seen: list[str] = []
    producer = f.producer(**{"statistics.interval.ms": 100, "stats_cb": seen.append, "client.id": "me"})
    before = len(seen), producer.poll(0)
    producer.produce(f.topic, b"v", partition=1)
    producer.flush(WAIT_S)
    seen.clear()
    served = producer.poll(WAIT_S) > 0
    found = json.loads(seen[-1])
    broker = next(each for each in found["brokers"].values() if each["nodeid"] >= 0)
    partition = found["topics"][f.topic]["partitions"]["1"]
    return (
        before, served, {name: found[name] for name in SAME}, broker["state"], broker["source"],
        broker["name"].endswith(f"/{broker['nodeid']}"), found["tx"] >= broker["tx"] > 0, found["rx_bytes"] > 0,
        {name: partition[name] for name in ("partition", "broker", "leader")},
    )  # fmt: skip


@case
def statistics_of_a_consumer(f: Face) -> Any:
    f.fill(3)
    seen: list[str] = []
    consumer = f.consumer(**{"statistics.interval.ms": 100, "stats_cb": seen.append, "enable.auto.commit": False})
    consumer.subscribe([f.topic])
    f.read(consumer, 3)
    consumer.commit(asynchronous=False)

    def in_step() -> Any:
        seen.clear()
        while not seen:
            assert consumer.poll(0.2) is None
        found = json.loads(seen[-1])
        partition = found["topics"][f.topic]["partitions"]["0"]
        return (found, partition) if partition["consumer_lag"] == 0 else None

    found, partition = until(in_step, "nothing is left to read")
    return {name: partition[name] for name in (*OF_PARTITION, "committed_offset", "consumer_lag")}, found["rxmsgs"], found["cgrp"]["state"]


@case
def a_statistics_callback_that_raises(f: Face) -> Any:
    def refuse(text: str) -> None:
        raise ValueError("of the callback")

    producer = f.producer(**{"statistics.interval.ms": 50, "stats_cb": refuse})
    return f.raised(lambda: producer.poll(WAIT_S)), f.raised(lambda: producer.poll(WAIT_S))


@case
def an_admin_client_without_brokers(f: Face) -> Any:
    admin: Any = importlib.import_module(f"{f.k.__name__}.admin")
    seen: list[str] = []
    client = admin.AdminClient({"bootstrap.servers": NOBODY, "error_cb": lambda error: seen.append(error.name())})
    served = []
    until(lambda: served.append(client.poll(0.1)) or len(set(seen)) == 2)
    return sum(served) >= 2, seen[:2]


@case
def statistics_of_an_admin_client(f: Face) -> Any:
    admin: Any = importlib.import_module(f"{f.k.__name__}.admin")
    seen: list[str] = []
    client = admin.AdminClient({"bootstrap.servers": f.servers, "statistics.interval.ms": 100, "stats_cb": seen.append, "client.id": "me"})
    client.list_topics(timeout=WAIT_S)
    served = client.poll(WAIT_S) > 0  # on a busy machine there may be two
    found = json.loads(seen[0])
    return served, found["type"], found["client_id"], found["tx"] > 0, len(found["brokers"]) > 0


@case
def two_partitions_of_which_one_fails(f: Face) -> Any:
    f.fill(3)
    consumer = f.reader(f.tp(0, 0), **{"enable.auto.offset.store": False, "enable.auto.commit": False})
    f.read(consumer, 3)
    absent = f.k.TopicPartition(f"{f.topic}-no-such", 0, 1)

    def shown(fn: Callable[[], Any]) -> Any:
        return f.raised(lambda: [(p.topic, p.partition, p.offset, p.error and p.error.name()) for p in fn() or ()])

    def assigned() -> list[int]:
        return [p.partition for p in consumer.assignment()]

    return [
        shown(lambda: consumer.store_offsets(offsets=[f.tp(1, 2), f.tp(0, 2)])), shown(lambda: consumer.commit(asynchronous=False)),
        shown(lambda: consumer.commit(offsets=[absent, f.tp(0, 1)], asynchronous=False)),
        shown(lambda: consumer.committed([absent, f.tp(0)], timeout=WAIT_S)), shown(lambda: consumer.position([f.tp(1), f.tp(0)])),
        shown(lambda: consumer.incremental_assign([f.tp(1, 0), f.tp(0, 0)])), assigned(),
        shown(lambda: consumer.incremental_unassign([f.tp(0), absent])), assigned(),
        shown(lambda: consumer.pause([f.tp(1), f.tp(0)])), shown(lambda: consumer.resume([absent, f.tp(0)])),
    ]  # fmt: skip
