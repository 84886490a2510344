"""Clients against a broker that lies: every answer of a real one may be changed on its way.

    PYTHONPATH=. python tests/security/hostile_brokers.py --seconds 600 --seed 1

A proxy on loopback passes requests on, and answers as they are, with other bytes, with other values in their fields (edges of numbers,
empty and doubled arrays, strange texts), as a random message of the same type and version, or with another size. Producer, consumer,
admin client, the command line and the other faces (hostile_faces.py) go through it in turns, and now and then one that is lied to in
the same way again and again (hostile_lies.py). They may fail with errors of `kafkacore.errors`, or of the face; a foreign exception, a
traceback in the log, a call that takes far longer than its time-out, requests in a loop, and memory that grows beyond a bound are bugs.

Names are looked up nowhere, and only loopback is connected to: an answer may name any host. A run is repeated by its seed but for what
threads and clocks do; tests/security/test_hostile_brokers.py runs a short piece of it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import gc
import io
import logging
import random
import re
import resource
import select
import signal
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any
from unittest import mock

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition, protocol
from kafkacore.admin import ConfigResource
from kafkacore.errors import InternalError, KafkaError
from kafkacore.net import background
from kafkacore.protocol.schema import Struct
from kafkacore.testing import EmbeddedCluster
from tests.fuzz_loop import mutate, random_message
from tests.security.hostile_faces import FACES, OTHERS

CALL_S = 0.25
"""The time-out of calls."""
LATE_S = 120.0
"""A call that takes so long hangs: the end of a client waits 30 s for brokers, and the machine may be busy."""
GROWTH_BYTES = 600 << 20
EDGES = (0, 1, -1, 2, 127, 255, 32_767, 65_535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
TEXTS = ("", "a..b", "\0", "é" * 50, "x" * 300, "\x1b[2J\u202e", "127.0.0.1", "t", "../..")
RARER = {18: 0.05, 3: 0.15, 10: 0.3}
"""Answers that all others wait for, by API: ApiVersions, Metadata, FindCoordinator."""


class Misbehaved(Exception):
    """A client did what it must not."""


# ---- what becomes of answers


def twisted(value: Any, rng: random.Random) -> Any:
    """A value of the same kind with a lie somewhere in it."""
    if isinstance(value, Struct):
        names = list(value.FIELDS)
        if not names:
            return value
        name = rng.choice(names)
        return value._replace(**{name: twisted(getattr(value, name), rng)})
    if isinstance(value, list):
        what = rng.randrange(5)
        if not value or what == 0:
            return []
        if what == 1:
            return value + value
        if what == 2:
            return value[::-1]
        at = rng.randrange(len(value))
        return [*value[:at], twisted(value[at], rng), *value[at + 1 :]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*EDGES, value + 1, value - 1))
    if isinstance(value, str):
        return rng.choice(TEXTS)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return mutate(bytes(value), rng)
    return value


def lie(key: int, version: int, frame: bytes, rng: random.Random) -> bytes:
    """Another answer than the one in `frame`, which is without its size; what comes back has one."""
    kind = rng.random()
    if kind < 0.25:
        changed = frame[:4] + mutate(frame[4:], rng) if rng.random() < 0.9 else mutate(frame, rng)
        return len(changed).to_bytes(4, "big") + changed
    if kind < 0.3:
        return rng.choice((0x7FFFFFFF, 0xFFFFFFFF, 0, 3, len(frame) + 100, len(frame) // 2)).to_bytes(4, "big") + frame
    correlation_id, start = protocol.decode_response_header(key, version, frame)
    response = protocol.APIS[key].response
    for _ in range(5):
        try:
            if kind < 0.45:
                made = random_message(response, version, rng)
            else:
                made = twisted(response.decode(version, frame, start), rng)
            return b"".join(bytes(part) for part in protocol.encode_response(made, version, correlation_id))
        except (KafkaError, ValueError, OverflowError):  # the lie fits no wire type
            continue
    return len(frame).to_bytes(4, "big") + frame


class Proxy:
    """Between clients and a broker, on a thread of its own. It has two ports: a broker that seems to be two.

    Attributes:
        ports: where it listens; `port` is the first.
        asked: requests that have come, by API.
        bend: `bend(API, response, node)` gives other answers in the place of one: the first that the version can carry is sent. None while
            answers are changed by chance.
        broken: why it could not, at last.
        share: of the answers that are changed, 0 to 1.
        left: how many answers are changed at most; then comes the truth.
        changed: answers changed, by API.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.share = 0.0
        self.left = 0
        self.changed: Counter[str] = Counter()
        self.target: tuple[str, int] | None = None
        self.asked: Counter[str] = Counter()
        self.bend: Callable[[str, Any, int], list[Any]] | None = None
        self.broken: Exception | None = None
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.ports: list[int] = [each.getsockname()[1] for each in self._listeners]
        self.port = self.ports[0]
        self._nodes: weakref.WeakKeyDictionary[socket.socket, int] = weakref.WeakKeyDictionary()
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="hostile broker")

    def start(self, target: tuple[str, int]) -> None:
        self.target = target
        self._thread.start()

    def close(self) -> None:
        self._waker.send(b"x")
        self._thread.join()
        for each in (*self._listeners, self._wake, self._waker):
            each.close()

    def _run(self) -> None:
        others: dict[socket.socket, socket.socket] = {}
        clients: set[socket.socket] = set()
        held: dict[socket.socket, bytes] = {}
        asked: dict[socket.socket, list[tuple[int, int]]] = {}
        while True:
            poller = select.poll()
            watched = {each.fileno(): each for each in (self._wake, *self._listeners, *others)}
            for fd in watched:
                poller.register(fd, select.POLLIN)
            readable = [watched[fd] for fd, _ in poller.poll()]
            if self._wake in readable:
                break
            for sock in readable:
                if sock in self._listeners:
                    client, _ = sock.accept()
                    broker = socket.socket()  # not create_connection, which looks names up
                    self._nodes[broker] = self._listeners.index(sock) + 1
                    broker.connect(self.target)
                    for end in (client, broker):
                        end.settimeout(LATE_S)
                    others |= {client: broker, broker: client}
                    clients.add(client)
                    held |= {client: b"", broker: b""}
                    asked[broker] = []
                    continue
                if sock not in others:
                    continue
                try:
                    data = sock.recv(1 << 20)
                    if data:
                        self._pass_on(sock, others[sock], sock in clients, data, held, asked)
                except OSError:
                    data = b""
                if not data:
                    for end in (sock, others[sock]):
                        others.pop(end, None)
                        clients.discard(end)
                        end.close()
        for end in others:
            end.close()

    def _pass_on(
        self, source: socket.socket, to: socket.socket, is_client: bool, data: bytes, held: dict[Any, bytes], asked: dict[Any, Any]
    ) -> None:
        data = held[source] + data
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
            frame, data = data[4 : 4 + int.from_bytes(data[:4], "big")], data[4 + int.from_bytes(data[:4], "big") :]
            out = len(frame).to_bytes(4, "big") + frame
            if is_client:
                key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                asked[to].append((key, version))
                self.asked[protocol.APIS[key].name if key in protocol.APIS else str(key)] += 1
            else:
                key, version = asked[source].pop(0)
                if self.bend is not None:
                    out = self._bent(self.bend, key, version, frame, self._nodes[source])
                elif self.left > 0 and self.rng.random() < self.share * RARER.get(key, 1.0):
                    self.left -= 1
                    self.changed[protocol.APIS[key].name] += 1
                    out = lie(key, version, frame, self.rng)
            to.sendall(out)
        held[source] = data

    def _bent(self, bend: Callable[[str, Any, int], list[Any]], key: int, version: int, frame: bytes, node: int) -> bytes:
        try:
            correlation_id, start = protocol.decode_response_header(key, version, frame)
            api = protocol.APIS[key]
            response = api.response.decode(version, frame, start)
            for bent in bend(api.name, response, node):
                try:
                    return b"".join(bytes(part) for part in protocol.encode_response(bent, version, correlation_id))
                except KafkaError as error:  # a field that this version does not have
                    self.broken = error
        except Exception as error:  # the lie fits no wire type: its table is wrong
            self.broken = error
        return len(frame).to_bytes(4, "big") + frame


