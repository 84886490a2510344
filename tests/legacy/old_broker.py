"""A broker of Kafka 0.8 by its protocol guide, with struct alone: the counterpart of old requests in tests, and their independent decoder.

It serves Metadata, Produce, Fetch and Offsets in version 0, and closes the connection at anything else, as Kafka 0.8 does. Message sets are
kept as they come, with the offsets that a leader gives them.
"""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import zlib
from typing import Any

import snappy

PRODUCE, FETCH, OFFSETS, METADATA = 0, 1, 2, 3
NO_CODEC, GZIP, SNAPPY = 0, 1, 2
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER = 1, 3, 6


class Reader:
    """The primitives of the protocol."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> Any:
        (value,) = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return value

    def bytes(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        assert len(found) == size
        self.at += size
        return found

    def string(self) -> str:
        return self.bytes(self.take("h")).decode()


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def messages(data: bytes, depth: int = 0) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, codec, key, value) of each message, those of wrappers in place of the wrappers."""
    found = []
    at = 0
    while at < len(data):
        offset, size, crc = struct.unpack_from(">qiI", data, at)
        body = data[at + 16 : at + 12 + size]
        assert zlib.crc32(body) == crc
        magic, attributes = struct.unpack_from(">bb", body)
        assert (magic, attributes & ~3) == (0, 0)
        parts = []
        rest = body[2:]
        for _ in range(2):
            (length,) = struct.unpack_from(">i", rest)
            parts.append(None if length < 0 else rest[4 : 4 + length])
            rest = rest[4 + max(0, length) :]
        assert rest == b""
        key, value = parts
        if attributes:
            assert depth == 0 and key is None and value is not None
            found += [(o, attributes, k, v) for o, _, k, v in messages(unpacked(attributes, value), depth + 1)]
        else:
            found.append((offset, NO_CODEC, key, value))
        at += 12 + size
    return found


def unpacked(codec: int, value: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(value)
    assert codec == SNAPPY and value[:8] == b"\x82SNAPPY\0"
    out, at = b"", 16
    while at < len(value):
        (size,) = struct.unpack_from(">i", value, at)
        out += snappy.uncompress(value[at + 4 : at + 4 + size])
        at += 4 + size
    return out


def placed(data: bytes, first: int) -> tuple[bytes, int]:
    """The set with offsets from `first` on, as a leader of 0.8 writes it (wrappers are packed anew), and the offset after it."""
    out, at = b"", 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at + 8)
        body = data[at + 16 : at + 12 + size]
        codec = body[1] & 3
        if codec:
            inner, following = placed(unpacked(codec, body[10:]), first)
            packed = gzip.compress(inner)  # a leader packs with the codec of the wrapper; one is enough here
            body = struct.pack(">bbii", 0, GZIP, -1, len(packed)) + packed
            out += struct.pack(">qiI", following - 1, len(body) + 4, zlib.crc32(body)) + body
            first = following
        else:
            out += struct.pack(">q", first) + data[at + 8 : at + 12 + size]
            first += 1
        at += 12 + size
    return out, first


