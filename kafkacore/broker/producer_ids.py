"""Producer ids: the broker takes them from the controller in blocks and hands them out one by one.

Source: org.apache.kafka.coordinator.transaction.RPCProducerIdManager, without the prefetch: a block comes in one round trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafkacore import errors
from kafkacore.broker.controller.link import ControllerLink
from kafkacore.broker.fault_handler import contained
from kafkacore.errors import KafkaError, from_code
from kafkacore.protocol import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kafkacore.protocol.schema import Response

Done = Callable[[int | KafkaError], None]


class ProducerIds:
    """One broker's stock of producer ids."""

    def __init__(self, controller: ControllerLink, node_id: int) -> None:
        """An empty stock.

        Args:
            controller: gives blocks.
            node_id: this broker.
        """
        self._controller = controller
        self._node_id = node_id
        self._next = self._end = 0
        self._waiting: deque[Done] = deque()

    def take(self, done: Done) -> None:
        """Gives a producer id that no producer has had.

        Args:
            done: gets the id, or the reason why it did not come; may be called before `take` returns.
        """
        self._waiting.append(done)
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._next < self._end:
            producer_id, self._next = self._next, self._next + 1
            with contained("a request for a producer id"):
                self._waiting.popleft()(producer_id)
        if self._waiting and not self._asking:
            self._asking = True
            request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._controller.broker_epoch)
            self._controller.submit(request, 0, self._got_block)

    _asking = False

    def _got_block(self, response: Response | KafkaError) -> None:
        self._asking = False
        if isinstance(response, AllocateProducerIdsResponse) and not response.error_code:
            self._next, self._end = response.producer_id_start, response.producer_id_start + response.producer_id_len
            self._serve()
            return
        if isinstance(response, AllocateProducerIdsResponse):
            response = from_code(response.error_code, "the controller gave no producer ids")
        elif not isinstance(response, KafkaError):
            response = errors.UnknownServer("the controller gave no producer ids")
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            with contained("a request for a producer id"):
                done(response)
