"""What the controller does now and then without being asked: preferred leaders lead again, what may be led uncleanly is, old
delegation tokens are removed.

    auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds     every partition led by another than its first replica
    unclean.leader.election.interval.ms                                      every partition without a leader whose topic allows it
    delegation.token.expiry.check.interval.ms                                every delegation token

Each is done with what the image says at that time. Kafka 4 knows no leader.imbalance.per.broker.percentage: all preferred replicas that can
lead do.

Source: org.apache.kafka.controller.{PeriodicTaskControlManager, ReplicationControlManager.maybeBalancePartitionLeaders,
maybeElectUncleanLeaders}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from kafkacore.broker.controller.brokers import partitions_of, without_leader
from kafkacore.broker.controller.elections import Election
from kafkacore.broker.controller.partitions import builder_of
from kafkacore.broker.controller.state import ControllerState
from kafkacore.broker.token_keys import has_expired
from kafkacore.config import BrokerConfig
from kafkacore.protocol.metadata_log import MetadataRecord, RemoveDelegationTokenRecord

MAX_ELECTIONS = 1000
"""Elections of one run; the next one follows at once. Source: ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE."""


def preferred_elections(state: ControllerState) -> Iterator[MetadataRecord]:
    """Leadership goes back to first replicas that are alive and in sync."""
    for topic, index, partition in partitions_of(state):
        if partition.leader != partition.replicas[0]:
            record = builder_of(state, topic, index, Election.PREFERRED).build()
            if record is not None:
                yield record


def unclean_elections(state: ControllerState) -> Iterator[MetadataRecord]:
    """Partitions without a leader get one that is not in sync, where their settings allow it: they may not have when it failed."""
    for topic, index, _ in without_leader(state):
        if topic.config.unclean_leader_election_enable:
            record = builder_of(state, topic, index, Election.UNCLEAN).build()
            if record is not None:
                yield record


def expired_tokens(state: ControllerState) -> Iterator[MetadataRecord]:
    """Delegation tokens whose time has passed are removed. Source: DelegationTokenControlManager.sweepExpiredDelegationTokens."""
    for token in state.image.delegation_tokens.values():
        if has_expired(token, state.wall_ms):
            yield RemoveDelegationTokenRecord(token_id=token.token_id)


class Periodic:
    """When what is due."""

    def __init__(self, config: BrokerConfig, now_ms: int) -> None:
        """Begins to count.

        Args:
            config: intervals.
            now_ms: monotonic time.
        """
        self._tasks: list[tuple[int, Callable[[ControllerState], Iterator[MetadataRecord]]]] = [
            (config.unclean_leader_election_interval_ms, unclean_elections)
        ]
        if config.auto_leader_rebalance_enable:
            self._tasks.append((config.leader_imbalance_check_interval_seconds * 1000, preferred_elections))
        if config.delegation_token_secret_key:
            self._tasks.append((config.delegation_token_expiry_check_interval_ms, expired_tokens))
        self._due_ms = [now_ms + period_ms for period_ms, _ in self._tasks]

    def next_deadline_ms(self) -> int:
        """When `run` has something to look at."""
        return min(self._due_ms)

    def run(self, state: ControllerState, now_ms: int) -> list[MetadataRecord]:
        """What is due now; to be called again, once its records are replayed, until nothing comes.

        Args:
            state: the controller's.
            now_ms: monotonic time.
        """
        for row, (period_ms, elections) in enumerate(self._tasks):
            if self._due_ms[row] > now_ms:
                continue
            records = list(islice(elections(state), MAX_ELECTIONS))
            if len(records) < MAX_ELECTIONS:
                self._due_ms[row] = now_ms + period_ms
            if records:
                return records
        return []