class OldBroker:
    """Args:
    **topics: partitions by topic.
    """

    def __init__(self, **topics: int) -> None:
        self.sets: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
        for topic, count in topics.items():
            self.sets |= {(topic, partition): [] for partition in range(count)}
        self.requests: list[tuple[int, int]] = []
        self.produced: list[tuple[int, int, dict[tuple[str, int], bytes]]] = []
        """(acks, timeout, sets) of each Produce request."""
        self.refuse: list[int] = []
        """Error codes for the next Produce requests."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        for each in [self._socket, *self._open]:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        for thread in self._threads:
            thread.join(30)

    def __enter__(self) -> OldBroker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def end(self, topic: str, partition: int) -> int:
        of_partition = self.sets[topic, partition]
        return of_partition[-1][1] if of_partition else 0

    def stored(self, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        """(key, value) by partition; offsets rise by one."""
        found = {}
        for (name, partition), sets in self.sets.items():
            if name == topic and sets:
                rows = messages(b"".join(data for _, _, data in sets))
                assert [offset for offset, *_ in rows] == list(range(len(rows)))
                found[partition] = [(key, value) for _, _, key, value in rows]
        return found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._answer_all(connection)
        except OSError:
            pass  # of `close`, or the client has left
        finally:
            connection.close()

    def _answer_all(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                request = Reader(stream.read(struct.unpack(">i", size)[0]))
                key, version, correlation_id = request.take("h"), request.take("h"), request.take("i")
                request.string()
                self.requests.append((key, version))
                serve = {PRODUCE: self._produce, FETCH: self._fetch, OFFSETS: self._offsets, METADATA: self._metadata}.get(key)
                if serve is None or version:
                    return
                answer = serve(request)
                assert request.at == len(request.data)
                if answer is not None:
                    connection.sendall(struct.pack(">ii", len(answer) + 4, correlation_id) + answer)

    def _metadata(self, request: Reader) -> bytes:
        names = [request.string() for _ in range(request.take("i"))] or sorted({topic for topic, _ in self.sets})
        answer = struct.pack(">ii", 1, 7) + string("127.0.0.1") + struct.pack(">ii", self.port, len(names))
        for name in names:
            numbers = [partition for topic, partition in self.sets if topic == name]
            answer += struct.pack(">h", 0 if numbers else UNKNOWN_TOPIC) + string(name) + struct.pack(">i", len(numbers))
            for number in numbers:
                answer += struct.pack(">hii", 0, number, 7) + struct.pack(">ii", 1, 7) + struct.pack(">ii", 1, 7)
        return answer

    def _produce(self, request: Reader) -> bytes | None:
        acks, timeout_ms = request.take("h"), request.take("i")
        refused = self.refuse.pop(0) if self.refuse else 0
        answer, sets = b"", {}
        topic_count = request.take("i")
        for _ in range(topic_count):
            topic = request.string()
            count = request.take("i")
            answer += string(topic) + struct.pack(">i", count)
            for _ in range(count):
                partition, size = request.take("i"), request.take("i")
                data = sets[topic, partition] = request.bytes(size)
                first = self.end(topic, partition)
                if not refused:
                    written, following = placed(data, first)
                    self.sets[topic, partition].append((first, following, written))
                answer += struct.pack(">ihq", partition, refused, -1 if refused else first)
        self.produced.append((acks, timeout_ms, sets))
        return struct.pack(">i", topic_count) + answer if acks else None

    def _fetch(self, request: Reader) -> bytes:
        request.take("i"), request.take("i"), request.take("i")
        topic_count = request.take("i")
        answer = struct.pack(">i", topic_count)
        for _ in range(topic_count):
            topic = request.string()
            count = request.take("i")
            answer += string(topic) + struct.pack(">i", count)
            for _ in range(count):
                partition, offset, max_bytes = request.take("i"), request.take("q"), request.take("i")
                end = self.end(topic, partition)
                code = OFFSET_OUT_OF_RANGE if offset > end else 0
                data = b"".join(data for _, following, data in self.sets[topic, partition] if following > offset)[:max_bytes]
                answer += struct.pack(">ihqi", partition, code, -1 if code else end, len(data)) + data
        return answer

    def _offsets(self, request: Reader) -> bytes:
        request.take("i")
        topic_count = request.take("i")
        answer = struct.pack(">i", topic_count)
        for _ in range(topic_count):
            topic = request.string()
            count = request.take("i")
            answer += string(topic) + struct.pack(">i", count)
            for _ in range(count):
                partition, time_ms, most = request.take("i"), request.take("q"), request.take("i")
                starts = [first for first, _, _ in self.sets[topic, partition]] or [0]
                found = [0] if time_ms == -2 else [self.end(topic, partition), *reversed(starts)][:most]
                answer += struct.pack(">ihi", partition, 0, len(found)) + struct.pack(f">{len(found)}q", *found)
        return answer
