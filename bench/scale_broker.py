"""The embedded broker for bench/scale.py: what its work takes by partitions, members and connections that do nothing."""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scale_server import FETCH, ClusterProcess, Wire, batch, expect, owner_cpu_ns
from scale_table import AtMost, Figures, Growth, Sample, Times

from kafkacore import protocol as p

IDLE, BUSY, GROUP = "idle", "busy", "g"
SETTLE_S, IDLE_S, SAMPLE_S = 3.0, 5.0, 10.0
JOIN, SYNC, HEARTBEAT, COORDINATOR, CONSUMER_HEARTBEAT = 3, 2, 2, 4, 1
"""Versions. JoinGroup below 4 gives the member its id in the same answer."""
MEMBERS_TOPIC_PARTITIONS = 10
REBALANCE_MS = 120_000
OWNER, P50 = "owner's thread", "p50"


# ---- partitions


@contextmanager
def replicated(partitions: int, quick: bool) -> Iterator[Sample]:
    """ms from an acks=all record to its acknowledgement by 3 brokers that hold `partitions` idle partitions besides."""
    count = 20 if quick else 300
    data = batch(1)
    with ClusterProcess(3) as cluster:
        cluster.create_topic(IDLE, partitions, 3)
        cluster.create_topic(BUSY, 1, 3)
        with Wire(cluster.leader(BUSY)) as wire:
            for _ in range(count // 5):
                wire.produce(BUSY, {0: data})
            if not quick:
                time.sleep(SETTLE_S)

            def sample() -> Figures:
                taken: list[float] = []
                deadline = time.perf_counter() + SAMPLE_S
                while len(taken) < count and (begin := time.perf_counter()) < deadline:
                    wire.produce(BUSY, {0: data})
                    taken.append((time.perf_counter() - begin) * 1e3)
                taken.sort()
                return {P50: taken[len(taken) // 2], "p99": taken[int(len(taken) * 0.99)]}

            yield sample


@contextmanager
def idle_brokers(partitions: int, quick: bool) -> Iterator[Sample]:
    """% of a processor of 3 brokers that copy `partitions` partitions from each other in which nothing happens."""
    with ClusterProcess(3) as cluster:
        cluster.create_topic(IDLE, partitions, 3)

        def sample() -> Figures:
            time.sleep(0.5 if quick else SETTLE_S)
            before, begin = cluster.cpu_s(), time.monotonic()
            time.sleep(0.5 if quick else IDLE_S)
            return {"": (cluster.cpu_s() - before) * 100 / (time.monotonic() - begin)}

        yield sample


@contextmanager
def fetch_session(partitions: int) -> Iterator[tuple[ClusterProcess, Callable[[], None]]]:
    """A broker with a fetch session of `partitions` empty partitions, and a call that makes an empty incremental fetch of it."""
    with ClusterProcess() as cluster:
        cluster.create_topic(IDLE, partitions)
        parts = [p.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(partitions)]
        with Wire(cluster.addresses[0]) as wire:
            full = p.FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, session_id=0, session_epoch=0,
                topics=[p.FetchTopic(topic=IDLE, partitions=parts)],
            )  # fmt: skip
            opened = wire.ask(full, FETCH)
            expect(opened.error_code, f"a full Fetch of {partitions} partitions")
            if not opened.session_id:
                raise SystemExit(f"the broker keeps no fetch session of {partitions} partitions")
            epoch = 0

            def fetch() -> None:
                nonlocal epoch
                epoch += 1
                request = p.FetchRequest(
                    max_wait_ms=1, min_bytes=1, max_bytes=50 << 20, session_id=opened.session_id, session_epoch=epoch, topics=[]
                )
                expect(wire.ask(request, FETCH).error_code, f"incremental Fetch {epoch} of {partitions} partitions")

            yield cluster, fetch


@contextmanager
def empty_fetches(partitions: int, quick: bool) -> Iterator[Sample]:
    """ms of the owner's thread for an incremental fetch that names no partition and waits 1 ms for records that do not come."""
    count = 5 if quick else 50
    with fetch_session(partitions) as (cluster, fetch):

        def sample() -> Figures:
            before = cluster.thread_cpu_ns()
            for _ in range(count):
                fetch()
            return {"": owner_cpu_ns(cluster.thread_cpu_ns(), before) / count / 1e6}

        sample()
        yield sample


@contextmanager
def watchers_left(partitions: int, quick: bool) -> Iterator[Sample]:
    """Entries on the fetch purgatory's lists after empty fetches, of which none waits any more."""
    count = 20 if quick else 500
    with fetch_session(partitions) as (cluster, fetch):

        def sample() -> Figures:
            for _ in range(count):
                fetch()
            return {"": cluster.watched_fetches()}

        yield sample


# ---- members


def join_consumers(wire: Wire, members: int) -> list[tuple[str, int]]:
    """Has members join a KIP-848 group and take what they are given; their ids and epochs."""
    joined: dict[str, int] = {}
    for _ in range(members):
        member_id = str(uuid.uuid4())
        request = p.ConsumerGroupHeartbeatRequest(
            group_id=f"{GROUP}-consumer", member_id=member_id, member_epoch=0, rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[IDLE], topic_partitions=[],
        )  # fmt: skip
        response = wire.ask(request, CONSUMER_HEARTBEAT)
        expect(response.error_code, "a member's first ConsumerGroupHeartbeat")
        joined[member_id] = response.member_epoch
    return list(joined.items())


def join_classic(stack: contextlib.ExitStack, address: str, members: int) -> list[tuple[Wire, str, int]]:
    """Has members join a classic group in one rebalance, each over its own connection; with their ids and generation."""
    group = f"{GROUP}-classic"
    wires = [stack.enter_context(Wire(address)) for _ in range(members)]

    def join(wire: Wire, member_id: str) -> None:
        protocols = [p.JoinGroupRequestProtocol(name="range", metadata=b"")]
        wire.send(
            p.JoinGroupRequest(
                group_id=group, session_timeout_ms=REBALANCE_MS, rebalance_timeout_ms=REBALANCE_MS, member_id=member_id,
                protocol_type="bench", protocols=protocols,
            ),
            JOIN,
        )  # fmt: skip

    join(wires[0], "")
    first = wires[0].receive(p.JoinGroupRequest, JOIN)
    expect(first.error_code, "the first member's JoinGroup")
    for wire in wires[1:]:  # they wait until the first member, without which the round does not end, joins again
        join(wire, "")
    deadline = time.monotonic() + 60
    while members > 1:
        state = wires[0].ask(p.DescribeGroupsRequest(groups=[group]), 0).groups[0]
        if len(state.members) == members:
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(state.members)} of {members} members have joined")
    join(wires[0], first.member_id)
    joined = [wire.receive(p.JoinGroupRequest, JOIN) for wire in wires]
    for wire, answer in zip(wires, joined, strict=True):
        expect(answer.error_code, "a member's JoinGroup")
        given = [p.SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"a") for each in answer.members]
        wire.send(
            p.SyncGroupRequest(group_id=group, generation_id=answer.generation_id, member_id=answer.member_id, assignments=given), SYNC
        )
    for wire in wires:
        expect(wire.receive(p.SyncGroupRequest, SYNC).error_code, "a member's SyncGroup")
    return [(wire, answer.member_id, answer.generation_id) for wire, answer in zip(wires, joined, strict=True)]


