"""`stats_cb` and `statistics.interval.ms`: librdkafka's JSON, of the engine's own numbers, served by `poll`.

Only names that mean the same here are there; what the engine does not count is left out. Times are of librdkafka's units: microseconds
where its manual says so.

Source: STATISTICS.md, librdkafka 2.16.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafkacore.net.client import NetworkClient
from kafkacore.net.node_ids import broker_of

NONE = -1001
"""librdkafka's offset of nothing."""
_numbers = itertools.count(1)


class Statistics:
    """Makes the JSON when the interval has passed.

    Args:
        kind: "producer" or "consumer".
        client_id: of the client.
        callback: the program's stats_cb.
        interval_ms: between two calls.
        client: gives the client's connections; they may be others later.
        more: what else this kind of client has, by name.
    """

    def __init__(
        self,
        kind: str,
        client_id: str,
        callback: Callable[[str], Any],
        interval_ms: int,
        client: Callable[[], NetworkClient],
        more: Callable[[], dict[str, Any]],
    ) -> None:
        self._client_id = client_id
        self._kind, self._callback, self._client, self._more = kind, callback, client, more
        self._number = next(_numbers)
        self._interval_s = interval_ms / 1000
        self._began_s = time.monotonic()
        self._next_s = self._began_s + self._interval_s

    def due_s(self) -> float:
        """Seconds until the next call."""
        return self._next_s - time.monotonic()

    def schedule(self) -> None:
        """Sets the time of the next call; where polls come late, calls are left out."""
        self._next_s = max(self._next_s, time.monotonic() - self._interval_s) + self._interval_s

    def tell(self) -> None:
        """Calls the program."""
        self._callback(json.dumps(self._found(time.monotonic())))

    def _found(self, now_s: float) -> dict[str, Any]:
        client = self._client()
        nodes = list(client.node_stats.copy().values())
        return {
            "name": f"{self._client_id}#{self._kind}-{self._number}",
            "client_id": self._client_id,
            "type": self._kind,
            "ts": int(now_s * 1e6),
            "time": int(time.time()),
            "age": int((now_s - self._began_s) * 1e6),
            "metadata_cache_cnt": len(client.metadata.snapshot.topics),
            "tx": sum(each.sent_bytes.count for each in nodes),
            "tx_bytes": int(sum(each.sent_bytes.total for each in nodes)),
            "rx": sum(each.received_bytes.count for each in nodes),
            "rx_bytes": int(sum(each.received_bytes.total for each in nodes)),
            "brokers": brokers_of(client),
            **dict.fromkeys(("msg_cnt", "txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes"), 0),
            **self._more(),
        }


def brokers_of(client: NetworkClient) -> dict[str, Any]:
    """The brokers that a client has talked to, by librdkafka's names of them."""
    now_ms = client.selector.clock.now_ms()
    nodes, found = client.metadata.snapshot.nodes, dict[str, Any]()
    for node_id, stats in client.node_stats.copy().items():
        number = broker_of(node_id)
        node = nodes.get(node_id if number is None else number)
        if node is None:
            continue
        address = f"{node.host}:{node.port}"
        name = f"{address}/{'bootstrap' if node.id < 0 else node.id}"
        up = stats.connections_opened > stats.connections_closed
        before = found.get(name)
        found[name] = {
            "name": name,
            "nodeid": max(node.id, -1),
            "nodename": address,
            "source": "configured" if node.id < 0 else "learned",
            "state": "UP" if up or (before or {}).get("state") == "UP" else "DOWN" if client.connection_failed(node) else "INIT",
            "tx": stats.sent_bytes.count,
            "txbytes": int(stats.sent_bytes.total),
            "rx": stats.received_bytes.count,
            "rxbytes": int(stats.received_bytes.total),
            "connects": stats.connections_opened,
            "disconnects": stats.connections_closed,
            "rtt": _window(stats.latency_ms, now_ms, 1000, p99=True),
            "throttle": _window(stats.throttle_ms, now_ms, 1),
        }
        if before is not None:  # a coordinator's connection is one of its own
            for count in ("tx", "txbytes", "rx", "rxbytes", "connects", "disconnects"):
                found[name][count] += before[count]
    return found


