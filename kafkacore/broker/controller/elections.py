"""How a partition changes: who leads, who is in sync, when a reassignment is complete. One builder makes every PartitionChangeRecord.

    builder = PartitionChangeBuilder(partition, topic_id, index, is_acceptable_leader)
    builder.target_isr = [...]          # what is wanted
    record = builder.build()            # what follows from it, or None if nothing changes

Rules, in the order in which `build` applies them:

1. A reassignment is complete when all replicas that are being added are in sync; then those that are being removed are dropped.
   [test_a_reassignment_adds_then_removes, test_a_smaller_set_of_replicas_waits_until_all_that_stay_are_in_sync]
2. The leader stays if it is in the wanted ISR and acceptable; else the first replica that is leads. An unclean election takes any
   acceptable replica if none is in sync: it then is the whole ISR, and what the others had beyond its log is lost.
   [test_elections_on_demand, test_a_lost_leader_leaves_the_isr_and_the_next_replica_in_sync_leads,
   test_an_unclean_election_takes_any_that_lives_where_the_topic_allows_it]
3. The last replica of an ISR never leaves it, even when it is dead: no other has all acknowledged records.
   [test_a_lost_leader_leaves_the_isr_and_the_next_replica_in_sync_leads]
4. A replica that is dropped begins a new leader epoch, so that its fetches are fenced.
   [test_dropping_a_replica_begins_a_leader_epoch_even_if_the_leader_stays]
5. Where a Kafka left no ISR but eligible replicas (KIP-966), the first acceptable one of these leads; without any the only one that it
   last knew, uncleanly. No replica stays eligible beside a leader: acknowledged records here may be on replicas in sync alone.
   [test_eligible_leaders_that_a_kafka_left, test_beside_a_leader_no_replica_stays_eligible]

Source: org.apache.kafka.controller.{PartitionChangeBuilder, PartitionReassignmentReplicas, PartitionReassignmentRevert}.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.broker.cluster import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionRegistration
from kafkacore.protocol.metadata_log import PartitionChangeRecord

RECOVERED = 0
RECOVERING = 1


class Election(enum.Enum):
    """Who may be elected."""

    ONLINE = "an acceptable replica in sync"
    PREFERRED = "the first replica if possible"
    UNCLEAN = "any acceptable replica if none is in sync"


class PartitionChangeBuilder:
    """What becomes of one partition."""

    def __init__(
        self,
        partition: PartitionRegistration,
        topic_id: bytes,
        index: int,
        is_acceptable_leader: Callable[[int], bool],
        election: Election = Election.ONLINE,
        default_directory: Callable[[int], bytes] = lambda node: UNASSIGNED_DIRECTORY,
    ) -> None:
        """Wants nothing yet.

        Args:
            partition: as it is.
            topic_id: of its topic.
            index: its number.
            is_acceptable_leader: whether a broker may lead.
            election: who may be elected.
            default_directory: where a broker puts a new replica.
        """
        self.partition = partition
        self.topic_id = topic_id
        self.index = index
        self.is_acceptable_leader = is_acceptable_leader
        self.election = election
        self.target_isr = list(partition.isr)
        self.target_replicas = list(partition.replicas)
        self.target_removing = list(partition.removing_replicas)
        self.target_adding = list(partition.adding_replicas)
        self.target_recovery_state = partition.leader_recovery_state
        self.target_directories: dict[int, bytes] = {}
        self._default_directory = default_directory

    def build(self) -> PartitionChangeRecord | None:
        """The record of what changes; None if nothing does."""
        partition = self.partition
        self._complete_reassignment()
        changes: dict[str, Any] = {}
        leader, unclean = self._elect()
        if leader != partition.leader:
            changes["leader"] = leader
            if leader != NO_LEADER and leader not in self.target_isr:
                changes["isr"] = [leader]
            if unclean and partition.leader_recovery_state != RECOVERING:
                changes["leader_recovery_state"] = RECOVERING
        elif not set(partition.replicas) <= set(self.target_replicas):
            changes["leader"] = partition.leader
        if "isr" not in changes and self.target_isr and self.target_isr != partition.isr:
            changes["isr"] = self.target_isr
        if self.target_replicas != partition.replicas:
            changes["replicas"] = self.target_replicas
        if self.target_removing != partition.removing_replicas:
            changes["removing_replicas"] = self.target_removing
        if self.target_adding != partition.adding_replicas:
            changes["adding_replicas"] = self.target_adding
        if self.target_recovery_state != partition.leader_recovery_state and "leader_recovery_state" not in changes:
            changes["leader_recovery_state"] = self.target_recovery_state
        directories = [self._directory(node) for node in self.target_replicas]
        if directories != [partition.directory(node) for node in partition.replicas]:
            changes["directories"] = directories
        if not changes:
            return None
        if changes.get("leader", NO_LEADER) != NO_LEADER or changes.get("isr"):
            changes |= {"eligible_leader_replicas": []} if partition.elr else {}
            changes |= {"last_known_elr": []} if partition.last_known_elr else {}
        return PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id, **changes)

    def _directory(self, node: int) -> bytes:
        if node in self.target_directories:
            return self.target_directories[node]
        return self.partition.directory(node) if node in self.partition.replicas else self._default_directory(node)

    def _complete_reassignment(self) -> None:
        adding, removing = self.target_adding, self.target_removing
        if not adding and not removing:
            return
        isr = [node for node in self.target_isr if node not in removing]
        replicas = [node for node in self.target_replicas if node not in removing]
        if not isr or not replicas or not set(adding) <= set(isr):
            return
        if len(adding) < len(removing) and not set(replicas) <= set(isr):
            return  # fewer replicas than before: all that stay must be in sync, or the partition would be worse off
        self.target_isr, self.target_replicas = isr, replicas
        self.target_adding, self.target_removing = [], []

    def _is_valid_leader(self, node: int) -> bool:
        return node in self.target_isr and self.is_acceptable_leader(node)

    def _elect(self) -> tuple[int, bool]:
        """The leader to be, and whether it is not in sync."""
        if self.election is Election.PREFERRED and self._is_valid_leader(self.target_replicas[0]):
            return self.target_replicas[0], False
        if self._is_valid_leader(self.partition.leader):
            return self.partition.leader, False
        for node in self.target_replicas:
            if self._is_valid_leader(node):
                return node, False
        if not self.partition.isr:
            for node in self.target_replicas:
                if node in self.partition.elr and self.is_acceptable_leader(node):
                    return node, False
            known = self.partition.last_known_elr if not self.partition.elr else []
            if len(known) == 1 and known[0] in self.target_replicas and self.is_acceptable_leader(known[0]):
                return known[0], True
        if self.election is Election.UNCLEAN:
            for node in self.target_replicas:
                if self.is_acceptable_leader(node):
                    return node, True
        return NO_LEADER, False


class Reassignment(NamedTuple):
    """The replicas on the way to a new assignment: the target's first, then those that go when it is complete."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    @classmethod
    def plan(cls, current: list[int], target: list[int]) -> Reassignment:
        """How to get from the current replicas to the target's."""
        removing = [node for node in current if node not in target]
        return cls(target + removing, [node for node in target if node not in current], removing)


def revert(partition: PartitionRegistration) -> tuple[list[int], list[int], bool]:
    """What a cancelled reassignment leads back to.

    Returns:
        The replicas, the ISR, and whether an unclean election would be needed because none of them is in sync.

    Raises:
        InvalidReplicaAssignment: all replicas are being added.
    """
    replicas = [node for node in partition.replicas if node not in partition.adding_replicas]
    isr = [node for node in partition.isr if node not in partition.adding_replicas]
    if isr:
        return replicas, isr, False
    if not replicas:
        raise errors.InvalidReplicaAssignment("all replicas are being added, so no replica is left to go back to")
    return replicas, [replicas[0]], True
