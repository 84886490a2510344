"""A question that any broker can answer, asked until one has: metadata of other topics than a client keeps.

Nothing here blocks: `step(now_ms)` sends what can be sent, the answer arrives through a callback inside `NetworkClient.poll`, and
`next_wake_ms(now_ms)` says how long the driver may wait when nothing arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkacore import errors
from kafkacore.metadata import PartitionInfo
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.connection import doubled_ms
from kafkacore.net.driver import CallerDriver
from kafkacore.net.node_ids import broker_of
from kafkacore.protocol import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkacore.types import Node

_FIRST_VERSION_BY_ID = 12


class MetadataQuery:
    """One Metadata answer of any broker, beside what `Metadata` keeps and refreshes.

    Args:
        client: the network.
        topic_ids: of the topics; None for all topics that this client may see.
        retry_backoff_ms, retry_backoff_max_ms: before it is asked again, doubled with every failed try.

    Attributes:
        response: the answer, None before it is there.
        error: why there will be none.
        last_error: why the last try failed.
    """

    def __init__(
        self, client: NetworkClient, topic_ids: Sequence[bytes] | None, *, retry_backoff_ms: int, retry_backoff_max_ms: int
    ) -> None:
        self._client = client
        self._topic_ids = None if topic_ids is None else tuple(topic_ids)
        self._backoff_ms = retry_backoff_ms
        self._backoff_max_ms = retry_backoff_max_ms
        self._node: Node | None = None
        self._asked = False
        self._failed = False  # answers carry no time: the next step starts the back-off
        self._tries = 0
        self._retry_at_ms = 0
        self.response: MetadataResponse | None = None
        self.error: errors.KafkaError | None = None
        self.last_error: errors.KafkaError | None = None

    @property
    def done(self) -> bool:
        """There is an answer, or there will be none."""
        return self.response is not None or self.error is not None

    def step(self, now_ms: int) -> None:
        """Asks, unless a request is in flight."""
        if self._failed:
            self._failed = False
            self._retry_at_ms = now_ms + doubled_ms(self._backoff_ms, self._backoff_max_ms, self._tries)
            self._tries += 1
        if self.done or self._asked or now_ms < self._retry_at_ms:
            return
        node = self._node = self._client.least_loaded_node(now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return

        def build(version: int) -> MetadataRequest:
            if self._topic_ids is None:
                return MetadataRequest(topics=None if version else [], allow_auto_topic_creation=version < 4)
            return MetadataRequest(
                topics=[MetadataRequestTopic(topic_id=i, name=None) for i in self._topic_ids], allow_auto_topic_creation=False
            )

        self._asked = True
        self._client.send(
            self._client.new_client_request(
                node.id,
                MetadataRequest,
                build,
                now_ms,
                callback=self._answered,
                min_version=None if self._topic_ids is None else _FIRST_VERSION_BY_ID,
            ),
            now_ms,
        )

    def topics(self, driver: CallerDriver, timeout_ms: int) -> dict[str, list[PartitionInfo]]:
        """Waits for the answer: the partitions of each topic, in the order of their numbers; topics by name.

        Raises:
            errors.KafkaTimeoutError: no broker answered in time.
        """

        def step(now_ms: int) -> int | None:
            self.step(now_ms)
            return self.next_wake_ms(now_ms)

        in_time = driver.run(step, lambda: self.done, timeout_ms)
        if self.error is not None:
            raise self.error
        if not in_time or self.response is None:
            causes = driver.attempts() if self.last_error is None else [*driver.attempts(), self.last_error]
            raise errors.KafkaTimeoutError("no broker answered in time", api="Metadata", attempts=causes)
        found = {topic.name: topic.partitions for topic in self.response.topics or () if topic.name and not topic.error_code}
        return {
            name: sorted(
                PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas or ())
                for p in found[name]
            )
            for name in sorted(found)
        }

    def _answered(self, response: ClientResponse) -> None:
        self._asked = False
        data = response.response
        cause = response.error or (errors.DisconnectError("the connection was lost") if data is None else None)
        if cause is None and (code := getattr(data, "error_code", 0)):
            cause = errors.from_code(code, broker=broker_of(response.request.node_id), api=f"Metadata v{response.version}")
        if cause is None:
            self.response = data
        elif isinstance(cause, errors.UnsupportedVersion):
            self.error = cause
        else:
            self.last_error = cause
            self._failed = True

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until `step` has something to do although no answer comes; None when only an answer is awaited."""
        if self.done or self._asked:
            return None
        if self._failed:
            return 0
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        node = self._node
        if node is None:
            return self._backoff_ms
        return 0 if self._client.is_ready(node, now_ms) else min(self._client.poll_delay_ms(node, now_ms), max(self._backoff_ms, 10))