@contextmanager
def heartbeats(members: int, quick: bool) -> Iterator[Sample]:
    """us of the owner's thread for a heartbeat that changes nothing, in a group of `members` members."""
    count = 10 if quick else 1_000
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(ClusterProcess())
        cluster.create_topic(IDLE, MEMBERS_TOPIC_PARTITIONS)
        address = cluster.addresses[0]
        wire = stack.enter_context(Wire(address))
        deadline = time.monotonic() + 30
        while True:  # the first ask creates the topic of offsets
            found = wire.ask(p.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"{GROUP}-consumer", f"{GROUP}-classic"]), COORDINATOR)
            if not any(each.error_code for each in found.coordinators):
                break
            if time.monotonic() > deadline:
                expect(max(each.error_code for each in found.coordinators), "FindCoordinator")
        classic = join_classic(stack, address, members)
        consumers = join_consumers(wire, members)

        def beat_consumers() -> None:
            for nth in range(count):
                member_id, epoch = consumers[nth % members]
                request = p.ConsumerGroupHeartbeatRequest(group_id=f"{GROUP}-consumer", member_id=member_id, member_epoch=epoch)
                response = wire.ask(request, CONSUMER_HEARTBEAT)
                expect(response.error_code, "ConsumerGroupHeartbeat")
                consumers[nth % members] = member_id, response.member_epoch

        def beat_classic() -> None:
            for nth in range(count):
                own, member_id, generation = classic[nth % members]
                request = p.HeartbeatRequest(group_id=f"{GROUP}-classic", generation_id=generation, member_id=member_id)
                expect(own.ask(request, HEARTBEAT).error_code, "Heartbeat")

        def spent(beat: Callable[[], None]) -> float:
            before = cluster.thread_cpu_ns()
            beat()
            return owner_cpu_ns(cluster.thread_cpu_ns(), before) / count / 1e3

        for _ in range(max(1, 2 * members // count)):  # the epochs of those that joined early
            beat_consumers()
        yield lambda: {"KIP-848": spent(beat_consumers), "classic": spent(beat_classic)}


# ---- connections


@contextmanager
def idle_connections(connections: int, quick: bool) -> Iterator[Sample]:
    """us of a Produce and a Fetch of its record, while `connections` others are open and say nothing."""
    count = 20 if quick else 1_000
    data = batch(1)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(ClusterProcess())
        cluster.create_topic(BUSY, 1)
        host, _, port = cluster.addresses[0].rpartition(":")
        wire = stack.enter_context(Wire(cluster.addresses[0]))
        for _ in range(connections):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        offset = 0

        def round_trip() -> None:
            nonlocal offset
            wire.produce(BUSY, {0: data}, acks=1)
            part = p.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = p.FetchRequest(
                max_wait_ms=1_000, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1,
                topics=[p.FetchTopic(topic=BUSY, partitions=[part])],
            )  # fmt: skip
            found = wire.ask(request, FETCH).responses[0].partitions[0]
            expect(found.error_code, "Fetch")
            if not found.records:
                raise SystemExit(f"the record at offset {offset} did not come")
            offset += 1

        def sample() -> Figures:
            taken = []
            before = cluster.thread_cpu_ns()
            for _ in range(count):
                begin = time.perf_counter()
                round_trip()
                taken.append((time.perf_counter() - begin) * 1e6)
            owner_us = owner_cpu_ns(cluster.thread_cpu_ns(), before) / count / 1e3
            return {P50: sorted(taken)[count // 2], OWNER: owner_us}

        sample()
        yield sample


MEMBERS = (1, 10, 100, 1_000)
TABLES = [
    Growth(
        "broker.acks", "broker: acks=all on 3 brokers, wall-clock", "ms", "idle partitions", (10, 100, 1_000, 2_000), (10, 100),
        replicated, {(2_000, P50): Times(2), (2_000, "p99"): Times(2)}, parts=(P50, "p99"), rounds=3, alone=True,
    ),
    Growth(
        "broker.idle", "broker: idle CPU of 3 brokers", "% of a processor", "partitions", (10, 100, 1_000), (10, 100),
        idle_brokers, {(size, ""): AtMost(1) for size in (10, 100, 1_000)}, rounds=3, alone=True,
    ),
    Growth(
        "broker.fetch", "broker: an empty incremental fetch, owner's thread", "ms of CPU", "partitions", (10, 100, 1_000), (10, 100),
        empty_fetches, {(1_000, ""): AtMost(3)},
    ),
    Growth(
        "broker.watchers", "broker: left on the fetch purgatory's lists after 500 empty fetches", "entries", "partitions",
        (10, 100, 1_000), (10, 100), watchers_left, rounds=1,
    ),
    Growth(
        "broker.members", "broker: a group heartbeat, owner's thread", "us of CPU", "members", MEMBERS, MEMBERS[:2],
        heartbeats, parts=("KIP-848", "classic"),
    ),
    Growth(
        "broker.connections", "broker: Produce and Fetch beside idle connections", "us", "connections", MEMBERS, MEMBERS[:2],
        idle_connections, parts=(P50, OWNER),
    ),
]  # fmt: skip
