"""Settings: values, layers, what may be altered. (Names, defaults and words: tests/interop/test_kafka_configs.py, on a real Kafka.)"""

import copy
import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore.broker import config_docs, configs
from kafkacore.broker.configs import APPEND, DELETE, SET, SUBTRACT, BrokerLayers, Operation, Resource, Source
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.config import BrokerConfig
from kafkacore.config_broker_tables import BROKER
from kafkacore.config_values import INT32_MAX, INT64_MAX, Range
from tests.kit.rows import each_row

NO_LAYERS = BrokerLayers({}, {}, {})


def settings_by_name(described):
    return {each.key.name: each for each in described}


def test_every_default_is_a_value_its_key_accepts():
    for keys in (configs.broker_keys(), configs.topic_keys(), configs.group_keys(), configs.client_metrics_keys()):
        for key in keys.values():
            if key.default is not None:
                parsed = key.parse(key.default)
                assert parsed == key.default or float(parsed) == float(key.default), key


@each_row(
    ("name", "text", "parsed"),
    [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "-1", "-1"),
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", " delete , compact ", "delete,compact"),
        ("cleanup.policy", "", ""),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("compression.gzip.level", "-1", "-1"),
        ("compression.gzip.level", "9", "9"),
    ],
)
def test_values_are_written_as_kafka_writes_them(name, text, parsed):
    assert configs.topic_keys()[name].parse(text) == parsed


@each_row(
    ("name", "taken", "refused", "why"),
    [
        ("compression.gzip.level", "-1 1 9", "0 10 -2", "Value must be between 1 and 9 or equal to -1"),
        ("retention.ms", "-1 9223372036854775807", "-2", "Value must be at least -1"),
        ("min.cleanable.dirty.ratio", "0.0 1.0", "1.5", "Value must be no more than 1"),
        ("segment.bytes", "1048576 2147483647", "2147483648 -2147483649 1_048_576 \u0669999999 1.0", "Not a number of type INT"),
        ("retention.bytes", "-9223372036854775808", "9223372036854775808 x", "Not a number of type LONG"),
        ("preallocate", "true false", "1", "Expected value to be either true or false"),
        ("message.timestamp.type", "CreateTime", "createtime", "String must be one of: CreateTime, LogAppendTime"),
    ],
)
def test_limits_in_kafkas_words(name, taken, refused, why):
    key = configs.topic_keys()[name]
    assert [key.parse(text) for text in taken.split()] == taken.split()
    for text in refused.split():
        with pytest.raises(errors.InvalidConfiguration) as caught:
            key.parse(text)
        assert caught.value.message == f"Invalid value {text} for configuration {name}: {why}"


def test_types_and_their_bits():
    types = "UNKNOWN BOOLEAN STRING INT SHORT LONG DOUBLE LIST CLASS PASSWORD"
    assert [configs.ConfigType(number).name for number in range(10)] == types.split()
    short = configs.broker_keys()["offsets.topic.replication.factor"]
    assert short.parse("32767") == "32767"
    with pytest.raises(errors.InvalidConfiguration, match="type SHORT"):
        short.parse("32768")


def test_a_topics_settings_in_force():
    broker = BrokerConfig(log_segment_bytes=2_000_000, log_preallocate=True)
    plain = TopicConfig.build({"segment.ms": None}, broker)
    assert plain is TopicConfig.build({}, broker) and plain != TopicConfig.build({}, BrokerConfig())
    assert (plain.segment_bytes, plain.preallocate, plain.overrides) == (2_000_000, True, {})
    own = {
        "segment.ms": " 7 ",
        "max.compaction.lag.ms": "5",
        "cleanup.policy": "delete, compact",
        "preallocate": "FALSE",
        "unclean.leader.election.enable": "True",
        "min.cleanable.dirty.ratio": "1",
        "compression.type": "zstd",
        "leader.replication.throttled.replicas": "0:1, 1:2",
        "follower.replication.throttled.replicas": "*",
        "remote.log.copy.disable": "true",
    }
    built = TopicConfig.build(own, broker)
    assert (built.segment_ms, built.max_segment_ms, built.cleanup_policy, built.compression_type) == (7, 5, "delete,compact", "zstd")
    assert (built.preallocate, built.unclean_leader_election_enable, built.min_cleanable_dirty_ratio) == (False, True, 1.0)
    assert (built.leader_throttled_replicas, built.follower_throttled_replicas, built.overrides) == ("0:1,1:2", "*", own)
    assert (TopicConfig.build({"segment.ms": "7", "max.compaction.lag.ms": "5"}, broker).max_segment_ms, built.segment_bytes) == (
        7,
        2_000_000,
    )
    with pytest.raises(errors.InvalidConfiguration, match=r"ratio: the embedded broker does not implement it: must be a number"):
        TopicConfig.build({"min.cleanable.dirty.ratio": "NaN"}, broker)


