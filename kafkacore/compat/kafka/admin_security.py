"""kafka-python's calls about ACLs, SCRAM credentials and transactions.

Source: kafka.admin._acls, kafka.admin._users, kafka.admin._transactions, kafka-python 3.0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafkacore import errors as ours
from kafkacore import protocol as p
from kafkacore.admin.base import TRANSACTION_KEY
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.admin_base import AdminBase, check
from kafkacore.compat.kafka.admin_types import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    PartitionProducerState,
    ProducerState,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafkacore.types import TopicPartition

HANGING_SLACK_MS = 300_000
"""How much longer than brokers allow a transaction is open before it counts as hanging: what Kafka's own tool adds."""
_ENDED = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.DEAD)


class SecurityAdmin(AdminBase):
    """The calls about who may do what."""

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], Any]:
        """The ACLs that match, and NoError.

        Raises:
            SecurityDisabledError: the cluster has no authorizer.
        """
        request = p.DescribeAclsRequest(**_filter_fields(acl_filter))
        response = self._send(p.DescribeAclsRequest, lambda _: request)
        check([(response.error_code, response.error_message, "describing ACLs")])
        return [_acl(resource, acl) for resource in response.resources for acl in resource.acls], errors.NoError

    def create_acls(self, acls: Sequence[ACL]) -> dict[str, list[Any]]:
        """Adds ACLs.

        Returns:
            "succeeded": the ACLs; "failed": error classes.
        """
        if not all(isinstance(each, ACL) for each in acls):
            raise errors.IllegalArgumentError("acls must contain ACL objects")
        creations = [
            p.AclCreation(
                resource_type=each.resource_pattern.resource_type,
                resource_name=each.resource_pattern.resource_name or "",
                resource_pattern_type=each.resource_pattern.pattern_type,
                principal=each.principal or "",
                host=each.host or "",
                operation=each.operation,
                permission_type=each.permission_type,
            )
            for each in acls
        ]
        response = self._send(p.CreateAclsRequest, lambda _: p.CreateAclsRequest(creations=creations))
        found: dict[str, list[Any]] = {"succeeded": [], "failed": []}
        for acl, result in zip(acls, response.results, strict=True):
            if result.error_code:
                found["failed"].append(errors.for_code(result.error_code))
            else:
                found["succeeded"].append(acl)
        return found

    def delete_acls(self, acl_filters: Sequence[ACLFilter]) -> list[tuple[ACLFilter, list[ACL], Any]]:
        """Deletes the ACLs that match.

        Returns:
            Per filter the filter, the deleted ACLs, and an error class, NoError where it worked.
        """
        if not all(isinstance(each, ACLFilter) for each in acl_filters):
            raise errors.IllegalArgumentError("acl_filters must contain ACLFilter type objects")
        filters = [p.DeleteAclsFilter(**_filter_fields(each)) for each in acl_filters]
        response = self._send(p.DeleteAclsRequest, lambda _: p.DeleteAclsRequest(filters=filters))
        return [
            (each, [_acl(acl, acl) for acl in result.matching_acls], errors.for_code(result.error_code))
            for each, result in zip(acl_filters, response.filter_results, strict=True)
        ]

    # -- users --------------------------------------------------------------------------------------------------------------------

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Which users have which mechanisms.

        Args:
            users: names; None for all.

        Returns:
            By user {"error": why not, "credential_infos": [{"mechanism", "iterations"}]}.
        """
        with errors.translated():
            results = self._admin.describe_user_scram_credentials(users, timeout=self._seconds(None))
        found: dict[str, dict[str, Any]] = {
            user: {"error": error.message or str(error), "credential_infos": []} for user, error in results.errors.items()
        }
        for user, mechanisms in results.succeeded.items():
            infos = [{"mechanism": ScramMechanism[name.replace("-", "_")], "iterations": count} for name, count in mechanisms.items()]
            found[user] = {"error": None, "credential_infos": infos}
        return found

    def alter_user_scram_credentials(self, alterations: Iterable[Any]) -> dict[str, str | None]:
        """Sets and takes away credentials.

        Args:
            alterations: UserScramCredentialUpsertion and UserScramCredentialDeletion.

        Returns:
            By user None, or why not.
        """
        by_iterations: dict[int, dict[tuple[str, str], str | None]] = {}
        for each in alterations:
            if isinstance(each, UserScramCredentialUpsertion):
                key, iterations, password = (each.user, each.mechanism), each.iterations, each.password
                by_iterations.setdefault(iterations, {})[key[0], key[1].name.replace("_", "-")] = password
            elif isinstance(each, UserScramCredentialDeletion):
                wanted = by_iterations.setdefault(UserScramCredentialUpsertion.DEFAULT_ITERATIONS, {})
                wanted[each.user, each.mechanism.name.replace("_", "-")] = None
            else:
                raise errors.IllegalArgumentError(
                    f"alterations must be UserScramCredentialDeletion or UserScramCredentialUpsertion, got {type(each).__name__}"
                )
        found: dict[str, str | None] = {}
        for iterations, passwords in by_iterations.items():
            with errors.translated():
                results = self._admin.alter_user_scram_credentials(passwords, iterations=iterations, timeout=self._seconds(None))
            found |= {user: None for user, _ in results.succeeded}
            found |= {user: error.message or str(error) for (user, _), error in results.errors.items()}
        return found

    # -- transactions -------------------------------------------------------------------------------------------------------------

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[Any] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactional ids that coordinators know, by broker.

        Args:
            broker_ids: of the coordinators; None for all.
            producer_id_filters: only of these producers.
            state_filters: only in these states.
            duration_filter_ms: only transactions open for longer (Kafka 3.8).
            transactional_id_pattern: a regular expression (RE2) for the ids (Kafka 4.1).

        Raises:
            UnsupportedVersionError: a broker is too old for a filter.
        """
        states = [TransactionState.value_for(each) for each in state_filters or ()]
        ids = list(producer_id_filters or ())

        def build(version: int) -> p.ListTransactionsRequest:
            if (duration_filter_ms is not None and version < 1) or (transactional_id_pattern is not None and version < 2):
                raise ours.UnsupportedVersion("the broker cannot filter so", api="ListTransactions")
            return p.ListTransactionsRequest(
                state_filters=states,
                producer_id_filters=ids,
                duration_filter=-1 if duration_filter_ms is None else duration_filter_ms,
                transactional_id_pattern=transactional_id_pattern,
            )

        found = {}
        for node_id in self._brokers(broker_ids):
            response = self._send(p.ListTransactionsRequest, build, node_id=node_id)
            check([(response.error_code, None, "listing transactions")])
            found[node_id] = [
                TransactionListing(each.transactional_id, each.producer_id, TransactionState(each.transaction_state))
                for each in response.transaction_states
            ]
        return found

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """The state of transactional ids.

        Raises:
            TransactionalIdNotFoundError: a coordinator does not know an id.
        """
        ids = list(transactional_ids)
        with errors.translated():
            found = self._admin.describe_transactions(ids, timeout=self._seconds(None)).check()
            places = self._admin._coordinators(ids, TRANSACTION_KEY, self._admin._deadline_ms(self._seconds(None)))
        shown = {}
        for name, each in found.items():
            place = places[name]
            shown[name] = TransactionDescription(
                place if isinstance(place, int) else -1,
                TransactionState(each.state),
                each.producer_id,
                each.producer_epoch,
                each.timeout_ms,
                each.start_time_ms,
                set(each.partitions),
            )
        return shown

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """The producers that wrote to partitions lately.

        Args:
            partitions: the partitions.
            broker_id: cannot be given: each partition's leader is asked.
        """
        if broker_id is not None:
            raise errors.IllegalArgumentError("broker_id: the leader of each partition is asked")
        with errors.translated():
            found = self._admin.describe_producers(partitions, timeout=self._seconds(None)).check()
        return {tp: PartitionProducerState([ProducerState(*each) for each in producers]) for tp, producers in found.items()}

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Aborts a transaction in one partition, without its coordinator."""
        with errors.translated():
            self._admin.abort_transaction(*spec, timeout=self._seconds(None))

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[dict[str, Any]]:
        """Transactions that are open for longer than brokers allow, by five minutes or more.

        Args:
            broker_ids: of the coordinators; None for all.
            max_transaction_timeout_ms: what brokers allow.
        """
        ids = sorted({each.transactional_id for listed in self.list_transactions(broker_ids).values() for each in listed})
        now_ms = int(time.time() * 1000)
        found = []
        for name, each in self.describe_transactions(ids).items() if ids else ():
            age_ms = now_ms - each.transaction_start_time_ms
            if each.state in _ENDED or each.transaction_start_time_ms < 0 or age_ms < max_transaction_timeout_ms + HANGING_SLACK_MS:
                continue
            found.append(
                {
                    "transactional_id": name,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "state": each.state.value,
                    "age_ms": age_ms,
                    "coordinator_id": each.coordinator_id,
                    "topic_partitions": sorted(each.topic_partitions),
                }
            )
        return found


def _filter_fields(given: ACLFilter) -> dict[str, Any]:
    pattern = given.resource_pattern
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.resource_name,
        "pattern_type_filter": pattern.pattern_type,
        "principal_filter": given.principal,
        "host_filter": given.host,
        "operation": given.operation,
        "permission_type": given.permission_type,
    }


def _acl(resource: Any, acl: Any) -> ACL:
    pattern = ResourcePattern(ResourceType(resource.resource_type), resource.resource_name, ACLResourcePatternType(resource.pattern_type))
    return ACL(acl.principal, acl.host, ACLOperation(acl.operation), ACLPermissionType(acl.permission_type), pattern)
