"""A broker's settings, under Kafka's names; those of clients are in config.py, which also names `BrokerConfig`.

A setting is listed here only if the embedded broker honours it. To implement a setting, add its field and its check. Settings of which each
listener may have its own (TLS, Kerberos) are in config_broker_tls.py and config_kerberos.py.

Source: ServerConfigs, AbstractKafkaConfig of Apache Kafka 4.3.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kafkacore import config_authorizer, config_broker_start, config_broker_tls, config_kerberos, config_listeners, config_security
from kafkacore.config_base import Settings
from kafkacore.config_security import PASSWORD_MECHANISMS
from kafkacore.config_values import INT32_MAX, INT64_MAX, between, one_of, sentences_of, string_list
from kafkacore.errors import ConfigError

TOPIC_COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(config_broker_tls.BrokerTls, config_kerberos.BrokerKerberos, Settings):
    """Settings of an embedded broker, under Kafka's names; topic settings are the defaults of new topics.

    Attributes:
        node_id: of the broker; in a cluster of several, of the first one, and the others follow.
        auto_create_topics_enable: a Metadata request may create the topics it names.
        num_partitions: of topics created without a number.
        default_replication_factor: of topics created without one.
        delete_topic_enable: DeleteTopics is served.
        message_max_bytes: bytes of one record batch.
        socket_request_max_bytes: bytes of one request.
        socket_send_buffer_bytes, socket_receive_buffer_bytes: SO_SNDBUF and SO_RCVBUF; -1 leaves the system's default.
        connections_max_idle_ms: connections unused for so long are closed; -1 never.
        max_connections: with so many open, further ones wait to be accepted.
        listener_name_max_connections: the same for the connections of one listener, by its name: as listener.name.NAME.max.connections.
        max_connections_per_ip: an address with so many open has further ones closed at once.
        max_connections_per_ip_overrides: other limits for some addresses or names, like "127.0.0.1:200,some.host:5".
        max_connection_creation_rate: connections accepted per second; more wait.
        queued_max_request_bytes: bytes that the requests of all connections may hold; while they do, no new one is read. -1 means a
            quarter of the machine's memory.
        fetch_max_bytes: bytes of one Fetch answer, whatever the client asks for.
        log_message_timestamp_type: CreateTime or LogAppendTime.
        log_message_timestamp_before_max_ms: how far behind the broker a producer's timestamp may be.
        log_message_timestamp_after_max_ms: how far ahead of the broker a producer's timestamp may be.
        log_retention_ms: batches older than this are deleted, in whole segments; -1 keeps them.
        log_retention_bytes: a partition larger than this loses its oldest segments; -1, or any other below 0, for no limit.
        log_memory_max_bytes: what all logs of a broker in memory may hold together; beyond it the largest lose their oldest segments, and
            a warning says so. 0 means no limit, -1 a quarter of the machine's memory, shared by the brokers of an
            EmbeddedCluster. Not a setting of Kafka.
        log_dirs_failure_halts: a broker alone in its cluster stops when its last log directory fails, as Kafka does, so that clients find
            nobody there; False leaves it up, and it answers with KAFKA_STORAGE_ERROR. One of several is fenced. Not a setting of Kafka.
        log_segment_bytes: the largest segment; in memory a segment never exceeds 16 MiB.
        log_cleanup_policy: delete (old segments go), compact (of every key the last value stays), or both with a comma.
        log_cleaner_backoff_ms: how often is looked for something to compact.
        log_cleaner_dedupe_buffer_size: bytes of the map of keys of one compaction.
        log_cleaner_delete_retention_ms: how long a compacted log keeps tombstones.
        log_cleaner_min_cleanable_ratio: a log is compacted when its dirty part is larger than this part of it.
        log_cleaner_min_compaction_lag_ms: records younger than this are not compacted.
        log_cleaner_max_compaction_lag_ms: records older than this are compacted, however small the dirty part is.
        compression_type: producer leaves batches as they come; uncompressed or a codec's name turns them into that.
        compression_gzip_level, compression_lz4_level, compression_zstd_level: of batches the broker compresses.
        log_roll_ms: a segment ends after so long, even if it is small.
        log_roll_jitter_ms: up to so much earlier, at random, so that not all partitions begin new segments at once.
        log_index_size_max_bytes: a segment ends when its offset or time index has so many bytes.
        log_index_interval_bytes: bytes of batches between two entries of an index.
        log_flush_interval_messages: so many records of a partition are on the disk (fsync) before another one is acknowledged.
        log_flush_interval_ms: after so long at the latest a partition's records are on the disk.
        log_segment_delete_delay_ms: files of deleted segments and partitions stay for so long under another name.
        log_preallocate: a segment's file has its full length from the beginning.
        log_flush_offset_checkpoint_interval_ms: how often it is noted up to where records are on the disk.
        replica_high_watermark_checkpoint_interval_ms: how often high watermarks are noted.
        log_retention_check_interval_ms: how often retention is applied and idle producers are forgotten.
        min_insync_replicas: replicas that must be in sync for a write with acks=all.
        socket_connection_setup_timeout_ms, socket_connection_setup_timeout_max_ms: how long an attempt to connect to another broker may
            take; doubles with every failure up to the maximum.
        replica_lag_time_max_ms: a follower that has not caught up for so long leaves the ISR.
        replica_fetch_wait_max_ms, replica_fetch_min_bytes: a follower's Fetch waits so long for so much.
        replica_fetch_max_bytes: bytes a follower fetches of one partition at a time.
        replica_fetch_response_max_bytes: bytes it fetches from one leader at a time.
        replica_fetch_backoff_ms: the longest rest of a partition that could not be fetched.
        replica_socket_timeout_ms: how long another broker may take to answer a follower.
        replica_selector_class: the rack-aware selector sends consumers to an in-sync replica in their rack; without it they
            stay with the leader.
        max_incremental_fetch_session_cache_slots: fetch sessions remembered.
        max_request_partition_size_limit: partitions of one DescribeTopicPartitions answer.
        producer_id_expiration_ms: an idle producer's sequence numbers are forgotten after so long.
        broker_rack: sent to clients with the metadata.
        offsets_topic_num_partitions: of __consumer_offsets, when it is made.
        offsets_topic_replication_factor: of __consumer_offsets; at most the brokers there are when it is made.
        offsets_topic_segment_bytes: segment.bytes of __consumer_offsets.
        offsets_commit_timeout_ms: how long an answer of the group coordinator waits until what it says is committed.
        offset_metadata_max_bytes: the longest metadata that a committed offset may carry.
        offsets_retention_minutes: how long an offset is kept that no member needs: since its group is empty, or since it was committed.
        offsets_retention_check_interval_ms: how often that is looked at.
        group_min_session_timeout_ms, group_max_session_timeout_ms: limits of what a classic member may ask for.
        group_initial_rebalance_delay_ms: how long the first rebalance of a group waits for more members; Kafka waits 3000 ms.
        group_max_size: members of a classic group.
        group_consumer_session_timeout_ms: a member of a consumer group (KIP-848) that is not heard of for so long is out.
        group_consumer_heartbeat_interval_ms: how often members of consumer groups shall send a heartbeat.
        group_consumer_max_size: members of a consumer group.
        group_consumer_assignment_interval_ms: how long a consumer group keeps a target assignment at least; Kafka waits 1000 ms. One of 200
            members or more keeps it for 1 ms per ten members at least.
        group_consumer_migration_policy: whether groups with members change between the protocols: bidirectional, upgrade (to the consumer
            protocol), downgrade, or disabled.
        group_consumer_regex_refresh_interval_ms: how often subscribed regular expressions are matched again if topics did not change.
        transaction_state_log_num_partitions: of __transaction_state, when it is made.
        transaction_state_log_replication_factor: of __transaction_state; at most the brokers there are when it is made.
        transaction_state_log_min_isr: min.insync.replicas of __transaction_state; at most its replicas.
        transaction_state_log_segment_bytes: segment.bytes of __transaction_state.
        request_timeout_ms: how long an answer of the transaction coordinator, and a transaction marker, wait for their commit, and how long
            another broker may take to answer.
        transaction_max_timeout_ms: the longest transaction.timeout.ms a producer may ask for.
        transactional_id_expiration_ms: a transactional id that was not used for so long is forgotten.
        transaction_remove_expired_transaction_cleanup_interval_ms: how often expired transactional ids are looked for.
        transaction_partition_verification_enable: leaders ask the coordinator before they write a transaction's first batch (KIP-890).
        add_partitions_to_txn_retry_backoff_ms: a leader asks again after this time while the last transaction is being ended.
        add_partitions_to_txn_retry_backoff_max_ms: after so long it lets the producer try again instead.
        metadata_log_max_record_bytes_between_snapshots: after so many bytes of the metadata log its state is written as a snapshot.
        metadata_log_max_snapshot_interval_ms: or with the first change after so long; 0 for never.
        metadata_log_segment_bytes, metadata_log_segment_ms: of the metadata log.
        metadata_max_retention_bytes: beyond so many bytes of metadata log and snapshots the oldest snapshot goes, and the log before the
            next one; -1 for no limit.
        metadata_max_retention_ms: so does a snapshot that is older than this.
        broker_heartbeat_interval_ms: how often a broker of several tells the controller that it lives.
        broker_session_timeout_ms: a broker silent for so long loses what it leads.
        security_inter_broker_protocol: of the listener, for brokers and clients alike: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        listeners: where the broker listens, as NAME://host:port, several with commas; left out, at one port on loopback. An empty host,
            0.0.0.0 and [::] are every address of the machine.
        advertised_listeners: the addresses that clients of each listener are given, where they are others than those it listens on.
        listener_security_protocol_map: the protocol of each listener, as NAME:PROTOCOL; left out, names are protocols.
        inter_broker_listener_name: the listener by which brokers reach each other; left out, the one named as
            security_inter_broker_protocol says.
        sasl_enabled_mechanisms: what clients may use; PLAIN and SCRAM if left out. OAUTHBEARER must be named: it admits
            anyone who brings an unsigned token; and GSSAPI, which needs a keytab (`BrokerKerberos`).
        sasl_jaas_config: PlainLoginModule with username and password, as which brokers log in at each other, and PLAIN's users as
            user_NAME="password".
        connections_max_reauth_ms: after so long a client has to authenticate again; 0 for never.
        sasl_server_max_receive_size: bytes of one request of a client that has not authenticated yet.
        connection_failed_authentication_delay_ms: how long the answer to a failed authentication, and the end of its connection, wait.
        authorizer_class_name: org.apache.kafka.metadata.authorizer.StandardAuthorizer has every request checked against the cluster's ACLs;
            empty, everybody may do everything.
        super_users: the principals that may do everything, as User:admin, several with semicolons. The brokers' own must be among them:
            User:ANONYMOUS where they reach each other by PLAINTEXT.
        allow_everyone_if_no_acl_found: whether a resource that has no ACL is open to all.
        delegation_token_secret_key: what the secrets of delegation tokens are made with, the same for all brokers and the controller; left
            out, there are no tokens.
        delegation_token_max_lifetime_ms: after so long a token ends, however often it is renewed.
        delegation_token_expiry_time_ms: after so long it ends unless it is renewed.
        delegation_token_expiry_check_interval_ms: how often the controller removes tokens that have ended.
        unclean_leader_election_enable: a replica that is not in sync may lead if no other is alive, at the price of lost records.
        unclean_leader_election_interval_ms: how often partitions without a leader are looked at that may be led so by now.
        auto_leader_rebalance_enable, leader_imbalance_check_interval_seconds: whether and how often first replicas that can lead again are
            made to.
        quota_window_num, quota_window_size_seconds: how many windows, of how many seconds each, count for quotas of bytes, of the brokers'
            time and of new connections.
        controller_quota_window_num, controller_quota_window_size_seconds: the same for controller_mutation_rate.
        leader_replication_throttled_rate: bytes a second that this broker sends to followers outside the ISR, of partitions whose topic
            names them in leader.replication.throttled.replicas.
        follower_replication_throttled_rate: bytes a second that it fetches itself of such, as follower.replication.throttled.replicas says.
        replication_quota_window_num, replication_quota_window_size_seconds: how many windows, of how many seconds each, count for both.
        other_settings: Kafka's settings, by their dotted names, that nothing here obeys; DescribeConfigs shows them.
    """

    node_id: int = between(1, 0)
    auto_create_topics_enable: bool = True
    num_partitions: int = between(1, 1)
    default_replication_factor: int = between(1, 1)
    delete_topic_enable: bool = True
    message_max_bytes: int = between(1_048_588, 0)
    socket_request_max_bytes: int = between(104_857_600, 1)
    socket_send_buffer_bytes: int = between(102_400, -1)
    socket_receive_buffer_bytes: int = between(102_400, -1)
    connections_max_idle_ms: int = between(600_000, -1)
    max_connections: int = between(INT32_MAX, 0)
    listener_name_max_connections: Mapping[str, int] | None = None
    max_connections_per_ip: int = between(INT32_MAX, 0)
    max_connections_per_ip_overrides: str = ""
    max_connection_creation_rate: int = between(INT32_MAX, 1)
    queued_max_request_bytes: int = between(-1, -1, INT64_MAX)
    fetch_max_bytes: int = between(57_671_680, 1_024)
    log_message_timestamp_type: str = one_of("CreateTime", "CreateTime", "LogAppendTime")
    log_message_timestamp_before_max_ms: int = between(INT64_MAX, 0, INT64_MAX)
    log_message_timestamp_after_max_ms: int = between(3_600_000, 0, INT64_MAX)
    log_retention_ms: int = between(604_800_000, -1, INT64_MAX)
    log_retention_bytes: int = between(-1, -INT64_MAX - 1, INT64_MAX)
    log_memory_max_bytes: int = between(-1, -1, INT64_MAX)
    log_dirs_failure_halts: bool = True
    log_segment_bytes: int = between(1_073_741_824, 1_048_576)
    log_cleanup_policy: str = one_of("delete", "delete", "compact", "compact,delete", "delete,compact")
    log_cleaner_backoff_ms: int = between(15_000, 0, INT64_MAX)
    log_cleaner_dedupe_buffer_size: int = between(134_217_728, 1, INT64_MAX)
    log_cleaner_delete_retention_ms: int = between(86_400_000, 0, INT64_MAX)
    log_cleaner_min_cleanable_ratio: float = between(0.5, 0, 1)
    log_cleaner_min_compaction_lag_ms: int = between(0, 0, INT64_MAX)
    log_cleaner_max_compaction_lag_ms: int = between(INT64_MAX, 1, INT64_MAX)
    compression_type: str = one_of("producer", *TOPIC_COMPRESSION_TYPES)
    compression_gzip_level: int = between(-1, -1, 9)
    compression_lz4_level: int = between(9, 1, 17)
    compression_zstd_level: int = between(3, -131_072, 22)
    log_roll_ms: int = between(604_800_000, 1, INT64_MAX)
    log_roll_jitter_ms: int = between(0, 0, INT64_MAX)
    log_index_size_max_bytes: int = between(10_485_760, 4)
    log_index_interval_bytes: int = between(4_096, 0)
    log_flush_interval_messages: int = between(INT64_MAX, 1, INT64_MAX)
    log_flush_interval_ms: int = between(INT64_MAX, 0, INT64_MAX)
    log_segment_delete_delay_ms: int = between(60_000, 0, INT64_MAX)
    log_preallocate: bool = False
    log_flush_offset_checkpoint_interval_ms: int = between(60_000, 0)
    replica_high_watermark_checkpoint_interval_ms: int = between(5_000, 1, INT64_MAX)
    log_retention_check_interval_ms: int = between(300_000, 1)
    min_insync_replicas: int = between(1, 1)
    socket_connection_setup_timeout_ms: int = between(10_000, 1)
    socket_connection_setup_timeout_max_ms: int = between(30_000, 1)
    replica_lag_time_max_ms: int = between(30_000, 1)
    replica_fetch_wait_max_ms: int = between(500, 1)
    replica_fetch_min_bytes: int = between(1, 1)
    replica_fetch_max_bytes: int = between(1_048_576, 0)
    replica_fetch_response_max_bytes: int = between(10_485_760, 0)
    replica_fetch_backoff_ms: int = between(1_000, 0)
    replica_socket_timeout_ms: int = between(30_000, 1)
    replica_selector_class: str | None = one_of(None, "org.apache.kafka.common.replica.RackAwareReplicaSelector")
    max_incremental_fetch_session_cache_slots: int = between(1_000, 0)
    max_request_partition_size_limit: int = between(2_000, 1)
    producer_id_expiration_ms: int = between(86_400_000, 1)
    broker_rack: str | None = None
    offsets_topic_num_partitions: int = between(50, 1)
    offsets_topic_replication_factor: int = between(3, 1)
    offsets_topic_segment_bytes: int = between(104_857_600, 1_048_576)
    offsets_commit_timeout_ms: int = between(5_000, 1)
    offset_metadata_max_bytes: int = between(4_096, 0)
    offsets_retention_minutes: int = between(10_080, 1)
    offsets_retention_check_interval_ms: int = between(600_000, 1)
    group_min_session_timeout_ms: int = between(6_000, 1)
    group_max_session_timeout_ms: int = between(1_800_000, 1)
    group_initial_rebalance_delay_ms: int = between(0, 0)
    group_max_size: int = between(INT32_MAX, 1)
    group_consumer_session_timeout_ms: int = between(45_000, 1)
    group_consumer_heartbeat_interval_ms: int = between(5_000, 1)
    group_consumer_max_size: int = between(INT32_MAX, 1)
    group_consumer_assignment_interval_ms: int = between(0, 0)
    group_consumer_migration_policy: str = one_of("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled", any_case=True)
    group_consumer_regex_refresh_interval_ms: int = between(600_000, 10_000)
    transaction_state_log_num_partitions: int = between(50, 1)
    transaction_state_log_replication_factor: int = between(3, 1)
    transaction_state_log_min_isr: int = between(2, 1)
    transaction_state_log_segment_bytes: int = between(104_857_600, 1_048_576)
    request_timeout_ms: int = between(30_000, 1)
    transaction_max_timeout_ms: int = between(900_000, 1)
    transactional_id_expiration_ms: int = between(604_800_000, 1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = between(3_600_000, 1)
    transaction_partition_verification_enable: bool = True
    add_partitions_to_txn_retry_backoff_ms: int = between(20, 1)
    add_partitions_to_txn_retry_backoff_max_ms: int = between(100, 0)
    metadata_log_max_record_bytes_between_snapshots: int = between(20_971_520, 1, INT64_MAX)
    metadata_log_max_snapshot_interval_ms: int = between(3_600_000, 0, INT64_MAX)
    metadata_log_segment_bytes: int = between(1_073_741_824, 8_388_608)
    metadata_log_segment_ms: int = between(604_800_000, 1, INT64_MAX)
    metadata_max_retention_bytes: int = between(104_857_600, -1, INT64_MAX)
    metadata_max_retention_ms: int = between(604_800_000, -1, INT64_MAX)
    broker_heartbeat_interval_ms: int = between(2_000, 1)
    broker_session_timeout_ms: int = between(9_000, 1)
    security_inter_broker_protocol: str = one_of("PLAINTEXT", *config_security.SECURITY_PROTOCOLS)
    listeners: tuple[str, ...] | None = None
    advertised_listeners: tuple[str, ...] | None = None
    listener_security_protocol_map: tuple[str, ...] | None = None
    inter_broker_listener_name: str | None = None
    sasl_enabled_mechanisms: tuple[str, ...] | None = None
    sasl_jaas_config: str | None = dataclasses.field(default=None, repr=False)
    connections_max_reauth_ms: int = between(0, 0, INT64_MAX)
    sasl_server_max_receive_size: int = between(524_288, 0)
    connection_failed_authentication_delay_ms: int = between(100, 0)
    authorizer_class_name: str = ""
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False
    delegation_token_secret_key: str | None = dataclasses.field(default=None, repr=False)
    delegation_token_max_lifetime_ms: int = between(604_800_000, 1, INT64_MAX)
    delegation_token_expiry_time_ms: int = between(86_400_000, 1, INT64_MAX)
    delegation_token_expiry_check_interval_ms: int = between(3_600_000, 1, INT64_MAX)
    unclean_leader_election_enable: bool = False
    unclean_leader_election_interval_ms: int = between(300_000, 1, INT64_MAX)
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = between(300, 1, INT64_MAX)
    quota_window_num: int = between(11, 1)
    quota_window_size_seconds: int = between(1, 1)
    controller_quota_window_num: int = between(11, 1)
    controller_quota_window_size_seconds: int = between(1, 1)
    leader_replication_throttled_rate: int = between(INT64_MAX, 0, INT64_MAX)
    follower_replication_throttled_rate: int = between(INT64_MAX, 0, INT64_MAX)
    replication_quota_window_num: int = between(11, 1)
    replication_quota_window_size_seconds: int = between(1, 1)
    other_settings: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)

    @classmethod
    def from_user(cls, mapping: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        if isinstance(mapping, Mapping):
            mapping = config_kerberos.gathered_by_listener(config_broker_tls.gathered(mapping))
            mapping = config_broker_start.translated(mapping, cls.names())
        return super().from_user(mapping, **settings)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], /, **settings: Any) -> Self:
        """Builds the settings from a file such as Kafka's server.properties.

        Args:
            path: of the file; what it says of Kafka's controllers is left out (`config_broker_start`).
            **settings: more of them, instead of those in the file.

        Raises:
            ConfigError: the file cannot be read, or as `from_user`.
        """
        found = config_broker_start.read_properties(path)
        return cls.from_user({name: value for name, value in found.items() if name.replace(".", "_") not in settings}, **settings)

    @classmethod
    @functools.cache
    def sentences(cls) -> Mapping[str, str]:
        parts = (config_broker_tls.BrokerTls, config_kerberos.BrokerKerberos, cls)
        return {name: text for part in parts for name, text in sentences_of(part.__doc__).items()}

    def _check(self) -> None:
        super()._check()
        self.connection_overrides()
        listeners = config_listeners.listeners_of(self)
        with_sasl = self._sasl_listeners(listeners)
        config_security.check_broker_sasl(self, bool(with_sasl))
        config_security.check_broker_kerberos(self, self.sasl_mechanisms(), with_sasl)
        config_broker_tls.check_tls(self, listeners)
        config_authorizer.check_authorizer(self, self._own_principal(config_listeners.inter_broker(self, listeners)))
        if self.queued_max_request_bytes >= 0 and self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued_max_request_bytes ({self.queued_max_request_bytes}) must be -1 or at least socket_request_max_bytes"
                f" ({self.socket_request_max_bytes})"
            )

    @staticmethod
    def _sasl_listeners(listeners: tuple[config_listeners.Listener, ...]) -> list[str]:
        return [each.name for each in listeners if each.protocol.startswith("SASL_")]

    def gssapi_keytab(self) -> config_kerberos.BrokerKeytab:
        """The broker's keys for GSSAPI, if that is among `sasl_mechanisms`."""
        return config_security.gssapi_keytab(self, self._sasl_listeners(config_listeners.listeners_of(self)))

    def _own_principal(self, own: config_listeners.Listener) -> str | None:
        """Who a broker is to the others; None where its certificate says it."""
        if own.protocol.startswith("SASL_"):
            return f"User:{self.plain_users()[0]}"
        shows = own.protocol == "SSL" and config_broker_tls.tls_of(self, own).server.client_auth != "none"
        return None if shows else config_authorizer.ANONYMOUS

    def sasl_mechanisms(self) -> tuple[str, ...]:
        """What clients may authenticate with."""
        return PASSWORD_MECHANISMS if self.sasl_enabled_mechanisms is None else self.sasl_enabled_mechanisms

    def plain_users(self) -> tuple[str, str, dict[str, str]]:
        """The brokers' own name and password, and the passwords of PLAIN's users."""
        return config_security.plain_users(self.sasl_jaas_config)

    def migration_policy(self) -> str:
        """group_consumer_migration_policy, in small letters."""
        return self.group_consumer_migration_policy.lower()

    def connection_overrides(self) -> dict[str, int]:
        """max_connections_per_ip_overrides, as host -> limit."""
        found: dict[str, int] = {}
        for entry in string_list(self.max_connections_per_ip_overrides):
            host, colon, limit = entry.rpartition(":")
            if not colon or not host or not limit.strip().isdecimal():
                raise ConfigError(f"max_connections_per_ip_overrides: {entry!r} is not of the form host:limit")
            found[host.strip().removeprefix("[").removesuffix("]")] = int(limit)
        return found
