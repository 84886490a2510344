"""The options of the Spark source and sink: every name works or is refused with a sentence."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kafkacore import config_base
from kafkacore.config import ConsumerConfig
from kafkacore.errors import ConfigError
from kafkacore.spark import options, secrets
from kafkacore.spark.options import option_text, sink_options, source_options
from tests.kit.rows import each_row

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
READ = {**SERVERS, "subscribe": "t"}
TLS = {**READ, "kafka.security.protocol": "SSL"}
SASL = {**READ, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
OAUTH = {**READ, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
SCRAM = "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required "


NOTHING = (
    "pattern starting_timestamps_ms ending_timestamps_ms max_offsets min_offsets min_partitions max_partitions max_records join_down_to"
    " retries commit_group value_schema value_message registry_url registry_subject dead_letter_topic"
)
DEFAULTS: dict[str, Any] = {
    "client": {"bootstrap.servers": "broker:9092", "client.id": "spark-kafkacore", "max.partition.fetch.bytes": str(8 << 20)},
    "subscribe": ("t",), "assign": (), "starting": "earliest", "ending": "latest", "timestamp_strategy": "error", "on_data_loss": "fail",
    "check_topic_ids": True, "max_delay_ms": 900_000, "include_headers": False, "poll_timeout_ms": 120_000, "retry_interval_ms": 10,
    "outage_timeout_ms": 0, "metadata_ttl_ms": 0, "value_format": "binary", "delimiter": ",", "framed": False, "registry_settings": {},
    "mode": "permissive", "dead_letter_client": {}, "on_unusable_schema": "fail", "emit": "rows", **dict.fromkeys(NOTHING.split()),
}  # fmt: skip
TIMES, AT = '{"t":{"0":7,"1":8}}', {("t", 0): 7, ("t", 1): 8}
OPTIONS = {
    # what it makes of the defaults, by option; those of a stream alone are above those of both, and of a batch
    "checkTopicIds": ("false", {"check_topic_ids": False}),
    "maxOffsetsPerTrigger": ("9", {"max_offsets": 9}),
    "minOffsetsPerTrigger": ("9", {"min_offsets": 9}),
    "fetchOffset.outageTimeoutMs": ("9", {"outage_timeout_ms": 9}),
    "commitOffsetsToGroup": ("g", {"commit_group": "g"}),
    "startingOffsets": (TIMES, {"starting": AT}),
    "startingTimestamp": ("9", {"starting_timestamps_ms": 9}),
    "startingOffsetsByTimestamp": (TIMES, {"starting_timestamps_ms": AT}),
    "startingOffsetsByTimestampStrategy": ("latest", {"timestamp_strategy": "latest"}),
    "failOnDataLoss": ("false", {"on_data_loss": "earliest"}),
    "onDataLoss": ("skip", {"on_data_loss": "skip"}),
    "minPartitions": ("9", {"min_partitions": 9}),
    "maxPartitions": ("9", {"max_partitions": 9}),
    "maxRecordsPerPartition": ("9", {"max_records": 9}),
    "joinSmallPartitions": ("false", {"join_down_to": 0}),
    "includeHeaders": ("true", {"include_headers": True}),
    "kafkaConsumer.pollTimeoutMs": ("9", {"poll_timeout_ms": 9}),
    "fetchOffset.numRetries": ("9", {"retries": 9, "outage_timeout_ms": 0}),
    "fetchOffset.retryIntervalMs": ("9", {"retry_interval_ms": 9}),
    "partition.metadata.cache.ttl.ms": ("9", {"metadata_ttl_ms": 9}),
    "emit": ("ranges", {"emit": "ranges"}),
    "groupIdPrefix": ("p", {"client": {**DEFAULTS["client"], "client.id": "p"}}),
    "kafka.group.id": ("g", {"client": {**DEFAULTS["client"], "client.id": "g"}}),
    "kafka.max.partition.fetch.bytes": ("9", {"client": {**DEFAULTS["client"], "max.partition.fetch.bytes": "9"}}),
    "endingOffsets": (TIMES, {"ending": AT}),
    "endingTimestamp": ("9", {"ending_timestamps_ms": 9}),
    "endingOffsetsByTimestamp": (TIMES, {"ending_timestamps_ms": AT}),
}


@pytest.mark.parametrize("streaming", [False, True])
def test_each_option_changes_its_own_from_the_connectors_defaults(streaming: bool) -> None:
    defaults = {**DEFAULTS, "starting": "latest", "outage_timeout_ms": 600_000} if streaming else DEFAULTS
    plain = source_options(READ, streaming=streaming)
    assert asdict(plain) == defaults
    assert pickle.loads(pickle.dumps(plain)) == plain
    assert asdict(options.SourceOptions({})) == {**DEFAULTS, "client": {}, "subscribe": ()}
    names = list(OPTIONS)
    for name in names[: names.index("endingOffsets")] if streaming else names[names.index("startingOffsets") :]:
        value, changes = OPTIONS[name]
        assert asdict(source_options({**READ, name: value}, streaming=streaming)) == {**defaults, **changes}, name


def test_options_of_decoding_and_of_topics_stay_what_they_are() -> None:
    csv = {**READ, "value.format": "csv", "value.schema": "a INT", "value.delimiter": "tab", "mode": "rowwise", "deadLetterTopic": "d"}
    found = source_options(csv, streaming=False)
    assert (found.value_format, found.value_schema, found.delimiter, found.mode) == ("csv", "a INT", "\t", "rowwise")
    message = {**READ, "value.format": "protobuf", "value.schema": "f", "value.message": "M", "value.framing": "confluent"}
    found = source_options(message, streaming=True)
    assert (found.value_schema, found.value_message, found.framed) == ("f", "M", True)
    registry = {"schema.registry.url": "http://r", "schema.registry.subject": "s", "schema.registry.proxy": "http://p"}
    found = source_options({**READ, "value.format": "avro", **registry, "onUnusableSchema": "corrupt"}, streaming=True)
    assert (found.registry_url, found.registry_subject, found.registry_settings) == ("http://r", "s", {"proxy": "http://p"})
    assert (found.on_unusable_schema, found.framed, found.dead_letter_client) == ("corrupt", True, {})
    assigned = source_options({**SERVERS, "assign": '{"u":[1],"t":[1,0]}'}, streaming=False)
    pattern = source_options({**SERVERS, "subscribePattern": "t.*"}, streaming=False)
    both = source_options({**SERVERS, "subscribe": "t, u,"}, streaming=False)
    names = [(topic, partition) for topic in ("t", "ta", "u") for partition in (0, 1)]
    assert [[at for at in names if each.names(*at)] for each in (assigned, pattern, both)] == [
        [("t", 0), ("t", 1), ("u", 1)],
        names[:4],
        [*names[:2], *names[4:]],
    ]
    said = [each.description for each in (assigned, pattern, both)]
    assert said == ["Assign[t-0, t-1, u-1]", "SubscribePattern[t.*]", "Subscribe[t, u]"]


@each_row(
    ("given", "limits"),
    [
        ({}, {"max.request.size": 32 << 20, "buffer.memory": 64 << 20}),
        ({"kafka.max.partition.fetch.bytes": str(40 << 20)}, {"max.request.size": 41 << 20, "buffer.memory": 82 << 20}),
        ({"deadLetter.kafka.max.request.size": str(20 << 20)}, {"max.request.size": 20 << 20, "buffer.memory": 40 << 20}),
        ({"deadLetter.kafka.max.request.size": "5"}, {"max.request.size": 5, "buffer.memory": 32 << 20}),
    ],
)
def test_the_producer_of_dead_letters_has_the_clients_settings_of_the_read(given: dict[str, str], limits: dict[str, int]) -> None:
    letters = {**READ, "value.format": "json", "deadLetterTopic": "d", "kafka.request.timeout.ms": "5000", **given}
    shared = {"bootstrap.servers": "broker:9092", "client.id": "spark-kafkacore", "request.timeout.ms": "5000"}
    sizes = {name: str(size) for name, size in limits.items()}
    assert source_options(letters, streaming=False).dead_letter_client == shared | sizes
    elsewhere = source_options({**letters, "deadLetter.kafka.bootstrap.servers": "b:1"}, streaming=True)
    assert elsewhere.dead_letter_client == {"bootstrap.servers": "b:1", **sizes}


def test_names_may_be_written_in_any_case() -> None:
    options = source_options({**READ, "STARTINGOFFSETS": "latest", "maxoffsetspertrigger": "5"}, streaming=True)
    assert (options.starting, options.max_offsets) == ("latest", 5)


@each_row(
    ("given", "streaming", "says"),
    [
        ({"subscribe": "t"}, False, "option kafka.bootstrap.servers is missing"),
        (SERVERS, False, "exactly one of the options subscribe, subscribePattern, assign is needed, got none"),
        ({**READ, "assign": '{"t":[0]}'}, False, "got assign|got subscribe and assign"),
        ({**READ, "startingOfsets": "latest"}, True, "unknown option 'startingOfsets'; did you mean startingOffsets"),
        ({**READ, "kafka.fetch.max.byte": "1"}, True, "did you mean kafka.fetch.max.bytes"),
        ({**READ, "value.format": "json", "deadLetterTopic": "d", "deadLetter.kafka.acks": "0"}, True, "must be 1 or all"),
        ({**READ, "deadLetter.compression.type": "lz4"}, True, "did you mean deadLetter.kafka.compression.type"),
        ({**OAUTH, "kafka.sasl.oauthbearer.token.provider": "os:getcw"}, True, r"module os has no getcw; did you mean getcwd\?$"),
        ({**READ, "kafka.auto.offset.reset": "latest"}, True, "startingOffsets says where a query begins"),
        ({**READ, "kafka.value.deserializer": "x"}, True, "value.format"),
        ({**READ, "kafka.key.deserializer": "x"}, True, "keys are read as bytes: cast the column key$"),
        ({**READ, "joinSmallPartitions": "0"}, True, "joinSmallPartitions must be true, false, or the least number of tasks, not '0'"),
        ({**READ, "kafka.ssl.truststore.location": "x.jks"}, True, "no effect with security_protocol=PLAINTEXT"),
        ({**TLS, "kafka.ssl.truststore.location": "x.jks", "kafka.ssl.truststore.type": "JKS"}, True, "keytool -importkeystore"),
        ({**READ, "startingOffsets": "latest"}, False, "startingOffsets can't be latest in a batch read"),
        ({**READ, "startingOffsets": '{"t":{"0":-2,"1":-1}}'}, False, r"has -1 for t-1: -1 \(latest\) cannot start a batch"),
        ({**READ, "value.format": "json", "columnNameOfCorruptRecord": "bad"}, False, "columnNameOfCorruptRecord is not known.* _corrupt "),
        ({**READ, "endingOffsets": "earliest"}, False, "endingOffsets can't be earliest in a batch read"),
        ({**READ, "startingOffsets": '{"t":{"0":-3}}'}, True, "offsets are at least 0, or -1 for latest"),
        ({**READ, "endingOffsets": "latest"}, True, "option endingOffsets has no effect in a streaming read"),
        ({**READ, "maxOffsetsPerTrigger": "5"}, False, "option maxOffsetsPerTrigger has no effect in a batch read"),
        ({**READ, "failOnDataLoss": "maybe"}, False, "option failOnDataLoss must be true or false, not 'maybe'"),
        ({**READ, "failOnDataLoss": "true", "onDataLoss": "skip"}, True, "contradict each other"),
        ({**READ, "minPartitions": "0"}, False, "option minPartitions must be at least 1"),
        ({**READ, "provider": "kafkacore"}, False, r"a table cannot be stored .CREATE TABLE.*TEMPORARY VIEW name USING kafkacore OPTIONS"),
        ({"owner": "me"}, False, r"a table cannot be stored"),
        ({}, False, r"bootstrap.servers is missing.*A stored table has no options.*CREATE TEMPORARY VIEW"),
        ({**READ, "maxPartitions": "0"}, True, "option maxPartitions must be at least 1"),
        ({**READ, "maxPartitions": "4", "minPartitions": "5"}, False, r"minPartitions \(5\) must not exceed maxPartitions \(4\)"),
        ({**READ, "maxPartitions": "4", "joinSmallPartitions": "5"}, True, r"joinSmallPartitions \(5\) must not exceed maxPartitions"),
        ({**READ, "maxPartitions": "4", "maxRecordsPerPartition": "9"}, False, "maxPartitions and maxRecordsPerPartition exclude"),
        ({**READ, "minOffsetsPerTrigger": "0"}, True, "option minOffsetsPerTrigger must be at least 1"),
        ({**READ, "maxOffsetsPerTrigger": "0"}, True, "option maxOffsetsPerTrigger must be at least 1"),
        ({**READ, "minPartitions": "many"}, False, "option minPartitions must be a whole number"),
        ({**READ, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, True, "must not exceed"),
        ({**READ, "maxTriggerDelay": "5m"}, True, "no effect without minOffsetsPerTrigger"),
        ({**READ, "maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, True, "must be a duration"),
        ({**SERVERS, "subscribePattern": "("}, False, "not a regular expression"),
        ({**SERVERS, "assign": '{"t":0}'}, False, "expected JSON like"),
        ({**READ, "value.format": "xml"}, False, "must be one of binary, string, json"),
        ({**READ, "value.format": "avro"}, False, "needs value.schema"),
        ({**READ, "mode": "failfast"}, False, "option mode has no effect with value.format=binary"),
        ({**READ, "value.format": "csv", "schema.registry.url": "http://r"}, False, "has no effect with value.format=csv"),
        ({**READ, "value.format": "json", "value.delimiter": ";"}, False, "option value.delimiter has no effect with value.format=json"),
        ({**READ, "value.format": "csv", "value.delimiter": ";;"}, False, "option value.delimiter must be one ASCII character"),
        ({**READ, "value.format": "csv", "value.framing": "confluent"}, False, "option value.framing has no effect with value.format=csv"),
        ({**READ, "value.format": "json", "includeHeaders": "true"}, False, "name the column _headers"),
        ({**READ, "value.format": "json", "mode": "failfast", "deadLetterTopic": "d"}, False, "no effect with mode=failfast"),
        ({**READ, "value.format": "json", "onUnusableSchema": "fail"}, False, "no effect with value.format=json"),
        ({**READ, "value.format": "avro", "value.schema": "{}", "onUnusableSchema": "fail"}, False, "without schema.registry.url"),
        ({**READ, "value.format": "avro", "onUnusableSchema": "no"}, True, "onUnusableSchema must be one of fail, corrupt"),
        ({**READ, "value.format": "avro", "schema.registry.url": "http://r", "value.schema": "{}"}, False, "exclude each other"),
        ({**READ, "value.format": "avro", "schema.registry.url": "http://r", "value.framing": "plain"}, False, "contradicts it"),
        ({**READ, "value.format": "avro", "value.schema": "{}", "schema.registry.subject": "s"}, False, "without schema.registry.url"),
        ({**READ, "value.format": "protobuf", "schema.registry.url": "http://r", "value.message": "M"}, False, "value names its message"),
        ({**READ, "value.format": "protobuf", "value.schema": "f"}, False, "needs value.schema .* with value.message"),
        ({**READ, "deliveryGuarantee": "at_least_once"}, False, "has no effect in a read: leave it out$"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], streaming: bool, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        source_options(given, streaming=streaming)


def test_dead_letters_are_dropped_from_the_rows_unless_a_mode_says_otherwise() -> None:
    given = {**READ, "value.format": "json"}
    modes = [{}, {"deadLetterTopic": "d"}, {"deadLetterTopic": "d", "mode": "permissive"}]
    assert [source_options({**given, **each}, streaming=False).mode for each in modes] == ["permissive", "dropmalformed", "permissive"]


def test_the_registrys_secrets_stay_references_and_are_not_shown() -> None:
    url = "http://me:hush@r"
    given = {**READ, "value.format": "avro", "schema.registry.url": url, "schema.registry.basic.auth.user.info": "secret://env/NOWHERE"}
    options = source_options(given, streaming=False)
    assert options.registry_settings == {"basic.auth.user.info": "secret://env/NOWHERE"} and options.framed
    assert "hush" not in repr(options) and "NOWHERE" not in repr(options)


def test_exactly_once_is_refused_until_it_exists() -> None:
    for wrong in ("exactly_once", "exactly-once"):
        with pytest.raises(ConfigError, match=f"must be at_least_once, not '{wrong}'; exactly_once is not implemented yet"):
            sink_options({**SERVERS, "topic": "t", "deliveryGuarantee": wrong})
    with pytest.raises(ConfigError, match="transactions are not written yet"):
        sink_options({**SERVERS, "topic": "t", "kafka.transactional.id": "x"})


def test_secrets_stay_references_until_they_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    options = source_options({**TLS, "kafka.ssl.certfile": "c.pem", "kafka.ssl.password": "secret://env/KEY_PASSWORD"}, streaming=False)
    assert options.client["ssl.password"] == "secret://env/KEY_PASSWORD"
    with pytest.raises(ConfigError, match="KEY_PASSWORD is not set in this process; it must be set before the Spark session starts"):
        secrets.resolve_all(options.client)
    monkeypatch.setenv("KEY_PASSWORD", "hush")
    assert secrets.resolve_all(options.client)["ssl.password"] == "hush"
    assert "hush" not in repr(options)


def test_secrets_come_from_files_too(tmp_path: object) -> None:
    path = f"{tmp_path}/secret"
    with open(path, "w", encoding="utf-8") as file:
        file.write("hush\n")
    assert secrets.resolve("kafka.ssl.password", f"secret://file{path}") == "hush"
    with pytest.raises(ConfigError, match="cannot be read in this process"):
        secrets.resolve("kafka.ssl.password", f"secret://file{path}x")
    with pytest.raises(ConfigError, match="a secret is secret://env/NAME"):
        secrets.resolve("kafka.ssl.password", "secret://vault/x")


@each_row(
    ("given", "partitioner", "ignore_keys"),
    [
        ({}, None, None),
        ({"partitioner": "murmur2"}, "murmur2", None),
        ({"partitioner": "sticky"}, None, "true"),
        ({"partitioner": "round_robin"}, "round_robin", None),
        ({"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}, "round_robin", None),
        ({"kafka.partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner"}, "murmur2", None),
        ({"kafka.partitioner.class": "org.apache.kafka.clients.producer.UniformStickyPartitioner", "partitioner": "sticky"}, None, "true"),
    ],
)
def test_partitioners_of_the_sink(given: dict[str, str], partitioner: str | None, ignore_keys: str | None) -> None:
    client = sink_options({**SERVERS, **given}).client
    assert (client.get("partitioner"), client.get("partitioner.ignore.keys")) == (partitioner, ignore_keys)


@each_row(
    ("given", "says"),
    [
        ({"kafka.partitioner.class": "com.acme.Hot"}, "com.acme.Hot cannot run here"),
        ({"kafka.partitioner.class": "RoundRobinPartitioner", "partitioner": "sticky"}, "contradict each other"),
        ({"partitioner": "sticky", "kafka.partitioner": "round_robin"}, "exclude each other"),
        ({"partitioner": "hot"}, "must be one of murmur2, sticky, round_robin"),
    ],
)
def test_partitioners_that_cannot_be(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        sink_options({**SERVERS, **given})


@each_row(
    ("given", "says"),
    [
        ({"topic": "t"}, "option topic has no effect in a read: leave it out; a read takes subscribe, subscribePattern or assign for that"),
        ({"topics": "t"}, "unknown option 'topics'; a read takes subscribe"),
        ({"path": "t"}, "unknown option 'path'; a read takes subscribe"),
        ({"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers"),
        ({"fetch.max.bytes": "1"}, "did you mean kafka.fetch.max.bytes"),
    ],
)
def test_what_was_meant_by_a_read_is_said(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        source_options({**SERVERS, **given}, streaming=False)


def test_what_was_meant_elsewhere_is_said() -> None:
    with pytest.raises(ConfigError, match="option subscribe has no effect in a write: leave it out; a write takes topic for that"):
        sink_options({**SERVERS, "subscribe": "t"})
    with pytest.raises(ConfigError, match=r"did you mean kafka\.linger\.ms"):
        sink_options({**SERVERS, "kafka.linger": "5"})
    with pytest.raises(ConfigError, match=r"kafka.bootstrap.servers is missing \(not kafka.bootstrap.server\)"):
        source_options({"kafka.bootstrap.server": "a:1", "subscribe": "t"}, streaming=True)


def test_a_write_takes_no_path() -> None:
    with pytest.raises(ConfigError, match=r"option path, which save\(\) .* has no effect in a write; a write takes topic for that"):
        sink_options({**SERVERS, "topic": "t", "path": "elsewhere"})


OF_ANY_JOB = {
    "kafka.session.timeout.ms": "30000",
    "kafka.heartbeat.interval.ms": "3000",
    "kafka.max.poll.interval.ms": "300000",
    "kafka.max.poll.records": "500",
    "kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
    "kafka.auto.commit.interval.ms": "100",
    "kafka.group.instance.id": "a",
    "kafka.client.dns.lookup": "use_all_dns_ips",
    "kafka.ssl.protocol": "TLS",
    "kafka.ssl.enabled.protocols": "TLSv1.2",
    "kafka.metric.reporters": "x",
    "kafka.exclude.internal.topics": "true",
    "kafka.security.providers": "x",
    "kafka.linger.ms": "5",  # of producers: one set of settings for source and sink
    "kafka.isolation.level": "read_committed",  # of consumers
    "kafka.transaction.timeout.ms": "60000",
}


def test_settings_of_kafka_without_effect_here_are_one_warning(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_warned", set())
    for _ in range(3):  # Spark reads the options of a query many times
        read = source_options({**READ, **OF_ANY_JOB}, streaming=True)
    [warning] = caplog.messages
    ignored = {name for name in OF_ANY_JOB if name != "kafka.isolation.level"}
    assert warning.startswith("settings that have no effect in a read are ignored: kafka.auto.commit.interval.ms, kafka.client.dns")
    assert set(warning.partition("ignored: ")[2].split(", ")) == ignored and "not implemented" not in warning
    assert read.client == source_options({**READ, "kafka.isolation.level": "read_committed"}, streaming=True).client
    assert len(caplog.messages) == 1
    write = sink_options({**SERVERS, "topic": "t", "kafka.group.id": "g", **OF_ANY_JOB})
    ignored = {"kafka.group.id", *(name for name in OF_ANY_JOB if name != "kafka.linger.ms")}
    assert set(caplog.messages[1].partition("in a write are ignored: ")[2].split(", ")) == ignored
    assert write.client["linger.ms"] == "5" and "isolation.level" not in write.client
    ConsumerConfig.from_user(read.client)


@each_row("name", sorted(config_base._OF_KINIT))
def test_settings_of_kinit_are_refused_with_what_renews_tickets(name: str) -> None:
    setting = {f"kafka.{name.replace('_', '.')}": "1"}
    for read_or_write in (lambda: source_options({**READ, **setting}, streaming=True), lambda: sink_options({**SERVERS, **setting})):
        with pytest.raises(ConfigError, match="cannot be set: no command is run for Kerberos tickets"):
            read_or_write()


def test_the_sink_gathers_more_than_a_producer_unless_told() -> None:
    defaults = {"client.id": "spark-kafkacore", "batch.size": "131072", "send.many.batch.size": "0"}
    assert asdict(sink_options(SERVERS)) == {
        "client": {"bootstrap.servers": "broker:9092", **defaults},
        "topic": None,
        "guarantee": "at_least_once",
    }
    assert sink_options({**SERVERS, "kafka.batch.size": "16384"}).client["batch.size"] == "16384"


def test_options_from_python() -> None:
    numbers = {"includeHeaders": True, "minPartitions": 4, "startingOffsets": {"t": {"0": 5}}}
    assert option_text({"kafka_bootstrap_servers": "b:1", **numbers, "value.format": "json"}) == {
        "kafka.bootstrap.servers": "b:1",
        "includeHeaders": "true",
        "minPartitions": "4",
        "startingOffsets": '{"t": {"0": 5}}',
        "value.format": "json",
    }
    with pytest.raises(ConfigError, match=r"option value.Format is given twice"):
        option_text({"value_format": "json", "value.Format": "csv"})
    with pytest.raises(ConfigError, match=r"option subscribe must be text, .* not list"):
        option_text({"subscribe": ["a", "b"]})


def test_no_setting_shows_in_a_text() -> None:
    read = source_options({**READ, "kafka.client.id": "hush-1"}, streaming=False)
    assert "hush" not in repr(read) + repr(sink_options({**SERVERS, "kafka.client.id": "hush-2"}))


def test_javas_names_of_tls_are_understood() -> None:
    stores = {f"kafka.ssl.{name}store.type": "PEM" for name in ("trust", "key")}
    stores |= {f"kafka.ssl.{name}store.location": f"/{name}.pem" for name in ("trust", "key")}
    given = {**TLS, **stores, "kafka.ssl.key.password": "secret://env/P"}
    client = source_options({**given, "kafka.ssl.endpoint.identification.algorithm": ""}, streaming=False).client
    assert {name: client[name] for name in ("ssl.truststore.location", "ssl.keystore.location", "ssl.password", "ssl.check.hostname")} == {
        "ssl.truststore.location": "/trust.pem",
        "ssl.keystore.location": "/key.pem",
        "ssl.password": "secret://env/P",
        "ssl.check.hostname": "false",
    }
    text = {"kafka.ssl.keystore.certificate.chain": "secret://file/c", "kafka.ssl.keystore.key": "secret://file/k"}
    assert source_options({**TLS, **text}, streaming=False).client["ssl.keystore.key"] == "secret://file/k"
    with pytest.raises(ConfigError, match="must be https or empty"):
        source_options({**READ, "kafka.ssl.endpoint.identification.algorithm": "ldap"}, streaming=False)


# ---- SASL


def test_a_jaas_line_is_taken_over_as_it_is() -> None:
    line = SCRAM + 'username="alice" password="a;=\\"b";'
    options = source_options({**SASL, "kafka.sasl.jaas.config": line}, streaming=False)
    settings = ConsumerConfig.from_user(secrets.resolve_all(options.client)).sasl_settings()
    assert settings is not None
    assert (settings.mechanism, settings.username, settings.password) == ("SCRAM-SHA-512", "alice", 'a;="b')
    assert sink_options({**SERVERS, **SASL_ONLY, "kafka.sasl.jaas.config": line}).client["sasl.jaas.config"] == line


SASL_ONLY = {name: value for name, value in SASL.items() if name not in READ}


@pytest.mark.parametrize("hush", ["hush", 'h"u\\s=h; x', "secret://not/resolved/again"])
def test_secrets_within_a_jaas_line(hush: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = SCRAM + 'username="alice" password="secret://env/PASSWORD";'
    options = source_options({**SASL, "kafka.sasl.jaas.config": line}, streaming=False)
    with pytest.raises(ConfigError, match=r"option sasl.jaas.config: password: the environment variable PASSWORD is not set"):
        secrets.resolve_all(options.client)
    monkeypatch.setenv("PASSWORD", hush)
    settings = ConsumerConfig.from_user(secrets.resolve_all(options.client)).sasl_settings()
    assert settings is not None
    assert settings.password == hush
    assert hush not in repr(options) + repr(settings)
    assert options.client["sasl.jaas.config"] == line


def test_a_whole_jaas_line_by_reference(tmp_path: Path) -> None:
    (tmp_path / "jaas").write_text(SCRAM + 'username="alice" password="hush";\n')
    options = source_options({**SASL, "kafka.sasl.jaas.config": f"secret://file{tmp_path}/jaas"}, streaming=True)
    settings = ConsumerConfig.from_user(secrets.resolve_all(options.client)).sasl_settings()
    assert settings is not None
    assert settings.password == "hush"


def test_name_and_password_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**SASL, "kafka.sasl.username": "alice", "kafka.sasl.password": "secret://env/PASSWORD"}
    options = source_options(given, streaming=False)
    monkeypatch.setenv("PASSWORD", "hush")
    assert secrets.resolve_all(options.client)["sasl.password"] == "hush"


@each_row(
    ("given", "says"),
    [
        ({"kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"}, "IAMLoginModule is Java code that cannot"),
        ({"kafka.sasl.jaas.config": SCRAM + "username=alice password=hush"}, "and a semicolon"),
        ({"kafka.sasl.client.callback.handler.class": "a.B"}, r"Java code.*token\.provider=module:function"),
        ({"kafka.sasl.mechanism": "NTLM", "kafka.sasl.jaas.config": "x required;"}, "not 'NTLM'"),
        ({"kafka.sasl.kerberos.service.name": "kafka"}, "sasl_kerberos_service_name has no effect with sasl_mechanism=SCRAM"),
        ({}, "needs sasl_username, or sasl_jaas_config"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "sasl_mechanism has no effect with security_protocol=PLAINTEXT"),
    ],
)
def test_sasl_that_cannot_be_is_refused_before_the_query_starts(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        source_options({**SASL, **given}, streaming=True)
    assert "hush" not in str(caught.value)


@each_row(
    ("names", "least"),
    [
        ("startingTimestamp endingTimestamp fetchOffset.numRetries fetchOffset.retryIntervalMs partition.metadata.cache.ttl.ms", 0),
        ("minPartitions maxPartitions maxRecordsPerPartition kafkaConsumer.pollTimeoutMs", 1),
        ("maxOffsetsPerTrigger minOffsetsPerTrigger", 1),
        ("fetchOffset.outageTimeoutMs", 0),
    ],
)
def test_the_least_that_a_number_may_be(names: str, least: int) -> None:
    for name in names.split():
        streaming = "Trigger" in name or "outage" in name
        source_options({**READ, name: str(least)}, streaming=streaming)
        with pytest.raises(ConfigError, match=f"^option {name} must be at least {least}, not {least - 1}$"):
            source_options({**READ, name: str(least - 1)}, streaming=streaming)


@each_row(
    ("name", "choices"),
    [
        ("startingOffsetsByTimestampStrategy", "error, latest"),
        ("onDataLoss", "fail, skip, earliest"),
        ("value.format", ", ".join(options.READ_FORMATS)),
        ("value.framing", "plain, confluent"),
        ("mode", ", ".join(options.CORRUPT_MODES)),
        ("onUnusableSchema", "fail, corrupt"),
        ("emit", "rows, ranges"),
    ],
)
def test_the_words_that_an_option_takes(name: str, choices: str) -> None:
    with pytest.raises(ConfigError, match=f"^option {name} must be one of {choices}, not 'wrong'$"):
        source_options({**READ, name: "wrong"}, streaming=False)


@each_row(
    ("text", "ms"),
    [("7", 7), (" 500ms", 500), ("30 s", 30_000), ("15m", 900_000), ("2min", 120_000), ("2H", 7_200_000), ("1d", 86_400_000)],
)
def test_durations_have_a_unit(text: str, ms: int) -> None:
    assert source_options({**READ, "maxTriggerDelay": text, "minOffsetsPerTrigger": "1"}, streaming=True).max_delay_ms == ms
