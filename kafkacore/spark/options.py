"""The options of source and sink, read once and checked before a query starts. No pyspark here, no I/O.

Names and defaults are those of Spark's own Kafka source; Spark hands them over in lower case. A name that is not listed is refused with the
nearest known one. Every `kafka.*` option is a client setting under Kafka's name, every `deadLetter.kafka.*` one of the producer that sends
dead letters.

Source: org.apache.spark.sql.kafka010.KafkaSourceProvider.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kafkacore.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafkacore.errors import ConfigError
from kafkacore.spark import offsets, secrets
from kafkacore.spark.offsets import EARLIEST, LATEST, Partition

log = logging.getLogger(__name__)

READ_FORMATS = ("binary", "string", "json", "csv", "avro", "protobuf")
# Rows come ten thousand at a time: Kafka's default of 16 KiB costs twice the CPU per record; 256 KiB would cost the broker a third more.
# kafka.batch.size is the size of its batches, as it always was in Spark: send_many has no other.
SINK_DEFAULTS = {"client.id": "spark-kafkacore", "batch.size": "131072", "send.many.batch.size": "0"}
CORRUPT_MODES = ("permissive", "rowwise", "dropmalformed", "failfast")
FORBIDDEN = {
    "auto.offset.reset": "startingOffsets says where a query begins",
    "key.deserializer": "keys are read as bytes: cast the column key",
    "value.deserializer": "values are read as bytes; cast them, or use value.format",
    "key.serializer": "keys are written as the bytes of a string or binary column",
    "value.serializer": "values are written as the bytes of a string or binary column",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets; commitOffsetsToGroup shows them to Kafka's tools",
    "interceptor.classes": "records do not pass through Python objects",
    "transactional.id": "transactions are not written yet: leave deliveryGuarantee at at_least_once",
}
WITHOUT_EFFECT = frozenset(
    {
        *("auto.commit.interval.ms", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms"),
        *("internal.leave.group.on.close", "max.poll.interval.ms", "max.poll.records", "partition.assignment.strategy"),
        *("session.timeout.ms", "auto.include.jmx.reporter", "enable.metrics.push", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("client.dns.lookup", "exclude.internal.topics", "metadata.max.idle.ms", "transaction.timeout.ms"),
        *("security.providers", "ssl.enabled.protocols", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation"),
        *("ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"),
    }
)
"""Settings of Kafka's clients that change nothing here: no group is joined, nothing polled, there are no transactions, TLS is Python's."""


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise ConfigError(f"option {name} is empty")
    return value


def _character(name: str, value: str) -> str:
    character = {"\\t": "\t", "tab": "\t"}.get(value, value)
    if len(character) != 1 or not character.isascii() or character in '"\r\n':
        raise ConfigError(f"option {name} must be one ASCII character other than a quote or a line end, not {value!r}")
    return character


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"option {name} must be true or false, not {value!r}")
    return value.lower() == "true"


def _count(low: int) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(f"option {name} must be a whole number, not {value!r}") from None
        if number < low:
            raise ConfigError(f"option {name} must be at least {low}, not {number}")
        return number

    return read


def _joining(name: str, value: str) -> int | None:
    """How many tasks joining leaves at least; 0 for no joining, None for the session's default parallelism."""
    word = value.strip().lower()
    if word in ("true", "false"):
        return None if word == "true" else 0
    try:
        return _count(1)(name, word)
    except ConfigError:
        raise ConfigError(f"option {name} must be true, false, or the least number of tasks, not {value!r}") from None


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(name: str, value: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*", value.lower())
    if match is None:
        raise ConfigError(f"option {name} must be a duration such as 15m, 30s or 500ms, not {value!r}")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _choice(*choices: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if value.lower() not in choices:
            raise ConfigError(f"option {name} must be one of {', '.join(choices)}, not {value!r}")
        return value.lower()

    return read


def _guarantee(name: str, value: str) -> str:
    if value.lower() != "at_least_once":
        raise ConfigError(f"option {name} must be at_least_once, not {value!r}; exactly_once is not implemented yet")
    return "at_least_once"


def _offsets(name: str, value: str) -> str | dict[Partition, int]:
    word = value.strip().lower()
    return word if word in ("earliest", "latest") else offsets.from_json(value, name)


def _timestamps(name: str, value: str) -> dict[Partition, int]:
    found = offsets.from_json(value, name)
    if any(each < 0 for each in found.values()):
        raise ConfigError(f"option {name}: timestamps are milliseconds since 1970 and not negative, got {value}")
    return found


def _names(name: str, value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        raise ConfigError(f"option {name} names no topic")
    return found


def _assigned(name: str, value: str) -> tuple[Partition, ...]:
    try:
        data = json.loads(value)
        found = tuple(sorted((str(topic), int(partition)) for topic, partitions in data.items() for partition in partitions))
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f'option {name}: expected JSON like {{"topicA":[0,1],"topicB":[2]}}, got {value}') from None
    if not found:
        raise ConfigError(f"option {name} names no partition")
    return found


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(f"option {name}: {value!r} is not a regular expression of Python's re: {error}") from None
    return value


REGISTRY_SETTINGS = (
    "basic.auth.user.info",
    "bearer.auth.token",
    "bearer.auth.issuer.endpoint.url",
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.scope",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "proxy",
    "timeout.ms",
    "allow.http",
)
"""How a schema registry is asked; `decode.registry.options_of` takes them, and this file does not load that."""
Reader = Callable[[str, str], Any]
Where = Literal["batch", "stream", "sink"]
_READ = ("batch", "stream")

_KNOWN: dict[str, tuple[Reader, tuple[str, ...]]] = {
    "assign": (_assigned, _READ),
    "subscribe": (_names, _READ),
    "subscribePattern": (_pattern, _READ),
    "startingOffsets": (_offsets, _READ),
    "startingTimestamp": (_count(0), _READ),
    "startingOffsetsByTimestamp": (_timestamps, _READ),
    "startingOffsetsByTimestampStrategy": (_choice("error", "latest"), _READ),
    "endingOffsets": (_offsets, ("batch",)),
    "endingTimestamp": (_count(0), ("batch",)),
    "endingOffsetsByTimestamp": (_timestamps, ("batch",)),
    "failOnDataLoss": (_flag, _READ),
    "checkTopicIds": (_flag, ("stream",)),
    "onDataLoss": (_choice("fail", "skip", "earliest"), _READ),
    "maxOffsetsPerTrigger": (_count(1), ("stream",)),
    "minOffsetsPerTrigger": (_count(1), ("stream",)),
    "maxTriggerDelay": (_duration_ms, ("stream",)),
    "minPartitions": (_count(1), _READ),
    "maxPartitions": (_count(1), _READ),
    "maxRecordsPerPartition": (_count(1), _READ),
    "joinSmallPartitions": (_joining, _READ),
    "groupIdPrefix": (_text, _READ),
    "includeHeaders": (_flag, _READ),
    "kafkaConsumer.pollTimeoutMs": (_count(1), _READ),
    "fetchOffset.numRetries": (_count(0), _READ),
    "fetchOffset.retryIntervalMs": (_count(0), _READ),
    "fetchOffset.outageTimeoutMs": (_count(0), ("stream",)),
    "partition.metadata.cache.ttl.ms": (_count(0), _READ),
    "commitOffsetsToGroup": (_text, ("stream",)),
    "value.format": (_choice(*READ_FORMATS), _READ),
    "value.schema": (_text, _READ),
    "value.message": (_text, _READ),
    "value.delimiter": (_character, _READ),
    "value.framing": (_choice("plain", "confluent"), _READ),
    "schema.registry.url": (_text, _READ),
    "schema.registry.subject": (_text, _READ),
    **dict.fromkeys((f"schema.registry.{name}" for name in REGISTRY_SETTINGS), (_text, _READ)),
    "mode": (_choice(*CORRUPT_MODES), _READ),
    "deadLetterTopic": (_text, _READ),
    "onUnusableSchema": (_choice("fail", "corrupt"), _READ),
    "emit": (_choice("rows", "ranges"), _READ),
    "topic": (_text, ("sink",)),
    "partitioner": (_choice("murmur2", "sticky", "round_robin"), ("sink",)),
    "deliveryGuarantee": (_guarantee, ("sink",)),
}
_BY_LOWER = {name.lower(): name for name in _KNOWN}
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
_OF_TOPICS = {"topic", "topics", "path", "subscribe", "subscribePattern", "assign"}
_OF_CLIENTS = {*ConsumerConfig.names(), *ProducerConfig.names()}
_OF_BOTH = {*ClientConfig.names(), "allow_auto_create_topics"}
OUTAGE_MS = 600_000
NO_TABLE = (
    "(CREATE TABLE ... USING kafkacore): Spark hands its options to no source in Python. In SQL a topic is"
    " CREATE TEMPORARY VIEW name USING kafkacore OPTIONS (`kafka.bootstrap.servers` 'host:port', subscribe 'topic')"
)
LETTERS = "deadLetter.kafka."
LETTER_BYTES = 32 << 20
LETTER_HEADERS_BYTES = 1 << 20


def option_text(given: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark keeps them, from Python values; in names underscores are dots.

    Raises:
        ConfigError: a value that is neither text nor number nor boolean, or a name given twice.
    """
    out: dict[str, str] = {}
    for written, value in given.items():
        name = written.replace("_", ".")
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, Mapping):
            value = json.dumps(value)
        elif not isinstance(value, (str, int, float)):
            raise ConfigError(f"option {name} must be text, a number, a boolean or, for offsets, a dict, not {type(value).__name__}")
        if name.lower() in map(str.lower, out):
            raise ConfigError(f"option {name} is given twice")
        out[name] = str(value)
    return out


def _read_all(given: Mapping[str, str], where: Where) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """The options of a source or sink, the client settings among them, and those of the dead letters' producer.

    Raises:
        ConfigError: an option that is unknown, has no effect here, or has a value that cannot be read.
    """
    if not {"provider", "owner"}.isdisjoint(map(str.lower, given)):
        raise ConfigError(f"a table cannot be stored {NO_TABLE}")
    found: dict[str, Any] = {}
    client: dict[str, str] = {}
    letters: dict[str, str] = {}
    for key, value in given.items():
        lower = key.lower()
        if lower.startswith("kafka.") and lower not in _BY_LOWER:
            client[lower.removeprefix("kafka.")] = value
            continue
        if lower.startswith(LETTERS.lower()):
            if where == "sink":
                raise ConfigError(f"option {key} has no effect in a write: leave it out")
            letters[lower.removeprefix(LETTERS.lower())] = value
            continue
        name = _BY_LOWER.get(lower)
        if name is None:
            if lower in _SPARKS_OWN:
                continue
            if lower == "path" and where == "sink":
                raise ConfigError(f"option path, which save() and start() may set, has no effect in a write{_topics_by(lower, where)}")
            if lower == "columnnameofcorruptrecord":
                raise ConfigError(f"option {key} is not known: name the column _corrupt (binary) in the schema, and it holds such values")
            raise ConfigError(f"unknown option {key!r}{_meant(lower, where)}")
        reader, places = _KNOWN[name]
        if where not in places:
            raise ConfigError(f"option {name} has no effect in {_place(where, places)}: leave it out{_topics_by(name, where)}")
        found[name] = reader(name, value)
    for prefix, settings in (("kafka.", client), (LETTERS, letters)):
        for name in settings:
            if name in FORBIDDEN:
                raise ConfigError(f"option {prefix}{name} is not supported: {FORBIDDEN[name]}")
    if "bootstrap.servers" not in client:
        like = difflib.get_close_matches("bootstrap.servers", client, n=1, cutoff=0.8)
        hint = f" (not kafka.{like[0]})" if like else ""
        stored = "" if given else f". A stored table has no options {NO_TABLE}"
        raise ConfigError(f"option kafka.bootstrap.servers is missing{hint}: the brokers to connect to, as host:port,host:port{stored}")
    return found, client, letters


def _meant(lower: str, where: Where) -> str:
    """Which option an unknown one may mean."""
    if lower in _OF_TOPICS:
        return _topics_by(lower, where)
    if lower.replace(".", "_") in _OF_CLIENTS:
        return f"; did you mean kafka.{lower}?"
    if (of_letters := lower.removeprefix("deadletter.")) != lower and of_letters.replace(".", "_") in _OF_CLIENTS:
        return f"; did you mean deadLetter.kafka.{of_letters}?"
    nearest = difflib.get_close_matches(lower, _BY_LOWER, n=1, cutoff=0.6)
    return f"; did you mean {_BY_LOWER[nearest[0]]}?" if nearest else ""


def _topics_by(name: str, where: Where) -> str:
    """By which option this place takes its topics, for who has named them by another."""
    if name not in _OF_TOPICS:
        return ""
    return f"; {'a write takes topic' if where == 'sink' else 'a read takes subscribe, subscribePattern or assign'} for that"


def _place(where: Where, places: Sequence[str]) -> str:
    if where == "sink":
        return "a write"
    return f"a {'batch' if where == 'batch' else 'streaming'} read" if {"batch", "stream"} & set(places) else "a read"


_warned: set[frozenset[str]] = set()
"""What this process has warned of: Spark reads the options of a query many times."""


def _client_settings(
    client: Mapping[str, str], config: Any, where: str, extra: Iterable[tuple[str, str]] = (), prefix: str = "kafka."
) -> dict[str, str]:
    """Kafka's client settings under the names kafkacore knows, secrets still as references; checked against them as far as that goes.

    Those that Kafka's clients have and that change nothing here are left out, with one warning.
    """
    settings = dict(client)
    if "ssl.key.password" in settings:
        settings["ssl.password"] = settings.pop("ssl.key.password")
    if (algorithm := settings.pop("ssl.endpoint.identification.algorithm", None)) is not None:
        if algorithm.lower() not in ("", "https"):
            raise ConfigError(f"option {prefix}ssl.endpoint.identification.algorithm must be https or empty, not {algorithm!r}")
        settings["ssl.check.hostname"] = "true" if algorithm else "false"
    idle = {name for name in settings if name in WITHOUT_EFFECT or name.replace(".", "_") in _OF_CLIENTS - {*config.names()}}
    if idle and frozenset(idle) not in _warned:
        _warned.add(frozenset(idle))
        log.warning("settings that have no effect %s are ignored: %s", where, ", ".join(f"{prefix}{name}" for name in sorted(idle)))
    settings = {name: value for name, value in settings.items() if name not in idle}
    for name, value in extra:
        settings.setdefault(name, value)
    checked = {
        name: secrets.stand_in(name, settings.get("sasl.mechanism", "")) if value.startswith(secrets.PREFIX) else value
        for name, value in settings.items()
        if not value.startswith(secrets.PREFIX) or name.startswith(("sasl.", "ssl."))
    }
    try:
        config.from_user({"bootstrap.servers": "checked:1", **checked})
    except ConfigError as error:
        text = str(error.message or error)
        meant = re.search(r"did you mean ([\w.]+)\?", text)
        if meant is not None and meant[1].replace(".", "_") in config.names():      # it may be a name in a module of the user's
            text = f"{text[: meant.start(1)]}{prefix}{meant[1].replace('_', '.')}?"
        raise ConfigError(f"a {prefix}* option is refused: {text}") from None
    return settings


@dataclass(frozen=True)
class SourceOptions:
    """What a read was asked for. Small and picklable: it travels to the executors as it is.

    Attributes:
        client: settings for KafkaConsumer, under dotted names; secrets are references still.
        assign, subscribe, pattern: what to read; one of them.
        starting, ending: "earliest", "latest", or offsets by partition.
        starting_timestamps_ms, ending_timestamps_ms: one for all, or by partition; they come before the offsets.
        timestamp_strategy: when no record is that young: "error" or "latest".
        on_data_loss: "fail", "skip" or "earliest".
        check_topic_ids: whether the ids of topics in a checkpoint must be those of the topics that there are.
        max_offsets, min_offsets, max_delay_ms: admission control of streams.
        min_partitions, max_partitions, max_records: splitting into tasks.
        join_down_to: tasks that joining small partitions leaves at least; 0: none are joined; None: the session's default parallelism.
        include_headers: whether there is a headers column.
        poll_timeout_ms: how long a task waits without progress.
        retries, retry_interval_ms: for asking about offsets; without a number three for what brokers refuse, and none after a time-out.
        outage_timeout_ms: how long a stream that has reached Kafka before waits for it.
        metadata_ttl_ms: for how long the list of partitions holds.
        commit_group: a group that gets the offsets of finished batches.
        value_format, value_schema, value_message, delimiter: how values are decoded.
        framed: values begin with the schema registry's prefix.
        registry_url, registry_subject: where schemas are; secrets are references still.
        registry_settings: how it is asked, by name; as `decode.registry.options_of` takes them.
        on_unusable_schema: "fail", or "corrupt": values whose schema the registry lacks, or that cannot be read as the columns.
        mode, dead_letter_topic: what becomes of values that cannot be decoded.
        dead_letter_client: settings of the producer that sends them there; secrets are references still.
        emit: "rows", or "ranges" for the fast path.
    """

    client: dict[str, str] = field(repr=False)
    assign: tuple[Partition, ...] = ()
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    starting: str | dict[Partition, int] = "earliest"
    ending: str | dict[Partition, int] = "latest"
    starting_timestamps_ms: int | dict[Partition, int] | None = None
    ending_timestamps_ms: int | dict[Partition, int] | None = None
    timestamp_strategy: str = "error"
    on_data_loss: str = "fail"
    check_topic_ids: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records: int | None = None
    join_down_to: int | None = None
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    retries: int | None = None
    retry_interval_ms: int = 10
    outage_timeout_ms: int = 0
    metadata_ttl_ms: int = 0
    commit_group: str | None = None
    value_format: str = "binary"
    value_schema: str | None = None
    value_message: str | None = None
    delimiter: str = ","
    framed: bool = False
    registry_url: str | None = field(default=None, repr=False)
    registry_settings: dict[str, str] = field(default_factory=dict, repr=False)
    registry_subject: str | None = None
    mode: str = "permissive"
    dead_letter_topic: str | None = None
    dead_letter_client: dict[str, str] = field(default_factory=dict, repr=False)
    on_unusable_schema: str = "fail"
    emit: str = "rows"

    def names(self, topic: str, partition: int) -> bool:
        """Whether a partition of this name is to be read, if there is one."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return (topic, partition) in self.assign if self.assign else topic in self.subscribe

    @property
    def description(self) -> str:
        """What is read, as in the connector's progress reports."""
        if self.assign:
            return f"Assign[{', '.join(f'{topic}-{partition}' for topic, partition in self.assign)}]"
        return f"SubscribePattern[{self.pattern}]" if self.pattern is not None else f"Subscribe[{', '.join(self.subscribe)}]"


def source_options(given: Mapping[str, str], streaming: bool) -> SourceOptions:
    """Reads and checks the options of a read.

    Args:
        given: as `DataSource.options` has them.
        streaming: for readStream.

    Raises:
        ConfigError: says which option and what is wrong.
    """
    found, client, letters = _read_all(given, "stream" if streaming else "batch")
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if name in found]
    if len(chosen) != 1:
        raise ConfigError(
            f"what to read: exactly one of the options subscribe, subscribePattern, assign is needed, got {' and '.join(chosen) or 'none'}"
        )
    starting = found.get("startingOffsets", "latest" if streaming else "earliest")
    ending = found.get("endingOffsets", "latest")
    if not streaming:
        by_time = "startingTimestamp" in found or "startingOffsetsByTimestamp" in found
        if not by_time and starting == "latest":
            raise ConfigError("option startingOffsets can't be latest in a batch read: there would be nothing to read")
        at_end = [each for each, offset in starting.items() if offset == LATEST] if isinstance(starting, dict) and not by_time else []
        if at_end:
            named = ", ".join(f"{topic}-{partition}" for topic, partition in at_end)
            raise ConfigError(f"option startingOffsets has -1 for {named}: -1 (latest) cannot start a batch: nothing would be read")
        if ending == "earliest" or (isinstance(ending, dict) and EARLIEST in ending.values()):
            raise ConfigError("option endingOffsets can't be earliest in a batch read: there would be nothing to read")
    for name, value in (("startingOffsets", starting), ("endingOffsets", ending)):
        if isinstance(value, dict) and any(offset < EARLIEST for offset in value.values()):
            raise ConfigError(f"option {name}: offsets are at least 0, or -1 for latest, -2 for earliest")
    fail = found.get("failOnDataLoss", True)
    loss = found.get("onDataLoss", "fail" if fail else "earliest")
    if "failOnDataLoss" in found and "onDataLoss" in found and fail != (loss == "fail"):
        raise ConfigError(f"options failOnDataLoss={str(fail).lower()} and onDataLoss={loss} contradict each other")
    low, high = found.get("minOffsetsPerTrigger"), found.get("maxOffsetsPerTrigger")
    if low is not None and high is not None and low > high:
        raise ConfigError(f"option minOffsetsPerTrigger ({low}) must not exceed maxOffsetsPerTrigger ({high})")
    if "maxTriggerDelay" in found and low is None:
        raise ConfigError("option maxTriggerDelay has no effect without minOffsetsPerTrigger")
    if (most := found.get("maxPartitions")) is not None:
        if "maxRecordsPerPartition" in found:
            raise ConfigError("options maxPartitions and maxRecordsPerPartition exclude each other: one of them says how large a task is")
        for name in ("minPartitions", "joinSmallPartitions"):
            if (found.get(name) or 0) > most:
                raise ConfigError(f"option {name} ({found[name]}) must not exceed maxPartitions ({most})")
    _check_decoding(found)
    if letters and "deadLetterTopic" not in found:
        raise ConfigError(f"option {LETTERS}{next(iter(letters))} has no effect without deadLetterTopic")
    # No group is joined, so what the connector uses as a group's name is the label by which brokers know the client.
    label = client.pop("group.id", None) or found.get("groupIdPrefix", "spark-kafkacore")
    where = f"in a read (for dead letters: {LETTERS}*)" if "deadLetterTopic" in found else "in a read"
    settings = _client_settings(client, ConsumerConfig, where, [("client.id", label), ("max.partition.fetch.bytes", str(8 << 20))])
    return SourceOptions(
        client=settings,
        assign=found.get("assign", ()),
        subscribe=found.get("subscribe", ()),
        pattern=found.get("subscribePattern"),
        starting=starting,
        ending=ending,
        starting_timestamps_ms=found.get("startingTimestamp", found.get("startingOffsetsByTimestamp")),
        ending_timestamps_ms=found.get("endingTimestamp", found.get("endingOffsetsByTimestamp")),
        timestamp_strategy=found.get("startingOffsetsByTimestampStrategy", "error"),
        on_data_loss=loss,
        check_topic_ids=found.get("checkTopicIds", True),
        max_offsets=high,
        min_offsets=low,
        max_delay_ms=found.get("maxTriggerDelay", 900_000),
        min_partitions=found.get("minPartitions"),
        max_partitions=found.get("maxPartitions"),
        max_records=found.get("maxRecordsPerPartition"),
        join_down_to=found.get("joinSmallPartitions"),
        include_headers=found.get("includeHeaders", False),
        poll_timeout_ms=found.get("kafkaConsumer.pollTimeoutMs", 120_000),
        retries=found.get("fetchOffset.numRetries"),
        retry_interval_ms=found.get("fetchOffset.retryIntervalMs", 10),
        outage_timeout_ms=found.get("fetchOffset.outageTimeoutMs", OUTAGE_MS if streaming and "fetchOffset.numRetries" not in found else 0),
        metadata_ttl_ms=found.get("partition.metadata.cache.ttl.ms", 0),
        commit_group=found.get("commitOffsetsToGroup"),
        value_format=found.get("value.format", "binary"),
        value_schema=found.get("value.schema"),
        value_message=found.get("value.message"),
        delimiter=found.get("value.delimiter", ","),
        framed=found.get("value.framing", "confluent" if "schema.registry.url" in found else "plain") == "confluent",
        registry_url=found.get("schema.registry.url"),
        registry_settings={name: found[full] for name in REGISTRY_SETTINGS if (full := f"schema.registry.{name}") in found},
        registry_subject=found.get("schema.registry.subject"),
        mode=found.get("mode", "dropmalformed" if "deadLetterTopic" in found else "permissive"),
        dead_letter_topic=found.get("deadLetterTopic"),
        dead_letter_client=_of_letters(letters, settings) if "deadLetterTopic" in found else {},
        on_unusable_schema=found.get("onUnusableSchema", "fail"),
        emit=found.get("emit", "rows"),
    )


def _of_letters(given: Mapping[str, str], read: Mapping[str, str]) -> dict[str, str]:
    """Settings of the dead letters' producer: those of the read that all clients have, unless another cluster is named, and what is given.

    It takes records of any size that the read may fetch: what the topic takes, its broker says.

    Raises:
        ConfigError: nobody would know whether a dead letter arrived.
    """
    if given.get("acks", "").strip() == "0":
        raise ConfigError(f"option {LETTERS}acks must be 1 or all: with 0 a dead letter that is lost is no error")
    shared = {name: value for name, value in read.items() if name.replace(".", "_") in _OF_BOTH}
    if "bootstrap.servers" in given:                            # it may be another cluster, which must not see the credentials of this one
        shared = {}
    fetched = read["max.partition.fetch.bytes"]
    most = max(LETTER_BYTES, int(fetched) + LETTER_HEADERS_BYTES if fetched.isdecimal() else 0)
    limits = {"max.request.size": str(most), "buffer.memory": str(2 * most)}
    if (limit := given.get("max.request.size", "")).isdecimal():
        limits["buffer.memory"] = str(max(LETTER_BYTES, 2 * int(limit)))
    return _client_settings(given, ProducerConfig, "for dead letters", [*shared.items(), *limits.items()], LETTERS)


_REGISTRY = ("schema.registry.url", "schema.registry.subject", *(f"schema.registry.{name}" for name in REGISTRY_SETTINGS))
_DECODES: dict[str, tuple[str, ...]] = {
    "value.schema": ("json", "csv", "avro", "protobuf"),
    "value.message": ("protobuf",),
    "value.delimiter": ("csv",),
    "value.framing": ("json", "avro", "protobuf"),
    **dict.fromkeys(_REGISTRY, ("json", "avro", "protobuf")),
    "onUnusableSchema": ("avro", "protobuf"),
    **dict.fromkeys(("mode", "deadLetterTopic"), tuple(each for each in READ_FORMATS if each != "binary")),
}
"""Options of decoding and the formats for which they mean something."""


def _check_decoding(found: Mapping[str, Any]) -> None:
    kind = found.get("value.format", "binary")
    for name, formats in _DECODES.items():
        if name in found and kind not in formats:
            raise ConfigError(f"option {name} has no effect with value.format={kind}")
    if found.get("includeHeaders") and kind not in ("binary", "string"):
        raise ConfigError(f"option includeHeaders has no effect with value.format={kind}: name the column _headers in the schema")
    if "schema.registry.url" in found:
        if "value.schema" in found:
            raise ConfigError("options value.schema and schema.registry.url exclude each other: the schema comes from one place")
        if found.get("value.framing") == "plain":
            raise ConfigError("with schema.registry.url each value names its schema: value.framing=plain contradicts it")
        if "value.message" in found:
            raise ConfigError("option value.message has no effect with schema.registry.url: each value names its message")
    elif given := [name for name in (*_REGISTRY, "onUnusableSchema") if name in found]:
        raise ConfigError(f"option {given[0]} has no effect without schema.registry.url")
    if kind == "avro" and "value.schema" not in found and "schema.registry.url" not in found:
        raise ConfigError("value.format=avro needs value.schema (the writer's schema as JSON) or schema.registry.url")
    if kind == "protobuf" and "schema.registry.url" not in found and not ("value.schema" in found and "value.message" in found):
        raise ConfigError("value.format=protobuf needs value.schema (a descriptor set file) with value.message, or schema.registry.url")
    if "deadLetterTopic" in found and found.get("mode", "dropmalformed") == "failfast":
        raise ConfigError("option deadLetterTopic has no effect with mode=failfast")
    if "schema.registry.basic.auth.user.info" in found and "schema.registry.bearer.auth.token" in found:
        raise ConfigError("options schema.registry.basic.auth.user.info and schema.registry.bearer.auth.token exclude each other")


@dataclass(frozen=True)
class SinkOptions:
    """What a write was asked for.

    Attributes:
        client: settings for KafkaProducer, under dotted names; secrets are references still.
        topic: goes before the topic column.
        guarantee: of delivery.
    """

    client: dict[str, str] = field(repr=False)
    topic: str | None = None
    guarantee: str = "at_least_once"


_JAVA_PARTITIONERS = {"DefaultPartitioner": "murmur2", "UniformStickyPartitioner": "sticky", "RoundRobinPartitioner": "round_robin"}


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Reads and checks the options of a write.

    Raises:
        ConfigError: says which option and what is wrong.
    """
    found, client, _ = _read_all(given, "sink")
    guarantee = found.get("deliveryGuarantee", "at_least_once")
    extra = [*SINK_DEFAULTS.items(), *_partitioner(found, client)]
    return SinkOptions(_client_settings(client, ProducerConfig, "in a write", extra), found.get("topic"), guarantee)


def _partitioner(found: Mapping[str, Any], client: dict[str, str]) -> list[tuple[str, str]]:
    """The client settings for the option partitioner, or for the Java class that an existing job names."""
    chosen = found.get("partitioner")
    java = client.pop("partitioner.class", None)
    if java is not None:
        meant = _JAVA_PARTITIONERS.get(java.removeprefix("org.apache.kafka.clients.producer.").removeprefix("internals."))
        if meant is None:
            raise ConfigError(f"option kafka.partitioner.class: {java} cannot run here; use partitioner=murmur2, sticky or round_robin")
        if chosen not in (None, meant):
            raise ConfigError(f"options partitioner={chosen} and kafka.partitioner.class={java} contradict each other")
        chosen = meant
    if chosen is None:
        return []
    for name in ("partitioner", "partitioner.ignore.keys"):
        if name in client:
            raise ConfigError(f"options partitioner={chosen} and kafka.{name} exclude each other")
    return {
        "murmur2": [("partitioner", "murmur2")],
        "sticky": [("partitioner.ignore.keys", "true")],
        "round_robin": [("partitioner", "round_robin")],
    }[chosen]
