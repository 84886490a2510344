"""What leaders ask the controller: AlterPartition requests, one at a time, each with everything that has come up since.

A proposal belongs to the state its partition was in. If the controller has decided otherwise, its decision is in the image or on the
way there, and the proposal is void; see the rules in partition.py.

Source: kafka.server.DefaultAlterPartitionManager; KIP-497, KIP-841.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from kafkacore.broker.fault_handler import contained
from kafkacore.broker.partition import Partition
from kafkacore.clock import Clock
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    IsrBrokerState,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.timer import LoopTimer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS = 50
_VERSION = 3
_RECOVERED = 0
# The leader may propose again at once; what it knew was right.
_TRY_AGAIN = (Code.OPERATION_NOT_ATTEMPTED, Code.INELIGIBLE_REPLICA)

Submit = Callable[[Request, int, Callable[["Response | KafkaError"], None]], None]
"""`ControllerLink.submit`."""
WireKey = tuple[bytes, int]


class _Proposal(NamedTuple):
    """One partition's wish, and the state it was made in."""

    partition: Partition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]

    @property
    def stands(self) -> bool:
        """Whether nothing has been decided about the partition since."""
        return self.partition.pending_isr is self.isr and self.partition.leader_epoch == self.leader_epoch


class IsrProposals:
    """The proposals of one broker."""

    def __init__(
        self,
        node_id: int,
        submit: Submit,
        broker_epoch: Callable[[], int],
        clock: Clock,
        timer: LoopTimer,
        changed: Callable[[Partition], None],
    ) -> None:
        """Asks nothing yet.

        Args:
            node_id: this broker.
            submit: takes requests to the controller.
            broker_epoch: of this broker's registration now.
            clock: the time.
            timer: for retries.
            changed: called when a partition's ISR changed.
        """
        self._node_id = node_id
        self._submit = submit
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._timer = timer
        self._changed = changed
        self._waiting: dict[WireKey, _Proposal] = {}
        self._in_flight = False
        self._retry: TimerTask | None = None

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """Asks for an ISR; `partition.pending_isr` is this very tuple until there is an answer."""
        key = partition.topic.topic_id, partition.index
        self._waiting[key] = _Proposal(partition, partition.leader_epoch, partition.partition_epoch, isr)
        self._send()

    def _send(self) -> None:
        if self._in_flight or self._retry is not None:
            return
        sent = {key: proposal for key, proposal in self._waiting.items() if proposal.stands}
        self._waiting.clear()
        if not sent:
            return
        self._in_flight = True
        topics: dict[bytes, list[AlterPartitionRequestPartition]] = {}
        for (topic_id, index), proposal in sent.items():
            topics.setdefault(topic_id, []).append(
                AlterPartitionRequestPartition(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[self._member(proposal.partition, node) for node in proposal.isr],
                    leader_recovery_state=_RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        request = AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[AlterPartitionRequestTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        )
        self._submit(request, _VERSION, lambda outcome: self._answered(sent, outcome))

    def _member(self, partition: Partition, node: int) -> IsrBrokerState:
        replica = partition.remotes.get(node)
        return IsrBrokerState(broker_id=node, broker_epoch=self._broker_epoch() if replica is None else replica.broker_epoch)

    def _answered(self, sent: dict[WireKey, _Proposal], outcome: Response | KafkaError) -> None:
        self._in_flight = False
        if not isinstance(outcome, AlterPartitionResponse) or outcome.error_code:
            reason = outcome if isinstance(outcome, KafkaError) else Code(outcome.error_code).name  # type: ignore[attr-defined]
            logger.info("broker %d: %d ISR changes were not taken, and are tried again: %s", self._node_id, len(sent), reason)
            self._waiting = {**sent, **self._waiting}
            self._retry = TimerTask(RETRY_MS, self._again)
            self._timer.add(self._retry)
            return
        for topic in outcome.topics:
            for answer in topic.partitions:
                proposal = sent.pop((topic.topic_id, answer.partition_index), None)
                if proposal is not None:
                    with contained("the ISR of partition %s-%d", *proposal.partition.key):
                        self._take(proposal, answer)
        for proposal in sent.values():  # left out of the answer
            if proposal.stands:
                proposal.partition.isr_refused(proposal.leader_epoch)
        self._send()

    def _again(self) -> None:
        self._retry = None
        self._send()

    def _take(self, proposal: _Proposal, answer: AlterPartitionResponsePartition) -> None:
        partition = proposal.partition
        code = answer.error_code
        if code == Code.NONE:
            logger.info("%s-%d: ISR is %s", *partition.key, answer.isr)
            partition.isr_committed(answer.leader_epoch, answer.partition_epoch, answer.isr, self._clock.now_ms())
            self._changed(partition)  # if only for the followers' sessions: who has left the ISR is to be looked at again
        elif not proposal.stands:
            return
        elif code in _TRY_AGAIN or partition.partition_epoch != proposal.partition_epoch:
            partition.isr_refused(proposal.leader_epoch)
        else:
            # The controller knows more than this broker; until the image does too, the maximal ISR holds.
            logger.info("%s-%d: ISR %s was refused: %s", *partition.key, list(proposal.isr), Code(code).name)

    def close(self) -> None:
        """The broker stops: nothing is proposed any more."""
        self._waiting.clear()
        self._in_flight = False
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
