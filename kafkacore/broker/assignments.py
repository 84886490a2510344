"""Where replicas lie: a broker with several log directories tells the controller, which has to know what is lost with one (KIP-858).

Everything that is to be reported goes out in one request; while one is under way the rest waits. What fails is tried again.

Source: org.apache.kafka.server.AssignmentsManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.timer import LoopTimer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS = 100
_VERSION = 0

Replica = tuple[bytes, int]
Submit = Callable[[Request, int, Callable[[Response | KafkaError], None]], None]


class DirectoryAssignments:
    """What one broker tells."""

    def __init__(self, node_id: int, submit: Submit, broker_epoch: Callable[[], int], timer: LoopTimer) -> None:
        """Tells nothing yet.

        Args:
            node_id: this broker.
            submit: takes requests to the controller.
            broker_epoch: of this broker's registration now; -1 before the first.
            timer: requests leave from it, so that all of one image are in one.
        """
        self._node_id = node_id
        self._submit = submit
        self._broker_epoch = broker_epoch
        self._timer = timer
        self._waiting: dict[Replica, bytes] = {}
        self._in_flight = False
        self._task: TimerTask | None = None

    def tell(self, topic_id: bytes, index: int, directory: bytes) -> None:
        """A replica lies in a directory, and the image says otherwise."""
        self._waiting[topic_id, index] = directory
        self._plan(0)

    def _plan(self, delay_ms: int) -> None:
        if self._task is None and not self._in_flight and self._waiting:
            self._task = TimerTask(delay_ms, self._send)
            self._timer.add(self._task)

    def _send(self) -> None:
        self._task = None
        if self._broker_epoch() < 0:
            self._plan(RETRY_MS)
            return
        sent, self._waiting = self._waiting, {}
        topics: dict[bytes, dict[bytes, list[AssignedPartition]]] = {}
        for (topic_id, index), directory in sent.items():
            topics.setdefault(directory, {}).setdefault(topic_id, []).append(AssignedPartition(partition_index=index))
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignedDirectory(id=each, topics=[AssignedTopic(topic_id=name, partitions=found) for name, found in held.items()])
                for each, held in topics.items()
            ],
        )
        self._in_flight = True
        self._submit(request, _VERSION, lambda outcome: self._answered(sent, outcome))

    def _answered(self, sent: dict[Replica, bytes], outcome: Response | KafkaError) -> None:
        self._in_flight = False
        if isinstance(outcome, AssignReplicasToDirsResponse) and not outcome.error_code:
            self._plan(0)  # a replica that is refused is not this broker's any more
            return
        reason = outcome if isinstance(outcome, KafkaError) else Code(outcome.error_code).name  # type: ignore[attr-defined]
        logger.info("broker %d: where %d replicas lie was not taken, and is reported again: %s", self._node_id, len(sent), reason)
        self._waiting = {**sent, **self._waiting}
        self._plan(RETRY_MS)

    def close(self) -> None:
        """The broker stops; when it starts again the image says what is to be reported."""
        self._waiting.clear()
        self._in_flight = False
        if self._task is not None:
            self._task.cancel()
            self._task = None
