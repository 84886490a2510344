"""Every setting of a producer does what it says: one check per name, and none without."""

from __future__ import annotations

import binascii
import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from producer_support import Bench, started

from kafkacore import KafkaAdminClient, NewTopic, compress, protocol
from kafkacore.codec import murmur2
from kafkacore.config import ProducerConfig
from kafkacore.errors import (
    ConfigError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersion,
)
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.kit.checks import Checks
from tests.kit.clusters import embedded
from tests.kit.free_ports import free_port
from tests.kit.inside import accumulator_of, clock_of, metadata_of, sender_of
from tests.kit.records import producer_of as producer

check = Checks()
ELSEWHERE = {
    "ssl_": "tests/test_config_tls.py",
    "security_protocol": "tests/broker/test_sasl_listener.py",
    "sasl_mechanism": "tests/broker/test_sasl_listener.py",
    "sasl_username": "tests/broker/test_sasl_listener.py",
    "sasl_password": "tests/broker/test_sasl_listener.py",
    "sasl_jaas_config": "tests/test_config_security.py",
    "sasl_login_callback_": "tests/test_config_security.py",
    "sasl_oauthbearer_": "tests/test_config_security.py",
    "https_ca_location": "tests/security/test_token_endpoints.py",
    "sasl_kerberos_": "tests/test_config_kerberos.py",
    "retries": "tests/producer/test_sender.py",
    "broker_version": "tests/legacy/test_legacy_old_kafka.py",
}
"""Settings that begin so are checked there."""


cluster = embedded({"t": 4}, brokers=1)


