"""The rooms of the package for mutation testing: which files belong together, and which tests speak about them.

A file belongs to the first room one of whose patterns it matches, so special rooms come before general ones. Patterns of files count from
kafkacore/, those of tests from tests/. `tests/test_mutants.py` holds that every file has a room and that every pattern is of use.
"""

from pathlib import Path
from typing import NamedTuple


class Room(NamedTuple):
    """Files of the package, and the tests that run for their mutants."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


def room(files: str, tests: str) -> Room:
    return Room(tuple(files.split()), tuple(tests.split()))


NATIVE = {
    "native-wheel": room(
        "_wheel.pyx _wheel.pxd native/wheel*.* native/poison.h",
        "test_wheel*.py test_timer.py test_purgatory.py aio/test_aio_timer.py",
    ),
    "native-codec": room(
        "_codec.pyx native/*.*",
        "test_codec.py test_append.py test_buffers.py test_compress.py test_file*.py test_hashes.py test_records*.py test_sock.py"
        " test_types.py protocol/test_[hors]*.py net/test_[cfmns]*.py"
        " producer/test_[abqs]*.py consumer/test_f*.py decode/test_json_columns.py"
        " data/test_[afr]*.py aio/test_aio_c*.py broker/test_log*.py",
    ),
}
"""Compiled rooms: each mutant is built, so all tests of the table run for it."""

ROOMS = {
    "acls": room(
        "broker/authorizer.py config_authorizer.py principals.py broker/controller/ac*.py broker/handlers/ac*.py",
        "test_principals.py broker/test_acl*.py broker/test_authorizer.py broker/test_controller_access.py"
        " security/test_acl_*.py test_testing_plugin.py",
    ),
    "admin": room("admin/*.py", "test_admin*.py broker/test_admin_*.py broker/test_describe.py"),
    "aio": room("aio/*.py", "aio/test_*.py"),
    "cli": room("cli/*.py", "cli/test_*.py"),
    "compat.aiokafka": room("compat/aiokafka/**/*.py", "compat/test_aiokafka_[brs]*.py compat/test_[ers]*.py"),
    "compat.confluent": room("compat/confluent/**/*.py", "compat/test_confluent_*.py compat/test_[rs]*.py"),
    "compat.kafka": room("compat/kafka/**/*.py compat/*.py", "compat/test_kafka_*.py compat/test_[aers]*.py"),
    "config": room(
        "config.py config_[bnpv]*.py config_keywords.py config_listeners.py config_text.py broker/config*.py broker/topic_config.py"
        " broker/controller/configs.py broker/handlers/configs.py",
        "test_config*.py test_docs.py test_reference_tables.py producer/test_every_setting.py broker/test_config*.py"
        " broker/test_listeners.py broker/test_admin_cluster.py interop/test_admin_answers.py consumer/test_consumer_settings.py"
        " consumer/test_group_settings.py cli/test_setting_files.py",
    ),
    "decode": room("decode/*.py", "decode/test_*.py data/test_frame_avro.py data/test_read_decoded.py"),
    "frames": room(
        "producer/frame*.py consumer/chunks.py consumer/decoding.py consumer/parquet.py consumer/reading.py consumer/stretches.py",
        "data/test_*.py consumer/test_chunks.py consumer/test_read*.py consumer/test_group_[di]*.py consumer/test_kafka_consumer.py"
        " consumer/test_no_offset.py consumer/test_position_*.py consumer/test_consumer_health.py consumer/test_second_failures.py"
        " producer/test_frame_*.py producer/test_send_many_*.py cli/test_perf*.py",
    ),
    "groups-broker": room(
        "broker/groups/*.py broker/coordinator*.py broker/delayed_groups.py broker/internal_topics.py broker/handlers/coordination.py"
        " broker/handlers/groups.py",
        "broker/test_c*_groups.py broker/test_coordinator*.py broker/test_group_[op]*.py broker/test_groups_stateful.py"
        " broker/test_internal_topics.py broker/test_describe.py security/test_acl_answers.py",
    ),
    "groups-client": room(
        "consumer/group/*.py",
        "consumer/test_*group*.py consumer/test_*member*.py consumer/test_assignors.py consumer/test_commit*.py consumer/test_elections*.py"
        " consumer/test_consumer_[hm]*.py consumer/test_hostile_[cho]*.py consumer/test_second_failures.py consumer/test_topics_*.py"
        " consumer/test_position_in_listener.py consumer/test_kafka_consumer.py consumer/test_waits_named.py consumer/test_arg*.py"
        " consumer/test_interceptors.py",
    ),
    "consumer": room("consumer/*.py", "consumer/test_*.py"),
    "legacy": room("legacy/*.py", "legacy/test_*.py"),
    "log": room(
        "broker/log/*.py",
        "broker/test_log*.py broker/test_compaction.py broker/test_validate.py broker/test_plain_batches.py broker/test_storage_faults.py"
        " broker/test_old_kafka.py",
    ),
    "metrics": room("metrics/*.py", "test_metrics_exporters.py"),
    "protocol": room("protocol/*.py", "protocol/test_*.py security/test_secrets_shown.py"),
    "quotas": room(
        "broker/quotas.py broker/throttling.py broker/replication_quota.py broker/limits.py broker/pauses.py broker/controller/quotas.py",
        "broker/test_quotas.py broker/test_thrott*.py broker/test_replication_quota.py broker/test_limits.py broker/test_unlike_members.py",
    ),
    "security": room(
        "config_kerberos.py config_se*.py config_tls.py client_credentials.py http_client.py kerberos_names.py private_files.py"
        " net/authentication.py net/kerberos.py net/oauth.py net/sasl*.py broker/authentication.py broker/certificates.py"
        " broker/token_keys.py broker/controller/credentials.py broker/controller/tokens.py broker/handlers/security.py"
        " broker/handlers/tokens.py",
        "security/test_*.py test_config_[kst]*.py test_http_client.py test_kerberos_names.py net/test_authentication.py"
        " net/test_kerberos.py net/test_oauth.py net/test_sasl.py net/test_selector_tls.py broker/test_*_listener.py broker/test_tokens.py"
        " decode/test_registry.py interop/test_admin_answers.py",
    ),
    "net": room(
        "net/*.py metadata.py cluster_snapshot.py",
        "net/test_*.py consumer/test_consumer_calls.py consumer/test_group_driving.py consumer/test_waits_named.py"
        " test_admin_controllers.py broker/test_limits.py security/test_strict_certificates.py security/test_tls_listener_refusals.py"
        " security/test_tls_refusals.py",
    ),
    "spark": room("spark/*.py", "spark/test_*.py"),
    "testing": room(
        "testing/*.py",
        "test_testing*.py test_*history.py aio/test_aio_testing.py broker/test_network_faults.py broker/test_isolated_brokers.py"
        " test_config_broker_start.py",
    ),
    "timers": room("timer.py purgatory.py clock.py", "test_timer.py test_purgatory.py test_clock.py test_wheel*.py"),
    "transactions-broker": room(
        "broker/txns/*.py broker/producer*.py broker/handlers/txn.py",
        "broker/test_coordinator.py broker/test_producers.py broker/test_transactions*.py broker/test_txn_*.py"
        " security/test_acl_answers.py",
    ),
    "transactions-client": room(
        "producer/tr*.py producer/t[wx]*.py producer/marker_wait.py",
        "producer/test_transactions_*.py producer/test_two_phase.py producer/test_marker_wait.py producer/test_refused_in_transaction.py"
        " producer/test_sender*.py producer/test_failing_steps.py",
    ),
    "producer": room("producer/*.py", "producer/test_*.py"),
    "controller": room(
        "broker/controller/*.py broker/cluster.py broker/image_jump.py broker/assignments.py",
        "broker/test_*controller*.py broker/test_cluster_image.py broker/test_metadata_snapshots.py broker/test_kafkas_metadata_log.py"
        " broker/test_log_dirs.py broker/test_leaders_killed.py broker/test_throttling.py broker/test_unlike_members.py"
        " interop/test_admin_answers.py",
    ),
    "partition": room(
        "broker/partition.py broker/replicas.py broker/isr.py broker/fetcher.py broker/sessions.py broker/delayed.py",
        "broker/test_partition.py broker/test_handlers.py broker/test_repli*.py broker/test_isr_*.py broker/test_f*.py broker/test_o*.py"
        " broker/test_epochs_after_a_crash.py broker/test_log_memory.py broker/test_log_dirs.py broker/test_sessionless_fetches.py"
        " broker/test_storage_faults.py",
    ),
    "broker": room(
        "broker/*.py broker/handlers/*.py",
        "broker/test_[a-bd-pr-su-z]*.py broker/test_classic_groups.py broker/test_t*cluster.py security/test_acl_answers.py"
        " interop/test_admin_answers.py",
    ),
    "values": room(
        "bounds.py codec.py compress.py elsewhere.py epoch.py error*.py plurals.py printable.py records.py types.py",
        "test_buffers.py test_co[dm]*.py test_elsewhere.py test_epoch.py test_errors.py test_hashes.py test_objects_from_nothing.py"
        " test_plurals.py test_printable.py test_re[cf]*.py test_transient_errors.py test_types.py security/test_bounds.py",
    ),
    **NATIVE,
}

EXCEPTIONS = {
    "__init__.py": "names and imports, read late",
    "__main__.py": "starts the command line",
    "spark/pipeline/*.py": "their tests start Spark",
}
"""Files without a room, each with the reason."""


def owners(package: Path) -> dict[str, str]:
    """The room of each source file, by the file's path from the package on; "" for an exception."""
    found: dict[str, str] = {}
    for pattern in EXCEPTIONS:
        found |= dict.fromkeys((str(path.relative_to(package)) for path in package.glob(pattern)), "")
    for name, each in ROOMS.items():
        for pattern in each.files:
            for path in sorted(package.glob(pattern)):
                found.setdefault(str(path.relative_to(package)), name)
    return found


def files_of(package: Path, name: str) -> list[str]:
    return sorted(file for file, owner in owners(package).items() if owner == name)


def tests_of(tests: Path, name: str) -> list[str]:
    """The room's test files, by their path from tests/ on."""
    return sorted({str(path.relative_to(tests)) for pattern in ROOMS[name].tests for path in tests.glob(pattern)})
