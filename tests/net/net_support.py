"""A scripted cluster for tests of the network client: in-memory transports, a clock moved by hand, a test that plays the brokers."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from typing import Any

from kafkacore import protocol
from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.metadata import Metadata
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.frames import FrameReader
from kafkacore.net.selector import Selector, SelectorsPoller
from kafkacore.net.transport import Address, MemoryTransport, Transport, memory_pair
from kafkacore.types import Node


class CountingPoller(SelectorsPoller):
    """Never waits; notes the waits asked for. With a clock, a wait lets the brokers answer, or else moves the clock."""

    __slots__ = ("clock", "serve", "waits")

    def __init__(self, serve: Callable[[], bool]) -> None:
        super().__init__()
        self.waits: list[int] = []
        self.clock: ManualClock | None = None
        self.serve = serve

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        self.waits.append(timeout_ms)
        events = super().poll(0)
        if not events and timeout_ms > 0 and self.clock is not None:
            if self.serve():
                return super().poll(0)  # the answer has woken the client
            self.clock.advance(timeout_ms)
        return events


class Peer:
    """The far end of one connection, with the test as its broker."""

    def __init__(self, transport: MemoryTransport, address: Address) -> None:
        self.transport = transport
        self.address = address
        self.requests: list[tuple[protocol.RequestHeader, Any]] = []
        self._reader = FrameReader()
        self.closed = False

    @property
    def open(self) -> bool:
        """True while the client holds its end."""
        return not self.closed and not self.transport.other.closed

    def close(self) -> None:
        """The broker goes away."""
        self.closed = True
        self.transport.close()

    def read(self) -> list[tuple[protocol.RequestHeader, Any]]:
        """Takes what the client sent: (header, request), appended to `requests` and returned."""
        new = []
        while not self.closed:
            buffer, start, room = self._reader.target()
            count = self.transport.read_into(buffer, start, room)
            if count <= 0:
                break
            self._reader.received(count)
            while (payload := self._reader.next_frame()) is not None:
                new.append(protocol.decode_request(payload))
        self.requests += new
        return new

    def answer(
        self, header: protocol.RequestHeader, response: Any, *, version: int | None = None, correlation_id: int | None = None
    ) -> None:
        """Sends a response, by default in the request's version and with its correlation id."""
        buffers = protocol.encode_response(
            response,
            header.request_api_version if version is None else version,
            header.correlation_id if correlation_id is None else correlation_id,
        )
        data = b"".join(bytes(part) for part in buffers)
        assert self.transport.write([data], 0) == len(data)