# ---- what clients do


QUICK = {
    "request.timeout.ms": 200, "retry.backoff.ms": 5, "retry.backoff.max.ms": 20, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10,
    "receive.message.max.bytes": 8 << 20,
}  # fmt: skip
ADMIN: list[Callable[[KafkaAdminClient], Any]] = [
    lambda a: a.list_topics(),
    lambda a: a.describe_topics(["t"]),
    lambda a: a.describe_cluster(),
    lambda a: a.describe_configs([ConfigResource("topic", "t"), ConfigResource("broker", "1")]),
    lambda a: a.alter_configs({ConfigResource("topic", "t"): {"retention.ms": "1000000"}}),
    lambda a: a.list_groups(),
    lambda a: a.list_groups(partial=True),
    lambda a: a.list_transactions(partial=True),
    lambda a: a.describe_producers([TopicPartition("t", 0)], broker=1),
    lambda a: a.describe_quorum(),
    lambda a: a.describe_features(),
    lambda a: a.describe_cluster(include_authorized_operations=True),
    lambda a: a.describe_groups(["g", "h"]),
    lambda a: a.list_group_offsets("g"),
    lambda a: a.list_offsets({TopicPartition("t", 0): "latest"}),
    lambda a: a.describe_log_dirs([1]),
    lambda a: a.describe_producers([TopicPartition("t", 0)]),
    lambda a: a.list_transactions(),
    lambda a: a.describe_transactions(["x"]),
    lambda a: a.describe_user_scram_credentials(),
    lambda a: a.describe_client_quotas(),
    lambda a: a.list_partition_reassignments(),
    lambda a: a.delete_records({TopicPartition("t", 0): 0}),
    lambda a: a.create_topics([NewTopic("u", 1)]),
    lambda a: a.create_partitions({"u": 2}),
    lambda a: a.delete_topics(["u"]),
    lambda a: a.elect_leaders([TopicPartition("t", 0)]),
    lambda a: a.alter_user_scram_credentials({("alice", "SCRAM-SHA-256"): "secret"}),
    lambda a: a.describe_acls(),
    lambda a: a.describe_delegation_tokens(),
    lambda a: a.list_config_resources(),
    lambda a: a.alter_group_offsets("empty", {TopicPartition("t", 0): 1}),
    lambda a: a.fence_producers(["x1"]),
    lambda a: a.delete_groups(["nobody"]),
]
COMMANDS = (
    ["topics", "list"], ["topics", "describe", "t"], ["topics", "describe", "t", "--json"],
    ["cluster"], ["configs", "describe", "--topic", "t"], ["transactions", "list"], ["users", "describe"],
)  # fmt: skip
GROUP_COMMANDS = (
    ["groups", "list"], ["groups", "describe", "g"], ["groups", "describe", "--json"], ["groups", "list", "--json"],
    ["groups", "reset", "empty", "t", "--to", "earliest"], ["groups", "reset", "empty", "--by", "1", "--execute", "--json"],
    ["groups", "reset", "empty", "t", "--to", "@-1h", "--execute"], ["groups", "delete", "nobody", "--yes"],
)  # fmt: skip
READING_COMMANDS = (
    ["consume", "t", "--from", "earliest", "-e", "--json"], ["consume", "t", "--from", "-2", "-n", "3", "-f", "%t %p %o\\n"],
    ["consume", "t", "--group", "h", "--from", "earliest", "-n", "5", "--json"],
    ["consume", "t", "--from", "@-1h", "-e", "-p", "1", "--json"],
    ["consume", "t", "--isolation", "read_committed", "--from", "0", "-e", "--json"], ["consume", "t", "--json"],
    ["query", "select count(*) n, max(value) from t"], ["query", "select * from t", "--json", "--format", "string"],
    ["query", "select * from t", "--last", "2", "--csv"], ["query", "select count(*) from t", "--follow", "--json"],
)  # fmt: skip
INTERRUPT_S = 1.0
"""A command that still reads has Ctrl+C then: many would never end, as they should."""
LATER_S = 0.05
"""It comes so much later where it would end in a finalizer."""
HARMFUL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What has an effect on a terminal."""


class Tracebacks(logging.Handler):
    """Keeps the log records that tell of a bug."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and (isinstance(error, InternalError) or not isinstance(error, (KafkaError, OSError))):
            self.records.append(record)