@contextlib.contextmanager
def silent_broker(**settings: Any) -> Iterator[Any]:
    """A producer's first connection, whose requests nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        p = KafkaProducer(bootstrap_servers=f"localhost:{listener.getsockname()[1]}", **settings)
        try:
            metadata_of(p).add_topic("t", clock_of(p).now_ms())
            sender_of(p).wake(-1, True)
            with listener.accept()[0] as connection:
                connection.settimeout(60)
                yield connection
        finally:
            p.close(0)


def first_request(connection: socket.socket) -> protocol.RequestHeader:
    size = int.from_bytes(connection.recv(4), "big")
    return protocol.decode_request_header(connection.recv(size))[0]


def asked(cluster: Any, api_key: int, count: int, **settings: Any) -> list[Any]:
    """The first `count` requests of a kind that a producer makes while it sends a record."""
    seen: list[Any] = []
    enough = threading.Event()

    def note(request: Any) -> None:
        seen.append(request)
        if len(seen) >= count:
            enough.set()

    cluster.control(api_key, note)
    try:
        with producer(cluster, **settings) as p:
            p.send("t", b"x").result(60)
            assert enough.wait(60)
    finally:
        cluster.control(api_key, None)
    return seen


@check("bootstrap_servers")
def bootstrap(cluster: Any) -> None:
    refusing = f"127.0.0.1:{free_port()}"
    with KafkaProducer(bootstrap_servers=[refusing, cluster.bootstrap_servers]) as p:
        assert p.send("t", b"x").result(60).offset >= 0


@check("client_id")
def client_id(cluster: Any) -> None:
    with silent_broker(client_id="somebody") as connection:
        assert first_request(connection).client_id == "somebody"


@check("request_timeout_ms")
def request_timeout(cluster: Any) -> None:
    with silent_broker(request_timeout_ms=50) as connection:
        while connection.recv(1000):  # ends well before the socket's own time-out
            pass


@check("connections_max_idle_ms")
def idle(cluster: Any) -> None:
    with silent_broker(connections_max_idle_ms=50) as connection:
        while connection.recv(1000):
            pass


@check("retry_backoff_ms", "retry_backoff_max_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms")
@check("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms")
def backoffs(cluster: Any) -> None:
    """The pauses that the accumulator and the client really take; that they are kept is shown in tests/net and test_accumulator."""
    names = ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout")
    values = {f"{name}{end}": 1000 * (i + 1) * (4 if end == "_max_ms" else 1) for i, name in enumerate(names) for end in ("_ms", "_max_ms")}
    with producer(cluster, **values) as p:
        taken = (
            accumulator_of(p)._backoff_ms,
            sender_of(p).client._reconnect_backoff.backoff_ms,
            sender_of(p).client._setup_timeout.backoff_ms,
        )
        for name, pause_ms in zip(names, taken, strict=True):
            assert 0.8 * values[f"{name}_ms"] <= pause_ms(0) <= 1.2 * values[f"{name}_ms"]
            assert 0.8 * values[f"{name}_max_ms"] <= pause_ms(9) <= values[f"{name}_max_ms"]


@check("metadata_max_age_ms")
def metadata_age(cluster: Any) -> None:
    assert len(asked(cluster, 3, 5, metadata_max_age_ms=20)) >= 5


@check("allow_auto_create_topics")
def auto_create(cluster: Any) -> None:
    for allowed in (True, False):
        requests = asked(cluster, 3, 1, allow_auto_create_topics=allowed)
        assert any(request.allow_auto_topic_creation for request in requests) is allowed  # a refresh names no topic to create


@check("receive_message_max_bytes")
def answers(cluster: Any) -> None:
    """An answer of more bytes is refused before it is read."""
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("large-answer", 100)]).check()
    with producer(cluster, receive_message_max_bytes=1_000, max_block_ms=300) as p, pytest.raises(KafkaError) as caught:
        p.send("large-answer", b"x").result(60)
    assert "is above the limit of 1000 bytes" in str(caught.value)


@check("send_buffer_bytes", "receive_buffer_bytes")
def socket_buffers(cluster: Any) -> None:
    with producer(cluster, send_buffer_bytes=20_000, receive_buffer_bytes=30_000) as p, socket.socket() as fresh:
        p.send("t", b"x").result(60)
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30_000)
        for channel in list(sender_of(p).client.selector.channels.values()):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                assert channel.transport.sock.getsockopt(socket.SOL_SOCKET, option) == fresh.getsockopt(socket.SOL_SOCKET, option)


@check(
    "sasl_login_refresh_window_factor", "sasl_login_refresh_window_jitter", "sasl_login_refresh_min_period_seconds",
    "sasl_login_refresh_buffer_seconds",
)  # fmt: skip
def refresh(cluster: Any) -> None:
    """That they come to where they count; what each does is in tests/net/test_oauth."""
    names = ("window_factor", "window_jitter", "min_period_seconds", "buffer_seconds")
    security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": lambda: ("t", 1)}

    def config(**settings: float) -> ProducerConfig:
        named = {f"sasl_login_refresh_{name}": value for name, value in settings.items()}
        return ProducerConfig.from_user(bootstrap_servers="h:1", **security, **named)

    found = config(**dict(zip(names, (0.6, 0.1, 70, 500), strict=True))).sasl_settings().refresh
    assert (found.factor, found.jitter, found.min_period_s, found.buffer_s) == (0.6, 0.1, 70, 500)
    for name, bad in zip(names, (0.4, 0.3, 901, -1), strict=True):
        with pytest.raises(ConfigError, match=f"sasl_login_refresh_{name} must be"):
            config(**{name: bad})
    with pytest.raises(ConfigError, match="sasl_login_refresh_buffer_seconds has no effect with security_protocol=PLAINTEXT"):
        producer(cluster, sasl_login_refresh_buffer_seconds=1)


@check("acks")
def acks(cluster: Any) -> None:
    for given, wire in (("all", -1), (1, 1)):
        assert {request.acks for request in asked(cluster, 0, 1, acks=given)} == {wire}


@check("enable_idempotence")
def idempotence(cluster: Any) -> None:
    asked(cluster, 22, 1, enable_idempotence=True)
    bench = Bench(enable_idempotence=False)
    bench.send_now("t", b"x", partition=0)
    ((batch,),) = [list(request.values()) for request in bench.requests()]
    assert (batch.producer_id, batch.base_sequence) == (-1, -1)


@check("linger_ms", "batch_size", "send_many_batch_size", "buffer_memory", "max_request_size", "max_in_flight_requests_per_connection")
@check("delivery_timeout_ms")
def limits(cluster: Any) -> None:
    """That they come to where they count; what each does is in test_accumulator, test_send_many_sizes, test_sender, test_empty_batches."""
    sizes = {"batch_size": 1_000, "send_many_batch_size": 70_000, "buffer_memory": 1 << 22, "max_request_size": 500_000}
    with producer(cluster, linger_ms=7, delivery_timeout_ms=50_000, max_in_flight_requests_per_connection=2, **sizes) as p:
        kept = accumulator_of(p)
        assert (kept.linger_ms, kept.delivery_timeout_ms) == (7, 50_000)
        assert (kept.batch_size, kept.many_bytes, kept.max_request_size) == (1_000, 65_536, 500_000)
        assert p.metrics()["buffer_total_bytes"] == 1 << 22
        assert sender_of(p).client.in_flight.max_per_connection == 2


@check("max_block_ms")
def max_block(cluster: Any) -> None:
    with KafkaProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=30) as p, pytest.raises(KafkaTimeoutError, match="within 30 ms"):
        p.send("t", b"x")


@check("compression_type", "compression_gzip_level", "compression_lz4_level", "compression_zstd_level")
def compression(cluster: Any) -> None:
    words = random.Random(3)
    vocabulary = [words.randbytes(words.randrange(2, 9)).hex().encode() for _ in range(300)]
    text = b" ".join(words.choices(vocabulary, range(1, 301), k=9_000))

    def wire_bytes(codec: str, **level: int) -> int:
        bench = started(compression_type=codec, batch_size=200_000, **level)
        bench.send_now("t", text, partition=0)
        ((batch,),) = [list(request.values()) for request in bench.requests()]
        assert batch.compression == compress.codec_id(codec)
        return int(batch.size_bytes)

    plain = wire_bytes("none")
    assert wire_bytes("snappy") < plain
    for codec, low, high in (("gzip", 1, 9), ("lz4", 1, 12), ("zstd", 1, 19)):
        name = f"compression_{codec}_level"
        sizes = {wire_bytes(codec, **{name: level}) for level in (low, high)}
        assert len(sizes) == 2  # which is smaller depends on the library
        assert max(sizes) < plain


@check("partitioner")
def partitioner(cluster: Any) -> None:
    with producer(cluster, partitioner="round_robin") as p:
        assert sorted(p.send("t", b"x").result(60).partition for _ in range(4)) == [0, 1, 2, 3]
    with producer(cluster, partitioner=lambda topic, key, value, snapshot: 2) as p:
        assert {p.send("t", b"x", key=b"%d" % i).result(60).partition for i in range(4)} == {2}

    for name, hash_of_nothing in (("consistent", 0), ("fnv1a", 0x7EE3623B), ("murmur2_null_too", 0x106E08D9)):
        with producer(cluster, partitioner=name) as p:
            assert {p.send("t", b"x", key=key).result(60).partition for key in (None, b"")} == {hash_of_nothing % 4}
    with producer(cluster, partitioner="consistent_random") as p:
        assert {p.send("t", b"x", key=b"kafka").result(60).partition} == {binascii.crc32(b"kafka") % 4}


@check("partitioner_rack_aware", "client_rack")
def rack_aware(cluster: Any) -> None:
    with EmbeddedCluster(brokers=3, racks=("a", "b", "b")) as racked:
        with KafkaAdminClient(bootstrap_servers=racked.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", replica_assignments={index: [index % 3 + 1] for index in range(6)})]).check()
        for settings, found in (
            ({}, {0, 1, 2, 3, 4, 5}),
            ({"client_rack": "b"}, {0, 1, 2, 3, 4, 5}),
            ({"partitioner_rack_aware": True, "client_rack": "b"}, {1, 2, 4, 5}),
            ({"partitioner_rack_aware": True, "client_rack": "elsewhere"}, {0, 1, 2, 3, 4, 5}),
        ):
            with producer(racked, batch_size=0, **settings) as p:
                for index in range(6):
                    p.send("t", b"x", partition=index).result(60)  # their leaders are known from here on
                queue, _ = p._queue_of("t")
                assert {accumulator_of(p)._choose_sticky(queue).index for _ in range(300)} == found  # type: ignore[misc]
                went = [p.send("t", b"x").result(60).partition for _ in range(6)]
                assert found.issuperset(went[1:])  # the first was chosen when perhaps not every broker was known
                assert p.send("t", b"x", key=b"5").result(60).partition == murmur2(b"5") % 6 == 0  # keys go where they belong


@check("partitioner_ignore_keys")
def ignore_keys(cluster: Any) -> None:
    for ignored in (False, True):
        with producer(cluster, partitioner_ignore_keys=ignored, batch_size=200) as p:
            futures = [p.send("t", b"x" * 100, key=b"same") for _ in range(200)]
            assert (len({future.result(60).partition for future in futures}) > 1) == ignored


@check("partitioner_adaptive_partitioning_enable")
def adaptive(cluster: Any) -> None:
    for adaptive in (True, False):
        with producer(cluster, partitioner_adaptive_partitioning_enable=adaptive) as p:
            p.partitions_for("t")
            queue, _ = p._queue_of("t")
            queue.partitions[0].batches.extend([None] * 20)  # type: ignore[list-item]
            drawn = sum(accumulator_of(p)._choose_sticky(queue).index == 0 for _ in range(2_000))  # type: ignore[misc]
            queue.partitions[0].batches.clear()
            assert drawn < 120 if adaptive else drawn > 350  # of 2000: a 64th, or a quarter


@check("partitioner_availability_timeout_ms")
def availability(cluster: Any) -> None:
    for timeout_ms, found in ((100, {1}), (0, set())):
        bench = started(partitioner_availability_timeout_ms=timeout_ms)
        bench.send("t", b"x", partition=0)
        bench.client.blocked.add(1)
        bench.step()
        bench.step(150)
        assert bench.sender.unavailable_nodes() == found


@check("key_serializer", "value_serializer")
def serializers(cluster: Any) -> None:
    with producer(cluster, key_serializer=lambda key: b"k" * key, value_serializer=lambda value: b"v" * value) as p:
        meta = p.send("t", 7, key=5).result(60)
        assert (meta.serialized_key_size, meta.serialized_value_size) == (5, 7)


@check("interceptors")
def interceptors(cluster: Any) -> None:
    order: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_send(self, record: Any) -> Any:
            order.append(f"{self.name} sends")
            return record

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            order.append(f"{self.name} hears")

    with producer(cluster, interceptors=[Note("a"), Note("b")]) as p:
        p.send("t", b"x").result(60)
    assert order == ["a sends", "b sends", "a hears", "b hears"]


@check("transactional_id", "transaction_timeout_ms")
def transactions(cluster: Any) -> None:
    asked: list[tuple[str, int]] = []

    def note(request: Any) -> None:
        if request.transactional_id is not None:
            asked.append((request.transactional_id, request.transaction_timeout_ms))

    cluster.control("InitProducerId", note)
    try:
        for settings in ({}, {"transaction_timeout_ms": 12_345}):
            with producer(cluster, transactional_id="the one", **settings) as p:
                p.init_transactions()
    finally:
        cluster.control("InitProducerId", None)
    assert asked == [("the one", 60_000), ("the one", 12_345)]
    for refused in ({"acks": 1}, {"enable_idempotence": False}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}):
        with pytest.raises(ConfigError, match="transactional_id needs"):
            ProducerConfig.from_user(bootstrap_servers="h:1", transactional_id="x", **refused)
    with pytest.raises(ConfigError, match="empty"):
        ProducerConfig.from_user(bootstrap_servers="h:1", transactional_id="")
    with producer(cluster) as p, pytest.raises(IllegalStateError, match="transactional_id"):
        p.begin_transaction()


@check("transaction_two_phase_commit_enable")
def transactions_without_a_timeout(cluster: Any) -> None:
    """It needs InitProducerId v6, which only Kafka has: tests/interop/test_kafkas_two_phase.py."""
    with producer(cluster, transactional_id="no timeout", transaction_two_phase_commit_enable=True) as p:
        with pytest.raises(UnsupportedVersion) as refused:
            p.init_transactions()
        assert refused.value.fatal
    with producer(cluster, transactional_id="no timeout", transaction_two_phase_commit_enable=False) as p:
        p.init_transactions()


def test_every_setting_has_its_check() -> None:
    assert {name for name in ProducerConfig.names() if not name.startswith(tuple(ELSEWHERE))} == set(check.of)
    for prefix, file in ELSEWHERE.items():
        text = (Path(__file__).parents[2] / file).read_text()
        assert prefix in text or prefix.replace("_", ".") in text


@check.each_one
def test_a_setting_does_what_it_says(fn: Callable[..., None], cluster: Any) -> None:
    fn(cluster)
