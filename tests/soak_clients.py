"""The clients of tests/soak.py, each a thread, and where their credentials come from."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import confluent_kafka

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore.errors import KafkaError
from kafkacore.net.oauth import unsecured_token
from kafkacore.testing.history import History, Reader, Send, Writer

TOPIC, PARTITIONS = "soak", 4
PLACES = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
GROUP, TRANSACTIONAL_ID = "soak-group", "soak-transactions"
PLAIN_USER, PLAIN_PASSWORD = "plain", "plain-password"
SCRAM_USER, MECHANISM = "scram", "SCRAM-SHA-256"
WAIT_S = 90.0
"""How long a client may take to come back after the last fault."""
MAX_WAITING = 2_000
"""Records without an outcome, beyond which a writer waits."""
UNCLEAN_S = 1.0
"""A commit that took so long may have been sent twice, and its first request may arrive late."""

NEVER_EXPECTED = (
    errors.InternalError,
    errors.CorruptDataError,
    errors.UsageError,
    errors.OffsetOutOfRange,
    errors.OutOfOrderSequence,
    errors.DuplicateSequence,
    errors.ProducerFenced,
    errors.UnknownServer,
)
"""What no fault of the soak explains. BufferFullError is no UsageError."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class TokenEndpoint:
    """An OAuth token endpoint on loopback. Its tokens live for `life_s`; `mode` is "works", "fails" or "hangs".

    Attributes:
        answers: how many requests were answered in which mode.
    """

    def __init__(self, life_s: float) -> None:
        self.life_s = life_s
        self.mode = "works"
        self.answers: Counter[str] = Counter()
        self._works = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                mode = endpoint.mode
                endpoint.answers[mode] += 1
                if mode == "hangs":
                    endpoint._works.wait(30)
                status, body = (200, endpoint.body()) if mode == "works" else (503, b"{}")
                with contextlib.suppress(OSError):  # the client has waited for long enough
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Requests are counted, not printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, name="soak-tokens", daemon=True)
        self._thread.start()

    def body(self) -> bytes:
        token = unsecured_token({"sub": "endpoint"}, wall_ms(), self.life_s)
        return json.dumps({"access_token": token, "token_type": "bearer", "expires_in": self.life_s}).encode()

    def provider(self) -> tuple[str, int]:
        """The same as a function, for `sasl_oauthbearer_token_provider`."""
        self.answers[f"function {self.mode}"] += 1
        if self.mode == "hangs":
            self._works.wait(30)
        if self.mode != "works":
            raise ConnectionError("the token endpoint fails")
        now_ms = wall_ms()
        return unsecured_token({"sub": "provider"}, now_ms, self.life_s), now_ms + int(self.life_s * 1000)

    def fail(self, mode: str) -> None:
        self._works.clear()
        self.mode = mode

    def work(self) -> None:
        self.mode = "works"
        self._works.set()

    def close(self) -> None:
        self.work()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Passwords:
    """The password of the SCRAM user, as the cluster has it, and as the clients have it."""

    def __init__(self, servers: str) -> None:
        self._admin = KafkaAdminClient(**plain(servers))
        self._numbers = itertools.count(1)
        self.handed = self.current = ""
        self.generation = 0  # rises when clients are handed another password
        self.rotate()
        self.hand_over()

    def set(self, password: str) -> None:
        """Sets it in the cluster, however long that takes.

        Raises:
            KafkaError: it was not possible in WAIT_S.
        """
        end = time.monotonic() + WAIT_S
        while True:
            try:
                self._admin.alter_user_scram_credentials({(SCRAM_USER, MECHANISM): password}, timeout=10).check()
                self.current = password
                return
            except KafkaError:
                if time.monotonic() > end:
                    raise

    def rotate(self) -> None:
        self.set(f"password-{next(self._numbers)}")

    def hand_over(self) -> None:
        if self.handed != self.current:
            self.handed = self.current
            self.generation += 1

    def close(self) -> None:
        self._admin.close()