def test_a_recorded_setting_that_nothing_obeys_stays():
    broker = BrokerConfig()
    given = {"segment.ms": "7", "min.cleanable.dirty.ratio": "NaN", "of.a.later.kafka": "x", "flush.ms": "8"}
    found = TopicConfig.recorded(given, broker)
    assert (found.segment_ms, found.flush_ms, found.min_cleanable_dirty_ratio, found.overrides) == (7, 8, 0.5, given)
    assert list(TopicConfig.refused(given, broker)) == ["min.cleanable.dirty.ratio", "of.a.later.kafka"]
    assert list(TopicConfig.refused({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, broker)) == ["max.compaction.lag.ms"]
    assert TopicConfig.recorded({"segment.ms": "7"}, broker) == TopicConfig.build({"segment.ms": "7"}, broker)


@given(st.text(max_size=6))
def test_a_number_is_what_java_takes_for_one(text):
    try:
        parsed = configs.topic_keys()["segment.ms"].parse(text)
    except errors.InvalidConfiguration as error:
        assert error.message.startswith("Invalid value")
    else:
        assert text.strip().lstrip("+").isdecimal() and int(parsed) >= 1


# ---- layers


def test_the_strongest_layer_wins_and_all_are_told():
    layers = BrokerLayers({"log.segment.bytes": "4000000"}, {"log.segment.bytes": "3000000"}, {"log.segment.bytes": "2000000"})
    found = settings_by_name(layers.describe())["log.segment.bytes"]
    assert (found.value, found.source, found.read_only) == ("4000000", Source.DYNAMIC_BROKER, False)
    assert [(each.value, each.source) for each in found.synonyms] == [
        ("4000000", Source.DYNAMIC_BROKER),
        ("3000000", Source.DYNAMIC_DEFAULT_BROKER),
        ("2000000", Source.STATIC_BROKER),
        ("1073741824", Source.DEFAULT),
    ]
    topic = settings_by_name(layers.describe_topic({}))["segment.bytes"]
    assert (topic.value, topic.source, len(topic.synonyms)) == ("4000000", Source.DYNAMIC_BROKER, 4)
    topic = settings_by_name(layers.describe_topic({"segment.bytes": "5000000"}))["segment.bytes"]
    assert (topic.value, topic.source, topic.synonyms[0]) == ("5000000", Source.TOPIC, ("segment.bytes", "5000000", Source.TOPIC))


def test_secrets_are_never_told():
    found = settings_by_name(BrokerLayers({"ssl.key.password": "secret"}, {}, {}).describe())["ssl.key.password"]
    assert (found.value, found.key.is_sensitive) == (None, True)
    assert [(each.value, each.source) for each in found.synonyms] == [(None, Source.DYNAMIC_BROKER)]


def test_static_settings_are_those_that_differ_from_kafkas():
    impatient = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}  # who embeds a broker does not wait
    assert configs.static_settings(BrokerConfig(), {}) == impatient
    config = BrokerConfig(num_partitions=3, auto_create_topics_enable=False, log_retention_ms=5)
    assert configs.static_settings(config, {"node.id": "1"}) == {
        **impatient,
        "node.id": "1",
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "5",
    }


