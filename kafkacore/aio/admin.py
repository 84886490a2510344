"""KafkaAdminClient for asyncio: the calls of `kafkacore.KafkaAdminClient`, made by threads of the client, beside each other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from kafkacore.admin import KafkaAdminClient as Admin
from kafkacore.aio.call_threads import CallThreads
from kafkacore.aio.calls import Ending, awaited, on_a_thread, outlives_its_loop
from kafkacore.clock import Clock
from kafkacore.config import AdminConfig
from kafkacore.config_keywords import AdminKeywords, list_settings


class KafkaAdminClient:
    """Manages a cluster and looks at it, from an event loop.

    Args:
        **settings: see `AdminConfig`; a mapping with dotted names may be passed as the first argument.

    Raises:
        errors.ConfigError: an unknown or wrong setting.

    Every call takes `timeout` in seconds, as the same call of `kafkacore.KafkaAdminClient`. A call that is cancelled ends at once; what the
    brokers were asked for may still be done.
    """

    def __init__(
        self, mapping: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Unpack[AdminKeywords]
    ) -> None:
        self._client = Admin(mapping, clock=clock, **settings)
        self.config: AdminConfig = self._client.config
        self._calls = CallThreads(self._client._drivers)
        self._ending = Ending(f"admin client {self.config.client_id}")

    create_topics = awaited(Admin.create_topics)
    delete_topics = awaited(Admin.delete_topics)
    create_partitions = awaited(Admin.create_partitions)
    list_topics = awaited(Admin.list_topics)
    describe_topics = awaited(Admin.describe_topics)
    describe_topics_by_broker = awaited(Admin.describe_topics_by_broker)
    list_offsets = awaited(Admin.list_offsets)
    delete_records = awaited(Admin.delete_records)
    describe_configs = awaited(Admin.describe_configs)
    alter_configs = awaited(Admin.alter_configs)
    list_config_resources = awaited(Admin.list_config_resources)
    describe_cluster = awaited(Admin.describe_cluster)
    describe_log_dirs = awaited(Admin.describe_log_dirs)
    elect_leaders = awaited(Admin.elect_leaders)
    alter_partition_reassignments = awaited(Admin.alter_partition_reassignments)
    list_partition_reassignments = awaited(Admin.list_partition_reassignments)
    describe_client_quotas = awaited(Admin.describe_client_quotas)
    alter_client_quotas = awaited(Admin.alter_client_quotas)
    list_groups = awaited(Admin.list_groups)
    describe_groups = awaited(Admin.describe_groups)
    delete_groups = awaited(Admin.delete_groups)
    list_group_offsets = awaited(Admin.list_group_offsets)
    alter_group_offsets = awaited(Admin.alter_group_offsets)
    delete_group_offsets = awaited(Admin.delete_group_offsets)
    describe_producers = awaited(Admin.describe_producers)
    list_transactions = awaited(Admin.list_transactions)
    describe_transactions = awaited(Admin.describe_transactions)
    abort_transaction = awaited(Admin.abort_transaction)
    commit_transaction = awaited(Admin.commit_transaction)
    describe_acls = awaited(Admin.describe_acls)
    create_acls = awaited(Admin.create_acls)
    delete_acls = awaited(Admin.delete_acls)
    describe_user_scram_credentials = awaited(Admin.describe_user_scram_credentials)
    alter_user_scram_credentials = awaited(Admin.alter_user_scram_credentials)
    remove_group_members = awaited(Admin.remove_group_members)
    list_groups_offsets = awaited(Admin.list_groups_offsets)
    fence_producers = awaited(Admin.fence_producers)
    force_terminate_transaction = awaited(Admin.force_terminate_transaction)
    delete_topics_by_id = awaited(Admin.delete_topics_by_id)
    describe_topics_by_id = awaited(Admin.describe_topics_by_id)
    describe_replica_log_dirs = awaited(Admin.describe_replica_log_dirs)
    alter_replica_log_dirs = awaited(Admin.alter_replica_log_dirs)
    describe_features = awaited(Admin.describe_features)
    update_features = awaited(Admin.update_features)
    describe_quorum = awaited(Admin.describe_quorum)
    add_raft_voter = awaited(Admin.add_raft_voter)
    remove_raft_voter = awaited(Admin.remove_raft_voter)
    unregister_broker = awaited(Admin.unregister_broker)
    create_delegation_token = awaited(Admin.create_delegation_token)
    renew_delegation_token = awaited(Admin.renew_delegation_token)
    expire_delegation_token = awaited(Admin.expire_delegation_token)
    describe_delegation_tokens = awaited(Admin.describe_delegation_tokens)

    @property
    def closed(self) -> bool:
        """True once the client is closed."""
        return self._client._drivers.first.closed

    async def close(self) -> None:
        """Closes all connections; calls of other tasks end with ClosedError. If it is cancelled, that goes on; a second close waits for its
        end, and does nothing after it."""
        await self._ending.run(self._close, on_a_thread, lambda: not self.closed)

    def _close(self) -> None:
        self._client.close()
        self._calls.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if not outlives_its_loop(kind):
            await self.close()

    def __del__(self) -> None:
        client = self.__dict__.get("_client")
        if client is not None and not self.closed:
            client._drivers.first.reported = True
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"aio.{self._client!r}"
list_settings(KafkaAdminClient, AdminConfig)