def plain(servers: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": PLAIN_USER,
        "sasl_password": PLAIN_PASSWORD,
        "retry_backoff_ms": 50,
        "request_timeout_ms": 3_000,
        "reconnect_backoff_max_ms": 500,
    }


class World:
    """What the clients of one soak share: the history, the credentials, what was found."""

    def __init__(self, servers: str, token_life_s: float) -> None:
        self.servers = servers
        self.history = History()
        self.tokens = TokenEndpoint(token_life_s)
        self.passwords = Passwords(servers)
        self.no_more_writes = threading.Event()
        self.ends: dict[TopicPartition, int] | None = None  # set when all writers have ended
        self.group_done = threading.Event()  # set when all that was written is committed
        self.offsets = Commits(self)
        self.clients: list[Client] = []  # those that were started
        self.errors: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # the first of each of them, in full
        self.findings: list[str] = []
        self._lock = threading.Lock()

    def find(self, text: str) -> None:
        with self._lock:
            self.findings.append(text)

    def count(self, client: str, error: BaseException) -> None:
        """Counts an error that a client raised. One that no fault explains is a finding."""
        what = f"{client}: {type(error).__name__}"
        self.tally(what, error)
        if (not isinstance(error, KafkaError) or isinstance(error, NEVER_EXPECTED)) and self.errors[what] == 1:
            self.find(f"RAISED by {client}: {''.join(traceback.format_exception(error))}")

    def tally(self, what: str, example: object) -> None:
        with self._lock:
            self.errors[what] += 1
            self.examples.setdefault(what, str(example))

    def settings(self, credentials: str) -> dict[str, Any]:
        """Settings of a kafkacore client with credentials "plain", "scram", "endpoint" or "provider"."""
        made = plain(self.servers)
        if credentials == "scram":
            made |= {"sasl_mechanism": MECHANISM, "sasl_username": SCRAM_USER, "sasl_password": self.passwords.handed}
        elif credentials != "plain":
            del made["sasl_username"], made["sasl_password"]
            made["sasl_mechanism"] = "OAUTHBEARER"
            if credentials == "provider":
                made["sasl_oauthbearer_token_provider"] = self.tokens.provider
            else:
                made |= {
                    "sasl_oauthbearer_token_endpoint_url": self.tokens.url,
                    "sasl_oauthbearer_client_credentials_client_id": "soak",
                    "sasl_oauthbearer_client_credentials_client_secret": "secret",
                }
        return made

    def confluent_settings(self, tokens: bool = False, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = {"bootstrap.servers": self.servers, "security.protocol": "sasl_plaintext", "log_level": 0}
        made |= {"reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50}
        if tokens:

            def ask(_: str) -> tuple[str, float]:
                token, expiry_ms = self.tokens.provider()
                return token, expiry_ms / 1000

            made |= {"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": ask}
        else:
            made |= {"sasl.mechanisms": "PLAIN", "sasl.username": PLAIN_USER, "sasl.password": PLAIN_PASSWORD}
        return made | {name.replace("_", "."): value for name, value in more.items()}

    def end(self) -> None:
        """Ends the clients that are still there, wherever they stand."""
        self.no_more_writes.set()
        self.ends = {} if self.ends is None else self.ends
        self.group_done.set()
        for client in self.clients:
            if not client.join(WAIT_S):
                self.find(f"STUCK: {client.name} does not end")

    def close(self) -> None:
        self.passwords.close()
        self.tokens.close()


class Client:
    """A thread with a client of its own. `latest_ms` is when the newest thing was sent that it has seen through."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.latest_ms = 0
        self.seen = 0
        self._thread = threading.Thread(target=self._guarded, name=f"soak-{name}", daemon=True)

    def start(self) -> None:
        self.world.clients.append(self)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.world.find(f"DIED: {self.name}: {''.join(traceback.format_exception(error))}")

    def run(self) -> None:
        raise NotImplementedError

    def describe(self) -> str:
        """What it says of itself, for a finding."""
        return ""


# ---- writers


class OurWriter(Client):
    """An idempotent producer of kafkacore, acks=all.

    Args:
        many: by send_many, without partitions; otherwise by send, to each partition in turn.
    """

    def __init__(self, world: World, name: str, credentials: str, many: bool = False, **settings: Any) -> None:
        super().__init__(world, name)
        self._credentials, self._many, self._settings = credentials, many, settings
        self._producer: KafkaProducer | None = None
        self._waiting = 0
        self._closing = False
        self._lock = threading.Lock()

    def run(self) -> None:
        for life in itertools.count(1):
            generation = self.world.passwords.generation
            self._write(f"{self.name}/{life}", generation)
            if self.world.no_more_writes.is_set():
                return

    def _write(self, name: str, generation: int) -> None:
        writer = self.world.history.writer(name)
        self._closing = False
        producer = self._producer = KafkaProducer(
            **self.world.settings(self._credentials), **{"linger_ms": 5, "max_block_ms": 3_000, "acks": "all"} | self._settings
        )
        try:
            for first in itertools.count(0, PARTITIONS):
                if self.world.no_more_writes.wait(0.06):
                    break
                if self._credentials == "scram" and self.world.passwords.generation != generation:
                    break
                if self._waiting > MAX_WAITING:
                    continue
                try:
                    self._send(producer, writer, [b"%s %d" % (name.encode(), n) for n in range(first, first + PARTITIONS)])
                except Exception as error:
                    self.world.count(self.name, error)
            if self.world.no_more_writes.is_set():
                producer.flush(WAIT_S)
        except KafkaError as error:
            self.world.find(f"STUCK: {self.name}: flush: {error!r}; {producer.statistics()}")
        finally:
            self._closing = True
            try:
                producer.close(10)
            except Exception as error:
                self.world.count(f"{self.name}, closing", error)
            if self._waiting:
                self.world.find(f"PENDING: {self._waiting} records of {name} have no outcome after close")
                self._waiting = 0

    def _send(self, producer: KafkaProducer, writer: Writer, values: list[bytes]) -> None:
        now_ms = wall_ms()
        if self._many:
            sends = [writer.send(TOPIC, value) for value in values]
            self._expect(len(sends))
            try:
                future = producer.send_many(TOPIC, values)
            except KafkaError as error:
                appended, part = getattr(error, "appended", 0), getattr(error, "future", None)
                for send in sends[appended:]:
                    send.failed()
                self._expect(-len(sends[appended:]))
                if part is not None and appended:
                    part.add_done_callback(lambda done: self._many_done(done, sends[:appended], now_ms))
                raise
            future.add_done_callback(lambda done: self._many_done(done, sends, now_ms))
            return
        for partition, value in enumerate(values):
            send = writer.send(TOPIC, value, partition)
            self._expect(1)
            try:
                future_of_one = producer.send(TOPIC, value, partition=partition)
            except BaseException:
                send.failed()  # it was not queued
                self._expect(-1)
                raise
            future_of_one.add_done_callback(lambda done, send=send: self._one_done(done, send, now_ms))

    def _expect(self, count: int) -> None:
        with self._lock:
            self._waiting += count

    def _one_done(self, future: Any, send: Send, sent_ms: int) -> None:
        self._expect(-1)
        if (error := future.exception()) is not None:
            self._failed(error)
            return
        send.acked(future.result().offset)
        self._acknowledged(1, sent_ms)

    def _many_done(self, future: Any, sends: list[Send], sent_ms: int) -> None:
        self._expect(-len(sends))
        result = future.result()
        for nth, send in enumerate(sends):
            if (error := result.errors.get(nth)) is not None:
                self._failed(error)
            else:
                send.acked(int(result.offsets[nth]), int(result.partitions[nth]))
        if len(result.errors) < len(sends):
            self._acknowledged(len(sends) - len(result.errors), sent_ms)

    def _failed(self, error: KafkaError) -> None:
        """Nothing is noted in the history: the record may be in the log all the same."""
        if self._closing and isinstance(error, errors.ClosedError):
            self.world.tally(f"{self.name}, records: ClosedError while closing", error)  # its password is the old one
        else:
            self.world.count(f"{self.name}, records", error)

    def _acknowledged(self, count: int, sent_ms: int) -> None:
        self.seen += count
        self.latest_ms = max(self.latest_ms, sent_ms)

    def describe(self) -> str:
        return f"{self._waiting} records without outcome; {self._producer.statistics() if self._producer is not None else ''}"


class TransactionalWriter(Client):
    """confluent-kafka's transactional producer: commits two of three transactions."""

    committed = aborted = 0

    def run(self) -> None:
        for life in itertools.count(1):
            if self.world.no_more_writes.is_set():
                return
            # A request that is given up may arrive late and end the next transaction (transaction.version 1): so none is given up.
            producer = confluent_kafka.Producer(
                self.world.confluent_settings(
                    enable_idempotence=True,
                    transactional_id=TRANSACTIONAL_ID,
                    transaction_timeout_ms=60_000,
                    socket_timeout_ms=60_000,
                    linger_ms=2,
                )
            )
            try:
                self._live(producer, self.world.history.writer(f"{self.name}/{life}"))
            except confluent_kafka.KafkaException as exception:
                self._count(exception)

    def _count(self, exception: confluent_kafka.KafkaException) -> None:
        self.world.tally(f"{self.name}: {exception.args[0].name()}", exception)

    def _live(self, producer: confluent_kafka.Producer, writer: Writer) -> None:
        producer.init_transactions(WAIT_S)
        for number in itertools.count():
            if self.world.no_more_writes.wait(0.1):
                return
            transaction, sent_ms = writer.begin(), wall_ms()
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                value = b"%s %d %d" % (writer.name.encode(), number, partition)
                send = writer.send(TOPIC, value, partition)
                producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, m, send=send: error or send.acked(m.offset()))
            try:
                if number % 3 == 2:
                    self._end(producer.abort_transaction)
                    transaction.aborted()
                    self.aborted += 1
                    continue
                transaction.commit()
                self._end(producer.commit_transaction)
                transaction.committed()
                self.committed += 1
                self.seen += PARTITIONS
                self.latest_ms = sent_ms
            except confluent_kafka.KafkaException as exception:
                if not exception.args[0].txn_requires_abort():
                    raise
                self._count(exception)
                self._end(producer.abort_transaction)
                transaction.aborted()

    def _end(self, call: Callable[[float], None]) -> None:
        end = time.monotonic() + 2 * WAIT_S
        while True:
            try:
                call(10.0)
                return
            except confluent_kafka.KafkaException as exception:
                if not exception.args[0].retriable() or time.monotonic() > end:
                    raise
                self._count(exception)

    def describe(self) -> str:
        return f"{self.committed} transactions committed, {self.aborted} aborted"


# ---- readers


class OurReader(Client):
    """A consumer of kafkacore.

    Args:
        committed: read_committed.
        subscribes: subscribe and auto_offset_reset=earliest; otherwise assign, seek to 0, and auto_offset_reset=none.
        columns: poll_batch instead of poll.
    """

    def __init__(self, world: World, name: str, credentials: str, committed: bool, subscribes: bool, columns: bool = False) -> None:
        super().__init__(world, name)
        self._credentials, self._committed, self._subscribes, self._columns = credentials, committed, subscribes, columns
        self._consumer: KafkaConsumer | None = None
        self._health: object = None  # as of the last seconds: only its own thread may ask

    def run(self) -> None:
        for life in itertools.count(1):
            generation = self.world.passwords.generation
            with self._made() as consumer:
                self._consumer = consumer
                reader = self.world.history.reader(f"{self.name}/{life}", read_committed=self._committed)
                for partition in range(PARTITIONS):
                    reader.positioned(TOPIC, partition, 0)
                if self._read(consumer, reader, generation):
                    return

    def _made(self) -> KafkaConsumer:
        settings = self.world.settings(self._credentials) | {
            "isolation_level": "read_committed" if self._committed else "read_uncommitted",
            "auto_offset_reset": "earliest" if self._subscribes else "none",
            "fetch_max_wait_ms": 100,
        }
        consumer = KafkaConsumer(**settings)
        if self._subscribes:
            consumer.subscribe([TOPIC])
        else:
            consumer.assign(PLACES)
            for place in PLACES:
                consumer.seek(place, 0)
        return consumer

    def _read(self, consumer: KafkaConsumer, reader: Reader, generation: int) -> bool:
        """Reads until the end of the log (True), or until this client is handed another password."""
        deadline = None
        health_at = 0.0
        at: dict[TopicPartition, int] = {}
        while True:
            if time.monotonic() >= health_at:
                self._health, health_at = consumer.health(), time.monotonic() + 5
            try:
                for place, records in self._poll(consumer):
                    reader.polled(place.topic, place.partition, [(record.offset, record.value) for record in records])
                    self.seen += len(records)
                    if records:
                        self.latest_ms = max(self.latest_ms, records[-1].timestamp_ms)
                if (ends := self.world.ends) is not None and len(consumer.assignment()) == PARTITIONS:
                    at = {place: consumer.position(place, 5) for place in PLACES}
                    if all(at[place] >= end for place, end in ends.items()):
                        for place, end in ends.items():
                            reader.reached_end(TOPIC, place.partition, end)
                        return True
            except Exception as error:
                self.world.count(self.name, error)
            if self.world.ends is not None:
                deadline = deadline or time.monotonic() + WAIT_S
            if deadline is not None and time.monotonic() > deadline:
                self.world.find(f"STUCK: {self.name} stands at {at}, the log ends at {self.world.ends}; {self.describe()}")
                return True
            if self._credentials == "scram" and self.world.passwords.generation != generation:
                return False

    def _poll(self, consumer: KafkaConsumer) -> Iterable[tuple[TopicPartition, list[Any]]]:
        if not self._columns:
            return consumer.poll(0.2).items()
        return [(TopicPartition(each.topic, each.partition), list(each)) for each in consumer.poll_batch(0.2)]

    def describe(self) -> str:
        if self._consumer is None:
            return ""
        return f"{self._health}; {self._consumer.statistics()}"


class Commits:
    """What the group's members committed, and that no later answer is lower."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._floor: dict[int, int] = defaultdict(int)
        self._unclean: dict[int, set[int]] = defaultdict(set)
        self.acked = self.late = 0

    def tried(self, offsets: dict[int, int], took_s: float, acked: bool) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                if not acked or took_s > UNCLEAN_S:
                    self._unclean[partition].add(offset)
                if acked:
                    self.acked += 1
                    self._floor[partition] = max(self._floor[partition], offset)

    def floor(self) -> dict[int, int]:
        with self._lock:
            return dict(self._floor)

    def seen(self, who: str, partition: int, offset: int, floor: int) -> None:
        """Notes a committed offset that was asked for when `floor` was acknowledged."""
        if offset >= floor:
            return
        with self._lock:
            if offset in self._unclean[partition]:
                self.late += 1  # as with Kafka: an OffsetCommit has no sequence number
                self._floor[partition] = offset
                return
        self._world.find(f"COMMITTED OFFSET WENT BACK: {who}: {TOPIC}-{partition} is at {offset}, {floor} was acknowledged before")


class GroupMember(Client):
    """A member of a consumer group, by confluent-kafka: commits the records that it was shown."""

    def __init__(self, world: World, name: str, tokens: bool = False) -> None:
        super().__init__(world, name)
        self._tokens = tokens
        self._next: dict[int, int] = {}  # what is to be committed
        self._floors: dict[int, int] = {}  # of partitions that have shown nothing since they were assigned
        self.shown: dict[int, set[int]] = defaultdict(set)
        self.commits = self.assignments = 0

    def run(self) -> None:
        reader = self.world.history.reader(self.name)

        def assigned(_: Any, partitions: list[Any]) -> None:
            floor = self.world.offsets.floor()
            self.assignments += 1
            for each in partitions:
                reader.positioned(TOPIC, each.partition)
                self._floors[each.partition] = floor.get(each.partition, 0)

        def taken(_: Any, partitions: list[Any]) -> None:
            for each in partitions:
                self._next.pop(each.partition, None)
                self._floors.pop(each.partition, None)

        consumer = confluent_kafka.Consumer(
            self.world.confluent_settings(
                tokens=self._tokens,
                group_id=GROUP,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_uncommitted",
                session_timeout_ms=10_000,
                heartbeat_interval_ms=1_000,
                fetch_wait_max_ms=100,
                socket_timeout_ms=60_000,
            )
        )
        try:
            consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=taken, on_lost=taken)
            while not self.world.group_done.is_set():
                self._take(reader, consumer.consume(500, 0.2))
                if self._next:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _take(self, reader: Reader, messages: list[Any]) -> None:
        for message in messages:
            if (error := message.error()) is not None:
                self.world.tally(f"{self.name}: {error.name()}", error)
                continue
            partition, offset = message.partition(), message.offset()
            if (floor := self._floors.pop(partition, None)) is not None:
                self.world.offsets.seen(f"{self.name} begins", partition, offset, floor)
            reader.polled(TOPIC, partition, [(offset, message.value())])
            self.shown[partition].add(offset)
            self._next[partition] = offset + 1
            self.seen += 1

    def _commit(self, consumer: Any) -> None:
        offsets, asked_ms, before = dict(self._next), wall_ms(), time.monotonic()
        try:
            wanted = [confluent_kafka.TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
            answers = consumer.commit(offsets=wanted, asynchronous=False)
            failed = [each.error for each in answers if each.error is not None]
        except confluent_kafka.KafkaException as exception:
            failed = [exception.args[0]]
        for error in failed:
            self.world.tally(f"{self.name}, commit: {error.name()}", error)
        self.world.offsets.tried(offsets, time.monotonic() - before, not failed)
        if not failed:
            self.commits += 1
            self.latest_ms = asked_ms
            self._next = {partition: offset for partition, offset in self._next.items() if offsets.get(partition) != offset}

    def describe(self) -> str:
        return f"{self.commits} commits, {self.assignments} assignments, to be committed: {self._next}"


class Observer(Client):
    """Asks for the committed offsets, by kafkacore's admin client."""

    def run(self) -> None:
        with KafkaAdminClient(**self.world.settings("endpoint")) as admin:
            while not self.world.no_more_writes.wait(0.5):
                floor, asked_ms = self.world.offsets.floor(), wall_ms()
                if not floor:
                    continue
                try:
                    found = admin.list_group_offsets(GROUP, timeout=5)
                except Exception as error:
                    self.world.count(self.name, error)
                    continue
                for partition, least in floor.items():
                    answer = found.get(TopicPartition(TOPIC, partition))
                    self.world.offsets.seen(self.name, partition, -1 if answer is None else answer.offset, least)
                self.seen += 1
                self.latest_ms = asked_ms


def soak_clients(world: World) -> tuple[list[Client], list[Client], list[GroupMember], Observer]:
    """Writers, readers, the group's members and the observer."""
    writers: list[Client] = [
        OurWriter(world, "writer-endpoint", "endpoint"),
        OurWriter(world, "writer-scram", "scram", delivery_timeout_ms=60_000),
        OurWriter(world, "writer-many", "provider", many=True, delivery_timeout_ms=12_000),
        TransactionalWriter(world, "writer-transactions"),
    ]
    readers: list[Client] = [
        OurReader(world, "reader-endpoint", "endpoint", committed=True, subscribes=False),
        OurReader(world, "reader-provider", "provider", committed=False, subscribes=False, columns=True),
        OurReader(world, "reader-scram", "scram", committed=True, subscribes=True),
        OurReader(world, "reader-plain", "plain", committed=False, subscribes=True, columns=True),
    ]
    return writers, readers, [GroupMember(world, "member-1"), GroupMember(world, "member-2", tokens=True)], Observer(world, "observer")


def fresh_readers(world: World) -> Iterator[OurReader]:
    """Readers of the whole log, for the end."""
    yield OurReader(world, "fresh-uncommitted", "plain", committed=False, subscribes=False, columns=True)
    yield OurReader(world, "fresh-committed", "endpoint", committed=True, subscribes=True)
