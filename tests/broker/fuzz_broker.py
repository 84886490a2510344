"""Feeds a running broker mutated requests of every API and version it serves; only the connection they came on may suffer.

    PYTHONPATH=.:tests python tests/broker/fuzz_broker.py --seconds 60 --seed 1

After each request a second connection asks something harmless: the broker must still answer. A log record with a traceback is a bug found:
handlers answer hostile input with an error code, or the connection is closed with one line. Connections end in the middle of frames.
A run is repeated by its seed, but for what the broker's own clock does; tests/broker/test_fuzz_broker.py runs a short piece of it.
"""

from __future__ import annotations

import argparse
import logging
import random
import socket
import struct
import sys
import time
from collections import Counter

from controlling import create_topic
from fuzz_loop import mutate, random_message, sample_batches

from kafkacore import protocol
from kafkacore.broker.emulation import EMULATIONS, NEWEST, capped, emulation
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.server import Broker
from kafkacore.config import BrokerConfig
from kafkacore.protocol import schema
from tests.kit.wire import Wire

HARMLESS = protocol.MetadataRequest(topics=[protocol.MetadataRequestTopic(name="t")])
TOPICS = ("t", "u", "__consumer_offsets", "", "missing", "a" * 300)
_WAIT_S = 0.02


class BrokerFault(Exception):
    """The broker did what it must not."""


class Tracebacks(logging.Handler):
    """Keeps the log records that tell of a bug."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.records.append(record)


def plausible(message: schema.Struct, version: int, rng: random.Random) -> schema.Struct:
    """The message with names, indexes, times and records that lead deeper than noise does."""
    values: dict[str, object] = {}
    for name, field in type(message).FIELDS.items():
        value = getattr(message, name)
        if not field.versions.has(version):
            continue
        if isinstance(value, schema.Struct):
            value = plausible(value, version, rng)
        elif isinstance(value, list):
            value = [plausible(each, version, rng) if isinstance(each, schema.Struct) else each for each in value[:3]]
        elif rng.random() < 0.8:
            if isinstance(value, str) and ("topic" in name or name == "name"):
                value = rng.choice(TOPICS)
            elif isinstance(value, int) and not isinstance(value, bool):
                low = 0 if getattr(field.type, "name", "") == "uint16" else -1
                value = rng.choice((0, 1, 20) if name.endswith("_ms") else (0, 0, 1, low, 2))  # waits must end before the run does
        if name == "records":
            value = sample_batches(rng, (2, 2, 2, 1)) if rng.random() < 0.9 else b""
        values[name] = value
    return type(message)(**values)


def request_frame(broker: Broker, rng: random.Random) -> tuple[int, int, bytes]:
    """One request of an API and version the broker serves, in its frame."""
    api_key = rng.choice(list(broker.api_versions))
    low, high = broker.api_versions[api_key]
    version = rng.randint(low, high)
    message = random_message(protocol.APIS[api_key].request, version, rng)
    if rng.random() < 0.8:
        message = plausible(message, version, rng)  # type: ignore[assignment]
    parts = protocol.encode_request(message, version, rng.getrandbits(31), rng.choice((None, "", "fuzz")))
    return api_key, version, b"".join(bytes(part) for part in parts)


def wound(frame: bytes, rng: random.Random) -> bytes:
    """The frame, mutated behind its size in most cases, its size right in most of those."""
    if rng.random() < 0.25:
        return frame
    body = mutate(frame[4:], rng)
    kind = rng.random()
    if kind < 0.8:
        return struct.pack(">i", len(body)) + body
    if kind < 0.9:
        return mutate(frame, rng)
    return struct.pack(">i", rng.choice((-1, 0, 1, 3, 0x7FFFFFFF, len(body) + 5))) + body


class Attack:
    """Connections to a broker over which garbage goes, and one over which nothing but proper requests go."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.witness = Wire(broker.address)
        self.sock: socket.socket | None = None
        self.sent: Counter[int] = Counter()
        self.tracebacks = Tracebacks()
        logging.getLogger("kafkacore").addHandler(self.tracebacks)

    def close(self) -> None:
        logging.getLogger("kafkacore").removeHandler(self.tracebacks)
        self.witness.sock.close()
        if self.sock is not None:
            self.sock.close()

    def step(self, data: bytes) -> None:
        """Sends some bytes and asks the witness's question."""
        if self.sock is None or self.rng.random() < 0.05:
            self._reconnect()
        assert self.sock is not None
        try:
            self.sock.sendall(data)
            if len(data) < 4 or self.rng.random() < 0.3:
                self._drain()
        except OSError:  # it closed the connection, as it may, or reads no more, as it may too
            self._reconnect()
        answer = self.witness.ask(HARMLESS, 0)
        if [topic.name for topic in answer.topics] != ["t"]:
            raise BrokerFault(f"another connection was answered {answer}")
        if self.tracebacks.records:
            record = self.tracebacks.records[0]
            raise BrokerFault(f"{record.getMessage()}: {record.exc_info}")

    def _reconnect(self) -> None:
        if self.sock is not None:
            self.sock.close()
        host, _, port = self.broker.address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=10)
        self.sock.settimeout(_WAIT_S)

    def _drain(self) -> None:
        assert self.sock is not None
        try:
            if not self.sock.recv(1 << 20):
                self._reconnect()
        except TimeoutError:  # no answer: the request waits, or its frame is not whole
            self._reconnect()

    def round(self) -> None:
        """One mutated request."""
        api_key, version, frame = request_frame(self.broker, self.rng)
        self.sent[api_key] += 1
        try:
            self.step(wound(frame, self.rng))
        except BrokerFault as found:
            raise BrokerFault(f"{protocol.APIS[api_key].name} v{version}: {found}") from None


def broker_to_attack(release: str = NEWEST) -> Broker:
    """A broker of a release with two topics, small limits, and nothing that waits long."""
    config = BrokerConfig(socket_request_max_bytes=1 << 20, message_max_bytes=200_000, offsets_topic_num_partitions=2)
    features = emulation(release).supported_features
    broker = Broker(config, api_versions=capped(API_VERSIONS, release), supported_features=features, emulate=release).start()
    for topic in ("t", "u"):
        broker.call(lambda topic=topic: create_topic(broker.state.controller, topic))  # type: ignore[misc]
    return broker


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--emulate", choices=EMULATIONS, default=NEWEST)
    options = parser.parse_args()
    broker = broker_to_attack(options.emulate)
    attack = Attack(broker, random.Random(options.seed))
    end = time.monotonic() + options.seconds
    count = 0
    try:
        while time.monotonic() < end:
            attack.round()
            count += 1
    except BrokerFault as found:
        print(f"fuzz: broker, seed {options.seed}, after {count} requests: {found}", file=sys.stderr)
        return 1
    finally:
        attack.close()
        broker.stop()
    print(f"fuzz: broker, {count:,} requests of {len(attack.sent)} APIs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