def _window(stat: Any, now_ms: int, scale: int, *, p99: bool = False) -> dict[str, int]:
    values = {"avg": stat.avg(now_ms), "max": stat.max(now_ms)}
    if p99:
        values["p99"] = stat.percentile(0.99, now_ms)
    return {name: 0 if value != value else int(value * scale) for name, value in values.items()}  # not a number: nothing was measured


def topics_of(client: NetworkClient, names: Any, partitions: Mapping[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
    """Topics with what the metadata says of their partitions.

    Args:
        client: whose metadata it is.
        names: of the topics.
        partitions: what else there is to say of some of them.
    """
    snapshot, found = client.metadata.snapshot, dict[str, Any]()
    for name in names:
        info = snapshot.topics.get(name)
        known = {} if info is None else {each.index: each for each in info.partitions}
        numbers = sorted({*known, *(number for topic, number in partitions if topic == name)})
        found[name] = {"topic": name, "partitions": {}}
        for number in numbers:
            leader = known[number].leader if number in known else -1
            epoch = known[number].leader_epoch if number in known else -1
            found[name]["partitions"][str(number)] = {
                "partition": number,
                "broker": leader,
                "leader": leader,
                "leader_epoch": epoch,
                "desired": (name, number) in partitions,
                "unknown": number not in known,
                **partitions.get((name, number), {}),
            }
    return found


def of_producer(producer: Any, sends: Any, most: int) -> dict[str, Any]:
    """What a producer has beside its brokers.

    Args:
        producer: the engine's.
        sends: counts messages.
        most: messages that may wait.
    """
    topics = dict(producer._topics)
    return {
        "msg_cnt": sends.waiting,
        "msg_max": most,
        "msg_size_max": producer.config.buffer_memory,
        "txmsgs": sum(int(queue.stats.records.total) for queue in topics.values()),
        "txmsg_bytes": sum(int(queue.stats.bytes.total) for queue in topics.values()),
        "topics": topics_of(producer._sender.client, topics, {}),
    }


def of_consumer(consumer: Any, reached: Callable[[Any], Any], stored: Mapping[Any, Any], committed: Mapping[Any, int]) -> dict[str, Any]:
    """What a consumer has beside its brokers.

    Args:
        consumer: the engine's.
        reached: gives the position of the program in a partition; None where it has read nothing.
        stored: what the next commit commits, where the program says it.
        committed: the last commits that are known.
    """
    partitions: dict[tuple[str, int], dict[str, Any]] = {}
    states = dict(consumer._subscription.partitions)
    for tp, state in states.items():
        app = reached(tp)
        end = state.last_stable_offset if consumer._read_committed else state.high_watermark
        at = stored[tp].offset if tp in stored else NONE if app is None else app.offset
        done = committed.get(tp, NONE)
        partitions[tp] = {
            "fetch_state": "active" if state.has_position and not state.paused else "none",
            "next_offset": state.offset if state.has_position else NONE,
            "app_offset": NONE if app is None else app.offset,
            "stored_offset": at,
            "committed_offset": done,
            "lo_offset": _offset(state.log_start_offset),
            "hi_offset": _offset(state.high_watermark),
            "ls_offset": _offset(state.last_stable_offset),
            "consumer_lag": end - done if end >= 0 <= done else -1,
            "consumer_lag_stored": end - at if end >= 0 <= at else -1,
            "rxmsgs": state.handed_records,
            "rxbytes": state.fetched_bytes,
        }
    found: dict[str, Any] = {
        "rxmsgs": sum(each["rxmsgs"] for each in partitions.values()),
        "rxmsg_bytes": sum(each["rxbytes"] for each in partitions.values()),
        "topics": topics_of(consumer._driver.client, sorted({topic for topic, _ in partitions}), partitions),
    }
    group = consumer._group
    if group is not None:
        member = bool(consumer.consumer_group_metadata().member_id)
        rebalances = group.membership.rebalances
        found["cgrp"] = {"state": "up" if member else "init", "rebalance_cnt": rebalances, "assignment_size": len(states)}
    return found


def _offset(known: int) -> int:
    return NONE if known < 0 else known