LEAST = {
    1: "default_replication_factor max_connection_creation_rate log_cleaner_dedupe_buffer_size log_roll_ms replica_lag_time_max_ms"
    " replica_high_watermark_checkpoint_interval_ms socket_connection_setup_timeout_ms socket_connection_setup_timeout_max_ms"
    " replica_fetch_wait_max_ms replica_fetch_min_bytes replica_socket_timeout_ms group_min_session_timeout_ms group_max_session_timeout_ms"
    " request_timeout_ms metadata_log_segment_ms broker_heartbeat_interval_ms broker_session_timeout_ms"
    " unclean_leader_election_interval_ms",
    0: "log_roll_jitter_ms log_flush_interval_ms offset_metadata_max_bytes group_initial_rebalance_delay_ms connections_max_reauth_ms"
    " sasl_server_max_receive_size leader_replication_throttled_rate follower_replication_throttled_rate",
    -1: "socket_send_buffer_bytes socket_receive_buffer_bytes connections_max_idle_ms queued_max_request_bytes log_retention_ms"
    " log_memory_max_bytes compression_gzip_level metadata_max_retention_bytes metadata_max_retention_ms",
    -INT64_MAX - 1: "log_retention_bytes",
    1 << 20: "offsets_topic_segment_bytes transaction_state_log_segment_bytes",
    10_000: "group_consumer_regex_refresh_interval_ms",
}
"""The least value of settings for which Kafka has no limit, or another one."""
OWN = {
    "log_memory_max_bytes": -1,
    "group_consumer_regex_refresh_interval_ms": 600_000,
    "unclean_leader_election_interval_ms": 300_000,
    "leader_replication_throttled_rate": INT64_MAX,
    "follower_replication_throttled_rate": INT64_MAX,
}
"""Defaults of settings that no table of Kafka's has."""


def test_limits_are_kafkas_where_it_has_some():
    rows = {
        name.replace(".", "_"): limits.partition("..") for name, _, _, limits, _ in (row.split(" ") for row in BROKER.split("\n") if row)
    }
    least = {name: low for low, names in LEAST.items() for name in names.split()}
    seen = set()
    for field in dataclasses.fields(BrokerConfig):
        if isinstance(limit := field.metadata.get("check"), Range):
            low, _, high = rows.get(field.name, ("", "", ""))
            assert limit.low == (least[field.name] if field.name in least else int(low)), field.name
            assert limit.high == int(high) if high.isdecimal() else limit.high in (9, INT32_MAX, INT64_MAX), field.name
            seen.add(field.name)
    assert least.keys() | OWN.keys() <= seen
    assert {name: getattr(BrokerConfig(), name) for name in OWN} == OWN


def test_a_setting_somebody_set_is_told_as_set_even_to_its_default():
    config = BrokerConfig(log_segment_bytes=1_073_741_824).replace(num_partitions=1)
    assert config == BrokerConfig()
    assert config.given == {"log_segment_bytes", "num_partitions"}
    static = configs.static_settings(config, {})
    assert {name for name in static if not name.startswith("group.")} == {"log.segment.bytes", "num.partitions"}
    layers = BrokerLayers({}, {"num.io.threads": "8"}, static)
    found = settings_by_name(layers.describe())
    assert [found[name].source for name in ("log.segment.bytes", "num.io.threads", "log.roll.ms")] == [
        Source.STATIC_BROKER,
        Source.DYNAMIC_DEFAULT_BROKER,
        Source.DEFAULT,
    ]
    topic = settings_by_name(layers.describe_topic({"segment.ms": "604800000"}))
    assert [topic[name].source for name in ("segment.bytes", "segment.ms")] == [Source.STATIC_BROKER, Source.TOPIC]
    assert pickle.loads(pickle.dumps(config)).given == copy.copy(config).given == config.given


def test_dynamic_settings_take_the_place_of_static_ones():
    config = BrokerConfig(log_retention_ms=5, num_partitions=3)
    assert configs.effective(config) is config
    weak, strong = {"log.retention.ms": "6", "message.max.bytes": "7"}, {"log.retention.ms": "8", "num.io.threads": "9"}
    changed = configs.effective(config, weak, strong)
    assert (changed.log_retention_ms, changed.message_max_bytes, changed.num_partitions) == (8, 7, 3)


# ---- altering


def altered(current, *operations):
    return configs.apply_operations(configs.topic_keys(), current, [Operation(*each) for each in operations])