class Cluster:
    """Everything a NetworkClient needs, and the peers it connects to.

    Args:
        nodes: Broker ids; broker n lives at "broker-n", port 9000 + n.
        bootstrap: Addresses of bootstrap.servers.
        auto: The peers answer ApiVersions and Metadata by themselves.
        config: Further settings.
    """

    def __init__(
        self, nodes: tuple[int, ...] = (1,), *, bootstrap: tuple[str, ...] = ("boot:9000",), auto: bool = True, **config: Any
    ) -> None:
        self.clock = ManualClock(1_000_000)
        self.poller = CountingPoller(self.serve)
        self.connected = True
        self.refuse: set[str] = set()
        self.unknown_hosts: set[str] = set()
        self.hosts: dict[str, list[str]] = {}
        self.peers: list[Peer] = []
        self.nodes = nodes
        self.auto = auto
        self.ranges = {api.key: (api.min_version, api.max_version) for api in protocol.APIS.values()}
        self.topics: dict[str, list[int]] = {}  # name -> leader per partition
        self.config = ClientConfig.from_user({"bootstrap.servers": bootstrap, "connections.max.idle.ms": -1, **config})
        self.metadata = Metadata(self.config, self.clock, rng=random.Random(1))
        self.selector = Selector(
            self.clock,
            transports=self,
            poller=self.poller,
            connections_max_idle_ms=self.config.connections_max_idle_ms,
            authenticator=self.authenticator(),
        )
        self.client = self.make_client()
        self.metadata.bootstrap(self.config.bootstrap_addresses)

    def authenticator(self) -> Any:
        """What makes the authenticators of connections."""

    def make_client(self) -> NetworkClient:
        return NetworkClient(self.selector, self.metadata, self.config, rng=random.Random(1), resolver=self.resolve)

    # what the client is given instead of a network

    def resolve(self, host: str, port: int) -> list[Address]:
        if host in self.unknown_hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Address(socket.AF_INET, (ip, port), host) for ip in self.hosts.get(host, [host])]

    def connect(self, address: Address) -> Transport:
        if address.sockaddr[0] in self.refuse:
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = memory_pair(connected=self.connected)
        self.peers.append(Peer(far, address))
        return near

    def accept(self, sock: socket.socket) -> Transport:
        raise AssertionError("clients accept nothing")

    # the cluster's side

    def node(self, id: int = 1) -> Node:
        return Node(id, f"broker-{id}", 9000 + id)

    def peer(self, host: str = "broker-1") -> Peer:
        """The newest connection to a host."""
        return next(peer for peer in reversed(self.peers) if peer.address.host == host)

    def metadata_response(self, names: Any) -> Any:
        wanted = self.topics if names is None else [name for name in names if name in self.topics]
        return protocol.MetadataResponse(
            brokers=[protocol.MetadataResponseBroker(node_id=id, host=f"broker-{id}", port=9000 + id) for id in self.nodes],
            controller_id=self.nodes[0],
            cluster_id="test",
            topics=[
                protocol.MetadataResponseTopic(
                    name=name,
                    partitions=[
                        protocol.MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=0)
                        for index, leader in enumerate(self.topics[name])
                    ],
                )
                for name in wanted
            ],
        )

    def serve(self) -> bool:
        """Answers ApiVersions and Metadata; other requests stay in `Peer.requests`. Returns whether there were any."""
        any_requests = False
        for peer in self.peers:
            for header, request in peer.read():
                any_requests = True
                if not peer.open:
                    continue
                if header.request_api_key == 18:
                    peer.answer(header, self.api_versions())
                elif header.request_api_key == 3:
                    names = None if request.topics is None else [topic.name for topic in request.topics]
                    peer.answer(header, self.metadata_response(names))
        return any_requests

    def api_versions(self, error_code: int = 0) -> Any:
        return protocol.ApiVersionsResponse(
            error_code=error_code,
            api_keys=[protocol.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.ranges.items()],
        )

    # the test's side

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def poll(self, times: int = 1, timeout_ms: int = 0) -> list[ClientResponse]:
        responses = []
        for _ in range(times):
            if self.auto:
                self.serve()
            responses += self.client.poll(timeout_ms, self.now_ms)
        return responses

    def until_ready(self, id: int = 1) -> Node:
        node = self.node(id)
        for _ in range(30):
            if self.client.ready(node, self.now_ms):
                return node
            self.poll()
        raise AssertionError(f"node {id} does not become ready")

    def send(self, id: int = 1, *, acks: int = -1, seen: list[ClientResponse] | None = None, **options: Any) -> Any:
        """Sends an empty Produce request."""
        request = self.client.new_client_request(
            id,
            protocol.ProduceRequest,
            lambda _version: protocol.ProduceRequest(acks=acks),
            self.now_ms,
            expect_response=acks != 0,
            callback=None if seen is None else seen.append,
            **options,
        )
        self.client.send(request, self.now_ms)
        return request

    def close(self) -> None:
        self.client.close()


def noting_wakeups(client: NetworkClient) -> threading.Semaphore:
    """A semaphore that counts the client's wake-ups from now on."""
    woken, wakeup = threading.Semaphore(0), client.wakeup

    def note() -> None:
        wakeup()
        woken.release()

    client.wakeup = note  # type: ignore[method-assign]
    return woken