class Attack:
    """A cluster, the proxy before it, and rounds of use."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.proxy = Proxy(random.Random(seed + 1))
        self.log = Tracebacks()
        self.done: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.words: list[str] = []

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Attack]:
        logger = logging.getLogger("kafkacore")
        config = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "num.partitions": "3"}
        logger.addHandler(self.log)
        logger.propagate = False
        with contextlib.ExitStack() as ends, EmbeddedCluster(config=config) as cluster:
            ends.callback(setattr, logger, "propagate", True)
            ends.callback(logger.removeHandler, self.log)
            target = ("127.0.0.1", int(cluster.bootstrap_servers.rpartition(":")[2]))
            self.proxy.start(target)
            ends.callback(self.proxy.close)

            def addresses(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
                """Loopback alone, and the proxy in the place of the broker."""
                if host not in ("127.0.0.1", "localhost"):
                    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", self.proxy.port if port == target[1] else port))]

            self.settings: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{self.proxy.port}", **QUICK}
            with KafkaProducer({**self.settings, "request.timeout.ms": 10_000, "delivery.timeout.ms": 20_000}) as producer:
                for number in range(30):
                    producer.send("t", b"value %d" % number, key=b"%d" % (number % 5))
            self.began_bytes = _resident_bytes()
            with mock.patch.object(background.socket, "getaddrinfo", addresses):
                try:
                    yield self
                finally:
                    self.proxy.share = 0.0

    def round(self) -> None:
        """One use of one client.

        Raises:
            Misbehaved: it did what it must not.
        """
        uses = [
            ("producer", self.produce),
            ("consumer", self.consume),
            ("admin", self.administrate),
            ("cli", lambda: self.command(COMMANDS)),
            ("cli groups", lambda: self.command(GROUP_COMMANDS)),
            ("cli reads", lambda: self.command(READING_COMMANDS)),
            *((face, functools.partial(self.face, face)) for face in FACES),
            ("lies", self.consistent),
        ]
        name, use = self.rng.choice(uses)
        self.proxy.share = self.rng.choice((0.1, 0.3, 0.6, 1.0))
        self.proxy.left = self.rng.choice((2, 10, 1 << 30))
        self.words = []
        begun = time.monotonic()
        faulthandler.dump_traceback_later(LATE_S - 5)
        try:
            use()
        except InternalError as error:
            raise Misbehaved(f"{name}: {error!r}") from error
        except KafkaError as error:
            self.faults[type(error).__name__] += 1
        except Misbehaved:
            raise
        except Exception as error:
            raise Misbehaved(f"{name}: {type(error).__name__}: {error}") from error
        finally:
            faulthandler.cancel_dump_traceback_later()
        self.done[name] += 1
        if (took := time.monotonic() - begun) > LATE_S:
            raise Misbehaved(f"{name} took {took:.1f} s: {self.words}")
        if self.log.records:
            record = self.log.records[0]
            raise Misbehaved(f"{name}: {record.getMessage()}") from (record.exc_info or (None, None))[1]
        if (grown := _resident_bytes() - self.began_bytes) > GROWTH_BYTES:
            raise Misbehaved(f"{name}: {grown >> 20} MiB more than at the start")

    def produce(self) -> None:
        settings = {**self.settings, "max.block.ms": 200, "delivery.timeout.ms": 400, "linger.ms": 0}
        transactional = self.rng.random() < 0.4
        if transactional:
            settings |= {"transactional.id": f"x{self.rng.randrange(1000)}"}
        producer = KafkaProducer(settings)
        try:
            if transactional:
                producer.init_transactions()
                producer.begin_transaction()
            futures = [producer.send("t", b"x") for _ in range(3)]
            for future in futures:
                future.result(LATE_S)
            if transactional:
                producer.commit_transaction()
        finally:
            with contextlib.suppress(KafkaError):
                producer.close(CALL_S)

    def consume(self) -> None:
        settings = {**self.settings, "auto.offset.reset": "earliest", "default.api.timeout.ms": 250, "fetch.max.wait.ms": 20}
        grouped = self.rng.random() < 0.6
        if grouped:
            settings |= {"group.id": "g", "group.protocol": self.rng.choice(("classic", "consumer"))}
        if self.rng.random() < 0.5:
            settings |= {"isolation.level": "read_committed"}
        consumer = KafkaConsumer(**{name.replace(".", "_"): value for name, value in settings.items()})
        try:
            if grouped:
                consumer.subscribe(["t"])
            else:
                consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
            for _ in range(4):
                consumer.poll(timeout=0.05)
            for call in (consumer.list_topics, lambda: consumer.end_offsets([TopicPartition("t", 0)])):
                call()
            if grouped:
                consumer.commit()
        finally:
            with contextlib.suppress(KafkaError):
                consumer.close(timeout=CALL_S)

    def administrate(self) -> None:
        settings = {**self.settings, "default.api.timeout.ms": 250}
        if self.rng.random() < 0.15:  # what answers is a broker: only a lie makes it a controller
            settings["bootstrap.controllers"] = settings.pop("bootstrap.servers")
        with KafkaAdminClient(settings) as admin:
            for call in self.rng.sample(ADMIN, 3):
                try:
                    found = call(admin)
                    for error in getattr(found, "errors", {}).values():
                        if isinstance(error, InternalError):
                            raise error
                except InternalError:
                    raise
                except KafkaError as error:
                    self.faults[type(error).__name__] += 1

    def face(self, name: str) -> None:
        """What a program over one of the other faces does; see hostile_faces.py."""
        drive = self.rng.choice(sorted(FACES[name]))
        self.words = [name, drive]
        settings = {"group.id": f"f{self.rng.randrange(1000)}"} if drive == "group" else {}
        try:
            FACES[name][drive](self.settings["bootstrap.servers"], 2 * CALL_S, settings, self._failed)
        except InternalError:
            raise
        except KafkaError as error:
            if name in OTHERS:
                raise Misbehaved(f"{name} {drive}: an error under our name, {error!r}") from error
            raise

    def consistent(self) -> None:
        """One lie, told again and again, and how often the client asked for it; see hostile_lies.py."""
        from tests.security import hostile_lies

        self.proxy.share = 0.0
        face = self.rng.choice(sorted(FACES))
        name, drive = self.rng.choice(hostile_lies.cases(face))
        self.words = [face, drive, name]
        pace = hostile_lies.measured(self, name, drive, face)
        if pace.rate > hostile_lies.PACE:
            raise Misbehaved(f"{face} {drive}, {name}: {pace}")

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, InternalError):
            raise error
        self.faults[type(error).__name__] += 1

    def command(self, table: Sequence[list[str]]) -> None:
        from kafkacore.cli.app import run

        given = [word for name, value in {**QUICK, "default.api.timeout.ms": 250}.items() for word in ("-X", f"{name}={value}")]
        self.words = words = [*self.rng.choice(table), "-b", self.settings["bootstrap.servers"], *given]
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
        with _interrupting(INTERRUPT_S), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run(words)
        shown = out.buffer.getvalue().decode(errors="replace") + err.getvalue()  # type: ignore[attr-defined]
        if "Traceback" in err.getvalue():
            raise Misbehaved(f"{words}: {err.getvalue()}")
        if (harm := HARMFUL.search(shown)) is not None:
            raise Misbehaved(f"{words}: {harm[0]!r} in {shown!r}")


@contextlib.contextmanager
def _interrupting(seconds: float) -> Iterator[None]:
    """Ctrl+C comes after so long, if the block still runs, and ends it. Only the main thread has signals: elsewhere it never comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    inside = begun = False
    timers: list[threading.Timer] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not begun or (inside and _in_finalizer(frame)):
            wait(LATER_S)
        elif inside:
            raise KeyboardInterrupt

    def wait(for_s: float) -> None:
        timer = threading.Timer(for_s, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        timer.daemon = True
        timer.start()
        timers.append(timer)

    before = signal.signal(signal.SIGINT, interrupt)
    wait(seconds)
    try:
        try:
            inside = begun = True
            yield
        finally:
            inside = False
    except KeyboardInterrupt:  # it came as the command was ending
        inside = False
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()
        signal.signal(signal.SIGINT, before)


_WEAK_FILES = {weakref.WeakKeyDictionary.__init__.__code__.co_filename, weakref.WeakSet.__init__.__code__.co_filename}


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether a `__del__` or a callback of the collector or of a weak set runs: Python itself prints what is raised there, and goes on."""
    callbacks = {getattr(each, "__code__", None) for each in gc.callbacks}
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code in callbacks or code.co_filename in _WEAK_FILES:
            return True
        frame = frame.f_back
    return False


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def run(seed: int, *, rounds: int | None = None, seconds: float | None = None) -> Attack:
    """Rounds until their number or the time is reached."""
    attack = Attack(seed)
    end = None if seconds is None else time.monotonic() + seconds
    with attack():
        count = 0
        while (rounds is None or count < rounds) and (end is None or time.monotonic() < end):
            attack.round()
            count += 1
    return attack


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    attack = run(given.seed, seconds=given.seconds)
    print(dict(attack.done), dict(attack.proxy.changed), dict(attack.faults), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