def test_operations():
    assert altered({}, ("retention.ms", SET, "5")) == {"retention.ms": "5"}
    assert altered({"retention.ms": "5"}, ("retention.ms", DELETE, None), ("segment.ms", DELETE, None)) == {}
    assert altered({}, ("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert altered({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "compact,delete")) == {"cleanup.policy": "compact,delete"}
    assert altered({"cleanup.policy": "delete,compact"}, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": "compact"}
    assert altered({}, ("cleanup.policy", SUBTRACT, "compact")) == {"cleanup.policy": "delete"}
    for kind in (APPEND, SUBTRACT):
        with pytest.raises(errors.InvalidConfiguration, match="because its type is not LIST"):
            altered({}, ("retention.ms", kind, "5"))
    with pytest.raises(errors.UnknownServer):
        altered({}, ("retention.ms", 9, "5"))


def test_what_kafka_takes_is_taken():
    configs.check_topic({"remote.log.copy.disable": "true", "leader.replication.throttled.replicas": "0:1,1:2"})
    configs.check_group({"share.isolation.level": "read_committed"}, NO_LAYERS)
    taken = {
        "some.plugin.setting": "x",
        "listener.name.internal.num.network.threads": "4",
        "listener.name.sasl.plain.sasl.jaas.config": "secret",
        "sasl.kerberos.min.time.before.relogin": "58000",
        "leader.replication.throttled.rate": "0",
        "ssl.client.auth": "required",
    }
    configs.check_broker(taken, list(taken), True, {})
    with pytest.raises(errors.InvalidRequest, match=r"leader\.replication\.throttled\.rate: Value must be at least 0"):
        configs.check_broker({"leader.replication.throttled.rate": "-5"}, ["leader.replication.throttled.rate"], True, {})
    listeners = {"listeners": "PLAINTEXT://:1"}
    configs.check_broker(listeners, ["listeners"], True, listeners)
    with pytest.raises(errors.InvalidConfiguration, match="does not implement its alteration, so its value stays PLAINTEXT://:2"):
        configs.check_broker(listeners, ["listeners"], True, {"listeners": "PLAINTEXT://:2"})


def test_what_is_obeyed_and_what_is_kept():
    layers = {"ssl.client.auth": "required", "sasl.enabled.mechanisms": "PLAIN"}
    layers |= {"max.connections": "7", "listener.name.a.max.connections": "3", "num.io.threads": "9"}
    config = configs.effective(BrokerConfig(), layers)
    assert (config.max_connections, config.listener_name_max_connections, config.ssl_client_auth) == (7, {"A": 3}, "none")
    assert config.sasl_enabled_mechanisms is None
    obeyed = [name for name in layers if configs.is_obeyed(name, configs.SERVED_BROKER)]
    assert obeyed == ["max.connections", "listener.name.a.max.connections", "num.io.threads"]


def test_how_settings_are_shown_that_only_some_broker_has():
    dynamic = {
        "some.plugin.setting": "x",
        "leader.replication.throttled.rate": "5",
        "listener.name.a.max.connections": "3",
        "listener.name.a.plain.sasl.jaas.config": "secret",
    }
    found = settings_by_name(BrokerLayers(dynamic, {"leader.replication.throttled.rate": "9"}, {"other.plugin": "y"}).describe())
    reported = {name: (found[name].value, found[name].read_only, found[name].key.is_sensitive) for name in [*dynamic, "other.plugin"]}
    assert reported == {
        "some.plugin.setting": (None, True, True),
        "leader.replication.throttled.rate": ("5", False, False),
        "listener.name.a.max.connections": ("3", True, False),
        "listener.name.a.plain.sasl.jaas.config": (None, True, True),
        "other.plugin": (None, True, True),
    }
    synonyms = found["leader.replication.throttled.rate"].synonyms
    assert [(each.value, each.source) for each in synonyms] == [("5", Source.DYNAMIC_BROKER), ("9", Source.DYNAMIC_DEFAULT_BROKER)]
    assert "follower.replication.throttled.rate" not in found


def test_limits_of_groups_are_the_brokers():
    layers = BrokerLayers({"group.consumer.max.session.timeout.ms": "70000"}, {}, {})
    configs.check_group({"consumer.session.timeout.ms": "70000"}, layers)
    with pytest.raises(errors.InvalidConfiguration, match=r"must be less than or equal to group.consumer.max.session.timeout.ms"):
        configs.check_group({"consumer.session.timeout.ms": "70000"}, NO_LAYERS)
    with pytest.raises(errors.InvalidConfiguration, match=r"must be greater than or equal to group.consumer.min.session.timeout.ms"):
        configs.check_group({"consumer.session.timeout.ms": "5"}, NO_LAYERS)


TOO_DEEP = "client_id=" + "(" * 5000 + ")" * 5000


@each_row("pattern", ["nonsense", "client_id=(", "planet=x", "client_id=x,nonsense", "client_id=a{99999999999}", TOO_DEEP])
def test_patterns_of_client_metrics(pattern):
    configs.check_client_metrics({"match": "client_id=a.*,client_software_name=b", "interval.ms": "100", "metrics": "*"})
    with pytest.raises(errors.InvalidConfiguration, match="Illegal client matching pattern"):
        configs.check_client_metrics({"match": pattern})


# ---- in Kafka's words


def refusal(check, *arguments):
    """What a check says of its arguments."""
    with pytest.raises(errors.KafkaError) as caught:
        check(*arguments)
    return type(caught.value), caught.value.message


def test_what_a_value_is_refused_with():
    double, ratio = configs.ConfigKey("d", configs.ConfigType.DOUBLE, None, "*", ""), configs.topic_keys()["min.cleanable.dirty.ratio"]
    assert [double.parse(text) for text in ("1", " 2.5 ", "1e22", "1e-7")] == ["1.0", "2.5", "1E22", "1E-07"]
    at_most, policy = configs.broker_keys()["group.consumer.migration.policy"], configs.topic_keys()["cleanup.policy"]
    assert [at_most.parse(text) for text in ("upgrade", "UPGRADE")] == ["upgrade", "UPGRADE"]
    assert policy.parse("delete,compact,delete") == "delete,compact"
    throttled = configs.topic_keys()["leader.replication.throttled.replicas"]
    assert [throttled.parse(text) for text in ("*", "0:1, 1:2", "")] == ["*", "0:1,1:2", ""]
    wrong = "Invalid value {} for configuration {}: {}"
    replicas = f"{throttled.name} must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId]"
    for key, text, message in (
        (double, " x ", wrong.format(" x ", "d", "Not a number of type DOUBLE")),
        (double, "1_0", wrong.format("1_0", "d", "Not a number of type DOUBLE")),
        (ratio, " -1 ", wrong.format("-1", ratio.name, "Value must be at least 0")),
        (ratio, " 1.01 ", wrong.format("1.01", ratio.name, "Value must be no more than 1")),
        (configs.topic_keys()["preallocate"], " 1 ", wrong.format(" 1 ", "preallocate", "Expected value to be either true or false")),
        (policy, "delete,,compact", "Configuration 'cleanup.policy' values must not be empty."),
        (policy, "delete, burn", wrong.format("burn", policy.name, "String must be one of: compact, delete")),
        (at_most, "up", wrong.format("up", at_most.name, "String must be one of: DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL")),
        (throttled, "0:1,1", wrong.format("[0:1, 1]", throttled.name, f"{replicas},[partitionId]:[brokerId],...")),
        (throttled, "*,*:1", wrong.format("[*, *:1]", throttled.name, f"{replicas},[partitionId]:[brokerId],...")),
    ):
        assert refusal(key.parse, text) == (errors.InvalidConfiguration, message)


def test_settings_of_listeners_and_of_nobody():
    rows = {
        "max.connections": "INT cluster",
        "listener.name.a.max.connections": "INT cluster",
        "listener.name.a.ssl.keystore.location": "STRING broker",
        "listener.name.a.plain.sasl.jaas.config": "PASSWORD broker",
        "listener.name.a.node.id": "INT fixed",
        "listener.name.a.own": "UNKNOWN broker",
        "leader.replication.throttled.rate": "LONG cluster",
        "some.plugin": "UNKNOWN ",
    }
    keys = {name: configs.broker_key(name) for name in rows}
    assert {name: f"{key.type.name} {key.link}" for name, key in keys.items()} == rows
    assert {name: key.name for name, key in keys.items()} == {name: name for name in rows}
    layers = BrokerLayers({"listener.name.a.max.connections": "3"}, {}, {"max.connections": "9"})
    names = ("listener.name.a.max.connections", "listener.name.b.max.connections", "max.connections", "num.io.threads", "some.plugin")
    assert [layers.value(name) for name in names] == ["3", "9", "9", "8", None]
    tls = {each: {"ssl_keystore_location": each.lower(), "ssl_keystore_type": "PEM"} for each in "AB"}
    config = BrokerConfig(
        listeners=("A://127.0.0.1:0", "B://127.0.0.1:0"),
        listener_security_protocol_map=("A:SSL", "B:SSL"),
        inter_broker_listener_name="A",
        listener_name_settings=tls,
        listener_name_max_connections={"A": 5, "B": 6},
    )
    started = {f"listener.name.{each}.ssl.keystore.location": each for each in "ab"}
    started |= {f"listener.name.{each}.ssl.keystore.type": "PEM" for each in "ab"}
    started |= {"listener.name.a.max.connections": "5", "listener.name.b.max.connections": "6"}
    found = configs.static_settings(config, {})
    assert {name: found[name] for name in found if name.startswith("listener.name")} == started
    changed = configs.effective(
        config,
        {"listener.name.a.ssl.keystore.location": "c", "listener.name.a.max.connections": "7"},
        {"listener.name.b.max.connections": "8"},
    )
    assert changed.listener_name_settings == tls | {"A": tls["A"] | {"ssl_keystore_location": "c"}}
    assert changed.listener_name_max_connections == {"A": 7, "B": 8}
    assert config.listener_name_settings == tls
    obeyed = [name for name in started if configs.is_obeyed(name, ())] + [name for name in rows if configs.is_obeyed(name, ["some.plugin"])]
    assert obeyed == [*started, *list(rows)[1:3], "some.plugin"]
    shown = BrokerLayers({}, {"ssl.key.password": "x", "num.io.threads": "9", "node.id": "1"}, {}).describe_defaults()
    assert [(each.value, each.read_only) for each in shown] == [(None, False), ("9", False), ("1", True)]


def test_settings_in_several_units():
    layers = BrokerLayers({"log.retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.minutes": "3", "log.retention.hours": "4"})
    every = [("ms", "1", 2), ("ms", "2", 3), ("minutes", "3", 4), ("hours", "4", 4), ("hours", "168", 5)]
    for unit, start in (("ms", 0), ("minutes", 2), ("hours", 3)):
        found = [(each.name.rpartition(".")[2], each.value, each.source) for each in layers.synonyms(f"log.retention.{unit}")]
        assert found == every[start:]
    shares = settings_by_name(layers.describe_group({"share.delivery.count.limit": "7"}))
    shown = {name: (each.value, each.source, each.synonyms) for name, each in shares.items() if name.startswith("share.")}
    assert shown["share.auto.offset.reset"] == ("latest", Source.DEFAULT, [("share.auto.offset.reset", "latest", Source.DEFAULT)])
    default = ("group.share.delivery.count.limit", "5", Source.DEFAULT)
    assert shown["share.delivery.count.limit"] == ("7", Source.GROUP, [("share.delivery.count.limit", "7", Source.GROUP), default])
    own = settings_by_name(layers.describe_group({"share.auto.offset.reset": "earliest"}))["share.auto.offset.reset"]
    assert own.synonyms == [("share.auto.offset.reset", "earliest", Source.GROUP)]
    metrics = settings_by_name(layers.describe_client_metrics({"interval.ms": "100"}))
    assert {name: (each.value, each.source) for name, each in metrics.items()} == {
        "interval.ms": ("100", Source.CLIENT_METRICS),
        "match": ("", Source.DEFAULT),
        "metrics": ("", Source.DEFAULT),
    }


def test_what_alterations_are_refused_with():
    def broker(settings, per_broker=True, static=None):
        return refusal(configs.check_broker, settings, list(settings), per_broker, static or {})

    invalid, request = errors.InvalidConfiguration, errors.InvalidRequest
    fixed = "Cannot update these configs dynamically: [node.id, broker.id]"
    assert broker({"node.id": "1", "max.connections": "2", "broker.id": "3"}) == (request, fixed)
    secret = "These security configs can be dynamically updated only per-listener using the listener prefix"
    stores = {"ssl.key.password": "x", "ssl.keystore.type": "PEM"}
    assert broker(stores) == (request, f"{secret}: [ssl.key.password, ssl.keystore.type]")
    single = "Cannot update these configs at default cluster level, broker id must be specified"
    named = {f"listener.name.{listener}.{name}": value for listener in "ab" for name, value in stores.items()}
    assert broker(named | {"max.connections": "2"}, False) == (request, f"{single}: [{', '.join(named)}]")
    configs.check_broker(named | {"listener.name.a.max.connections": "2"}, ["listener.name.a.max.connections"], False, {})
    kept = "the embedded broker does not implement its alteration, so its value stays"
    places = {"listener.security.protocol.map": "A:SSL", "cordoned.log.dirs": ""}
    assert broker(places, static={"cordoned.log.dirs": "x"}) == (
        invalid,
        "Invalid value A:SSL for configuration listener.security.protocol.map:"
        f" {kept} SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    )
    unlike = [configs.Operation(name, kind, None) for name, kind in (("a", SET), ("b", DELETE), ("c", APPEND))]
    assert refusal(configs.check_operations, unlike) == (request, "Null value not supported for : a,c")
    assert refusal(configs.check_operations, [unlike[1]] * 2) == (request, "Error due to duplicate config keys")
    for kind, word in ((APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")):
        for name in ("retention.ms", "no.such"):
            assert refusal(altered, {}, (name, kind, "5")) == (invalid, f"Can't {word} to key {name} because its type is not LIST.")
    assert altered({"cleanup.policy": ""}, ("cleanup.policy", APPEND, None), ("retention.ms", SET, None)) == {
        "cleanup.policy": "",
        "retention.ms": "",
    }
    for check, what, kind, more in (
        (configs.check_topic, "topic config name", invalid, ()),
        (configs.check_group, "group config name", invalid, (NO_LAYERS,)),
        (configs.check_client_metrics, "client metrics configuration", request, ()),
    ):
        assert refusal(check, {"no.such": "5"}, *more) == (kind, f"Unknown {what}: no.such")
    configs.check_topic({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    lags = "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"
    assert refusal(configs.check_topic, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}) == (invalid, lags)
    assert "Tiered Storage" in refusal(configs.check_topic, {"remote.storage.enable": "true"})[1]
    configs.check_topic({"remote.storage.enable": "false"})
    for interval in ("100", "3600000"):
        configs.check_client_metrics({"interval.ms": interval})
    for interval in ("99", "3600001"):
        limits = f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        assert refusal(configs.check_client_metrics, {"interval.ms": interval}) == (request, limits)


def test_each_setting_is_documented():
    reported = {
        (Resource.CLIENT_METRICS, "interval.ms"): config_docs.METRICS,
        (Resource.TOPIC, "preallocate"): config_docs.UNSEEN,
        (Resource.TOPIC, "segment.index.bytes"): config_docs.UNSEEN,
        (Resource.BROKER, "num.io.threads"): config_docs.UNSEEN,
        (Resource.TOPIC, "follower.replication.throttled.replicas"): "Replicas, as PARTITION:BROKER pairs or *, that follower copy no"
        " faster than follower.replication.throttled.rate of the broker.",
        (Resource.TOPIC, "max.message.bytes"): "Bytes of one record batch.",
        (Resource.BROKER, "message.max.bytes"): "Bytes of one record batch.",
        (Resource.BROKER, "broker.id"): "The number of this broker, as node.id.",
        (Resource.BROKER, "log.dirs"): "Where the logs lie; none if they are kept in memory.",
        (Resource.BROKER, "log.retention.hours"): "The default of log.retention.ms, in hours.",
        (Resource.BROKER, "log.retention.minutes"): "The default of log.retention.ms, in minutes.",
        (Resource.BROKER, "log.roll.hours"): "The default of log.roll.ms, in hours.",
        (Resource.BROKER, "log.flush.scheduler.interval.ms"): config_docs.NOT_IMPLEMENTED,
        (Resource.TOPIC, "remote.storage.enable"): config_docs.NOT_IMPLEMENTED,
        (Resource.GROUP, "consumer.session.timeout.ms"): "A member of a consumer group (KIP-848) that is not heard of for so long is out.",
    }
    keys = {
        Resource.TOPIC: configs.topic_keys(),
        Resource.BROKER: configs.broker_keys(),
        Resource.GROUP: configs.group_keys(),
        Resource.CLIENT_METRICS: configs.client_metrics_keys(),
    }
    found = {(kind, name): config_docs.documentation(kind, keys[kind][name]) for kind, name in reported}
    assert found == reported
