"""Puts records on a broker with a bare socket, so that consumer tests depend on no producer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any

from kafkacore import protocol as p
from kafkacore.records import BatchBuilder


def ask(address: str, request: Any, version: int) -> Any:
    """One request on a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"".join(p.encode_request(request, version, 1, "test")))
        (size,) = struct.unpack(">i", stream.read(4))
        payload = stream.read(size)
    _, start = p.decode_response_header(request.API_KEY, version, payload)
    return type(request).RESPONSE.decode(version, payload, start)


def produce(address: str, topic: str, partition: int, values: Iterable[bytes], batch: int = 100, **options: Any) -> None:
    """Appends the values in batches of `batch` records."""
    values = list(values)
    for first in range(0, len(values), batch):
        builder = BatchBuilder(max_bytes=1 << 24, **options)
        for i, value in enumerate(values[first : first + batch]):
            assert builder.append(value, key=b"k%d" % (first + i), timestamp_ms=1_000_000 + first + i)
        data = p.PartitionProduceData(index=partition, records=builder.build())
        request = p.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[p.TopicProduceData(name=topic, partition_data=[data])])
        answer = ask(address, request, 9).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
