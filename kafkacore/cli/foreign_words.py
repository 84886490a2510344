"""The one table of what hands type that know kcat, Kafka's scripts and rpk: their spellings, each with ours or with an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Foreign(Exception):
    """A word of another tool, with the answer."""


class Spelling(NamedTuple):
    """A row.

    Attributes:
        command: where it counts: a path of ours, "" for the root.
        theirs: the word.
        ours: what it becomes; "{}" is its value. "" where things are so anyway. With a slash in front: a command from the root on.
        answer: what is said instead.
        turn: makes words of ours of its value.
        sample: a value that `turn` takes, and what it makes of it.
    """

    command: str
    theirs: str
    ours: str = ""
    answer: str = ""
    turn: Callable[[str], list[str]] | None = None
    sample: tuple[str, str] = ("", "")


def _each(commands: str, rows: Sequence[tuple[str, str] | tuple[str, str, str]]) -> list[Spelling]:
    return [Spelling(command.strip(), *row) for command in commands.split(",") for row in rows]


def _turned(commands: str, theirs: str, turn: Callable[[str], list[str]], value: str, made: str) -> list[Spelling]:
    words = [word.strip() for word in theirs.split(",")]
    return [Spelling(command.strip(), word, "{}", "", turn, (value, made)) for command in commands.split(",") for word in words]


def _listed(text: str) -> list[str]:
    """Kafka's lists of settings: a=1,b=[x,y] is a=1 and b=x,y."""
    return [re.sub(r"=\[(.*)\]$", r"=\1", part) for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)]


def _deleted(text: str) -> list[str]:
    return [word for name in text.split(",") for word in ("--delete", name)]


def _topic_alone(text: str) -> list[str]:
    topic, colon, _ = text.partition(":")
    if colon:
        raise Foreign(f"--topic {text}: all partitions of a topic are reset together: `kafkacore groups reset GROUP {topic}`")
    return [text]


def _format(text: str) -> list[str]:
    if text != "json":
        raise Foreign(f"--format {text}: --json prints JSON; anything else is text")
    return ["--json"]


def _place(text: str) -> list[str]:
    """Where kcat and rpk begin to read."""
    if text == ":end":
        return ["--from", "earliest", "-e"]
    if text.startswith("e@"):
        return ["--to", text[1:]]
    if text.startswith(("+", ":")) or re.search(r"\d:", text) or text == "stored":
        raise Foreign(f"-o {text}: --from is earliest, latest, an offset, -N or @TIME; --to, -e and --max say where reading ends")
    return ["--from", text]


def _registry(text: str) -> list[str]:
    """kcat's -r, which is rpk's word for a pattern."""
    if not text.startswith("http"):
        raise Foreign(f"-r {text}: topics are named one by one: `kafkacore consume TOPIC...`; --registry URL names a schema registry")
    return ["--registry", text]


def _decoded(text: str) -> list[str]:
    part, equals, form = text.rpartition("=")
    if form != "avro" or part not in ("", "key", "value"):
        raise Foreign(f"-s {text}: {_DECODED}")
    return [word for each in ([part] if equals else ["key", "value"]) for word in (f"--{each}-format", form)]


def _acks(text: str) -> list[str]:
    return ["-X", f"acks={text}"]


def _quota_name(text: str) -> list[str]:
    kind, equals, name = text.partition("=")
    if kind not in ("user", "client-id", "ip") or not equals:
        raise Foreign(f"--name {text}: --user NAME, --client-id NAME or --ip ADDRESS")
    return [f"--{kind}", name]


def _quota_default(text: str) -> list[str]:
    options = {"user": "--user-defaults", "client-id": "--client-defaults", "ip": "--ip-defaults"}
    if text not in options:
        raise Foreign(f"--default {text}: {', '.join(options.values())}")
    return [options[text]]


_TOPICS = "topics list, topics create, topics describe, topics offsets, topics alter, topics delete, topics trim"
_GROUPS = "groups list, groups describe, groups lag, groups reset, groups delete, groups delete-offsets"
_CONFIGS = "configs describe, configs set, configs unset"
_ACLS = "acls list, acls add, acls remove"
_QUOTAS = "quotas describe, quotas set, quotas unset"
_USERS = "users list, users set, users delete"
_TRANSACTIONS = "transactions list, transactions describe, transactions open, transactions abort, transactions commit"
_ADMIN = f"cluster, {_TOPICS}, {_GROUPS}, {_CONFIGS}, {_ACLS}, {_QUOTAS}, {_USERS}, {_TRANSACTIONS}"
_PERF = "perf produce, perf consume"
_ONE_BY_ONE = "settings go one by one: -X KEY=VALUE"
_LOGIN = "-X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-256 -X sasl.username=NAME -X sasl.password=secret://env/NAME"
_KEYS = r"-k '\t' prints keys, what stands between key and value; --json all of a record"
_PARSED = "-k : takes the key from in front of the separator, --key is one for all records, -H NAME=VALUE a header"
_DECODED = "--value-format avro|protobuf|json and --key-format, with --registry URL"
_OF_A_CLIENT = "quotas: `kafkacore quotas describe|set|unset` with --user, --client-id, --ip; passwords: `kafkacore users set NAME`"

SPELLINGS: list[Spelling] = [
    # kcat's modes, and rpk's and the scripts' names of commands: what a word at the place of a command becomes
    *_each("", [("-C", "consume --from earliest")]),  # kcat begins at the start
    *_each("", [("-P", "produce"), ("-G", "consume -g {}"), ("-V", "--version"), ("version", "--version")]),
    *_each(
        "",
        [
            ("-L", "", "`kafkacore cluster` shows the brokers, `kafkacore topics describe [TOPIC...]` partitions"),
            ("-Q", "", "`kafkacore topics offsets TOPIC --time MS` shows offsets by time"),
            ("-M", "", "`kafkacore broker --brokers N` is a cluster to play with"),
            ("profile", "", "profiles are tables of a file, [profiles.NAME]: `kafkacore cluster --profile NAME`; docs/command-line.md"),
            ("container", "", "`kafkacore broker --brokers N` is a cluster on this machine"),
        ],
    ),
    *_each("", [("topic", "topics"), ("group", "groups"), ("acl", "acls"), ("user", "users"), ("config", "configs"), ("quota", "quotas")]),
    *_each("", [("security", ""), ("help", "--help"), ("transaction", "transactions")]),
    *_each(
        "topics", [("--list", "list"), ("--create", "create"), ("--describe", "describe"), ("--alter", "alter"), ("--delete", "delete")]
    ),
    *_each("topics", [("ls", "list"), ("trim-prefix", "trim"), ("produce", "/produce"), ("consume", "/consume")]),
    *_each(
        "topics",
        [
            ("add-partitions", "", "`kafkacore topics alter TOPIC --partitions N` with N in all"),
            ("alter-config", "", "`kafkacore configs set KEY=VALUE --topic TOPIC`; --append, --subtract, --delete"),
            ("describe-storage", "", "KafkaAdminClient.describe_log_dirs shows sizes, from Python"),
        ],
    ),
    *_each("groups", [("--list", "list"), ("--describe", "describe"), ("--delete", "delete"), ("--reset-offsets", "reset")]),
    *_each("groups", [("ls", "list"), ("seek", "reset")]),
    *_each("groups", [("--delete-offsets", "delete-offsets"), ("offset-delete", "delete-offsets")]),
    *_each("configs", [("--describe", "describe"), ("--alter", "set")]),
    *_each("acls", [("--list", "list"), ("--add", "add"), ("--remove", "remove")]),
    *_each("acls", [("ls", "list"), ("create", "add"), ("delete", "remove"), ("user", "/users")]),
    *_each("quotas", [("alter", "set")]),
    *_each("users", [("ls", "list"), ("create", "set"), ("update", "set")]),
    *_each(
        "transactions",
        [
            ("find-hanging", "", "`kafkacore transactions open TOPIC` shows which are open and which of them hang"),
            ("describe-producers", "", "`kafkacore transactions open TOPIC` shows the producers of open transactions"),
        ],
    ),
    *_each("cluster", [("info", ""), ("metadata", ""), ("health", ""), ("cluster-id", ""), ("describe", ""), ("quotas", "/quotas")]),
    *_each(
        "cluster",
        [
            ("config", "", "`kafkacore configs describe|set|unset --broker-defaults`, or --broker ID"),
            ("logdirs", "", "KafkaAdminClient.describe_log_dirs shows sizes, from Python"),
        ],
    ),
    # options of all commands
    *_each(f"consume, produce, {_PERF}, {_ADMIN}", [("--brokers", "-b {}"), ("--broker-list", "-b {}"), ("--bootstrap-servers", "-b {}")]),
    *_each(f"{_PERF}, {_ADMIN}", [("--command-property", "-X {}")]),
    *_each(_ADMIN, [("--zookeeper", "", "Kafka has no ZooKeeper any more: -b HOST:PORT names a broker")]),
    *_each(_ADMIN, [("--tls-enabled", "", "-X security.protocol=SSL"), ("--sasl-mechanism", "", _LOGIN), ("--config-file", "-F {}")]),
    *_turned(_ADMIN, "--format", _format, "json", "--json"),
    # produce and consume
    *_each("consume, produce", [("-t", "{}"), ("--topic", "{}"), ("-K", "-k {}"), ("-u", ""), ("-q", "")]),
    *_each(
        "consume, produce",
        [
            ("-d", "", "what goes wrong is on stderr anyway"),
            ("-m", "", "-X default.api.timeout.ms=MS, max.block.ms to send"),
            ("-D", "", "records end with a newline; -f '%v;' prints another end"),
        ],
    ),
    *_turned("consume", "-o, --offset", _place, "beginning", "--from beginning"),
    *_turned("consume", "-r", _registry, "http://h", "--registry http://h"),
    *_turned("consume", "-s", _decoded, "avro", "--key-format avro --value-format avro"),
    *_each(
        "consume",
        [
            ("--from-beginning", "--from earliest"),
            ("-c", "--max {}"),
            ("--max-messages", "--max {}"),
            ("--num", "--max {}"),
            ("-J", "--json"),
            ("-Z", "--null NULL"),
            ("-G", "--group {}"),
            ("-E", ""),
            ("--isolation-level", "--isolation {}"),
            ("--consumer-property", "-X {}"),
            ("--command-property", "-X {}"),
            ("--skip-message-on-error", ""),
            ("--pretty-print", ""),
            ("--property", "", _KEYS),
            ("--formatter-property", "", _KEYS),
            ("--formatter", "", f"{_KEYS}, -f TEMPLATE anything"),
            ("--consumer.config", "-F {}"),
            ("--timeout-ms", "", "-e ends at the records that are there now, --max after so many"),
            ("--include", "", "topics are named one by one: `kafkacore consume TOPIC...`"),
            ("--whitelist", "", "topics are named one by one: `kafkacore consume TOPIC...`"),
            ("--regex", "", "topics are named one by one: `kafkacore consume TOPIC...`"),
            ("--key-deserializer", "", _DECODED),
            ("--value-deserializer", "", _DECODED),
            ("--meta-only", "", r"-f '%t %p %o %T\n'"),
            ("--use-schema-registry", "", _DECODED),
        ],
    ),
    *_turned("produce", "--acks, --request-required-acks", _acks, "all", "-X acks=all"),
    *_each(
        "produce",
        [
            ("-z", "--compression {}"),
            ("--compression-codec", "--compression {}"),
            ("-l", ""),
            ("--sync", ""),
            ("--producer-property", "-X {}"),
            ("--command-property", "-X {}"),
            ("-T", "", "`tee /dev/stderr | kafkacore produce TOPIC` shows what is sent"),
            ("-E", "", "a record that was not delivered is a failure"),
            ("-Z", "", "--null '' sends empty values and keys as null"),
            ("--tombstone", "", "--null '' sends empty values and keys as null"),
            ("-r", "", "values go as they are; KafkaProducer.send_frame encodes, from Python"),
            ("-f", "", f"lines are values: {_PARSED}; --format json takes whole records"),
            ("-s", "", "values go as they are; KafkaProducer.send_frame encodes, from Python"),
            ("--property", "", _PARSED),
            ("--reader-property", "", _PARSED),
            ("--line-reader", "", _PARSED),
            ("--batch-size", "", "-X batch.size=BYTES"),
            ("--timeout", "", "-X linger.ms=MS"),
            ("--max-block-ms", "", "-X max.block.ms=MS"),
            ("--max-memory-bytes", "", "-X buffer.memory=BYTES"),
            ("--message-send-max-retries", "", "-X retries=N"),
            ("--producer.config", "-F {}"),
        ],
    ),
    *_each(_PERF, [("-t", "{}"), ("--topic", "{}"), ("--producer-props", "", _ONE_BY_ONE), ("--print-metrics", "", "--json has figures")]),
    *_each("perf produce", [("--producer.config", "-F {}")]),
    *_each(
        "perf consume",
        [
            ("--messages", "--num-records {}"),
            ("--from-latest", "--from latest"),
            ("--consumer.config", "-F {}"),
            ("--fetch-size", "", "-X max.partition.fetch.bytes=BYTES"),
            ("--hide-header", ""),
            ("--show-detailed-stats", "", "--plot PNG draws the rate, --json has figures"),
        ],
    ),
    # topics
    *_each("topics create, topics describe, topics offsets, topics alter, topics delete", [("--topic", "{}"), ("-t", "{}")]),
    *_each("topics list", [("--exclude-internal", ""), ("-i", "--internal"), ("-d", "", "`kafkacore topics describe` shows partitions")]),
    *_each("topics create", [("--topic-config", "-c {}"), ("--replicas", "-r {}")]),
    *_each("topics create", [("--replica-assignment", "", "the controller places replicas; NewTopic takes assignments, from Python")]),
    *_each(
        "topics describe",
        [
            ("--under-replicated-partitions", "--under-replicated"),
            ("--unavailable-partitions", "--unavailable"),
            ("--exclude-internal", ""),
            ("--print-all", "--configs"),
            ("--print-configs", "--configs"),
            ("--print-partitions", ""),
            ("-a", "--configs"),
            ("-c", "--configs"),
            ("-p", ""),
            ("--topics-with-overrides", "", "`kafkacore configs describe` shows what was set"),
            ("--at-min-isr-partitions", "", "--under-replicated, --unavailable"),
            ("--under-min-isr-partitions", "", "--under-replicated, --unavailable"),
        ],
    ),
    *_each("topics offsets", [("--topic-partitions", "", "`kafkacore topics offsets TOPIC --partitions 0,1`")]),
    # groups
    *_each("groups describe, groups reset, groups delete", [("--group", "{}")]),
    *_each("groups list", [("-s", "--state {}"), ("--states", "--state {}")]),
    *_each("groups describe", [("--all-groups", ""), ("--offsets", ""), ("--members", ""), ("--state", ""), ("--verbose", "")]),
    *_each("groups delete", [("--all-groups", "", "name them: `kafkacore groups delete GROUP...`")]),
    *_each("groups delete-offsets", [("--group", "{}"), ("--topic", "{}"), ("-t", "{}")]),
    *_each("topics trim", [("-o", "--to {}"), ("--offset", "--to {}"), ("--no-confirm", "--yes"), ("--topic", "{}"), ("-t", "{}")]),
    *_turned("groups reset", "--topic, --topics", _topic_alone, "t", "t"),
    *_each(
        "groups reset",
        [
            ("--to-earliest", "--to earliest"),
            ("--to-latest", "--to latest"),
            ("--to-offset", "--to {}"),
            ("--to-datetime", "--to @{}"),
            ("--shift-by", "--by {}"),
            ("--all-topics", ""),
            ("--by-duration", "", "--to @-1h is the first record of the last hour"),
            ("--to-current", "", "without --execute `groups reset GROUP --by 0` shows where it is"),
            ("--from-file", "", "one place for all: --to or --by; KafkaAdminClient.alter_group_offsets takes one for each, from Python"),
            ("--to-file", "", "one place for all: --to or --by; KafkaAdminClient.alter_group_offsets takes one for each, from Python"),
            ("--export", "", "--json prints the offsets"),
        ],
    ),
    # settings, access, quotas, users
    *_turned("configs set", "--add-config", _listed, "a=1,b=[x,y]", "a=1 b=x,y"),
    *_turned("configs set", "--delete-config", _deleted, "a,b", "--delete a --delete b"),
    *_each("configs set", [("--add-config-file", "", "KEY=VALUE words: `kafkacore configs set KEY=VALUE... --topic TOPIC`")]),
    *_each(
        _CONFIGS,
        [
            ("--user", "", _OF_A_CLIENT),
            ("--user-defaults", "", _OF_A_CLIENT),
            ("--client", "", _OF_A_CLIENT),
            ("--client-defaults", "", _OF_A_CLIENT),
            ("--ip", "", _OF_A_CLIENT),
            ("--ip-defaults", "", _OF_A_CLIENT),
        ],
    ),
    *_each(_ACLS, [("--consumer-group", "--group {}"), ("--authorizer", "", "-b HOST:PORT names a broker, which keeps the entries")]),
    *_each(_ACLS, [("--authorizer-properties", "", "-b HOST:PORT names a broker, which keeps the entries")]),
    *_each("acls list", [("--allow-principal", "--principal {}"), ("--allow-host", "--host {}")]),
    *_each("acls add", [("--force", "")]),
    *_each("acls remove", [("--force", "--yes"), ("--no-confirm", "--yes"), ("--principal", "--allow-principal {}")]),
    *_each("acls remove", [("--producer", "", "name topics and operations"), ("--consumer", "", "name topics, groups and operations")]),
    *_turned("quotas set", "--add", lambda text: [text], "producer_byte_rate=1", "producer_byte_rate=1"),
    *_each("quotas set", [("--delete", "", "`kafkacore quotas unset QUOTA...`")]),
    *_turned(_QUOTAS, "--name", _quota_name, "client-id=a", "--client-id a"),
    *_turned(_QUOTAS, "--default", _quota_default, "client-id", "--client-defaults"),
    *_each("quotas describe", [("--any", "", "without a name all are shown")]),
    *_each("users set", [("-p", "", "others see a command line: type it, or --password secret://env/NAME")]),
    *_each("users set", [("--new-password", "", "others see a command line: type it, or --password secret://env/NAME")]),
    *_each("topics list, groups list, cluster", [("--user", "", _LOGIN), ("--password", "", _LOGIN)]),
    # transactions, files
    *_each("transactions describe", [("--transactional-id", "{}")]),
    *_each("transactions abort", [("--topic", "", "`kafkacore transactions abort TOPIC PARTITION PRODUCER_ID`")]),
    *_turned("dump-log", "--files", lambda text: text.split(","), "a,b", "a b"),
    *_each("dump-log", [("--print-data-log", "--records"), ("--deep-iteration", "")]),
]
TABLE = {(row.command, row.theirs): row for row in SPELLINGS}

_ENTITIES = {
    "topics": "--topic",
    "brokers": "--broker",
    "broker-loggers": "--broker-logger",
    "groups": "--group",
    "client-metrics": "--client-metrics",
}


def entities(words: list[str]) -> list[str]:
    """The pairs of kafka-configs.sh, `--entity-type topics --entity-name t`, as `--topic t`.

    Args:
        words: what follows `configs`.

    Raises:
        Foreign: it is about users, client ids or addresses.
    """
    rest = [part for word in words for part in (word.split("=", 1) if word.startswith("--entity-") and "=" in word else [word])]
    done: list[str] = []
    kind = ""
    while rest:
        word = rest.pop(0)
        if word == "--entity-type" and rest:
            kind = rest.pop(0).lower().replace("_", "-")
            if kind in ("users", "clients", "ips"):
                raise Foreign(f"--entity-type {kind}: {_OF_A_CLIENT}")
            if kind not in _ENTITIES:
                raise Foreign(f"--entity-type {kind}: {', '.join(_ENTITIES.values())}")
        elif word == "--entity-name" and rest and kind:
            done += [_ENTITIES[kind], rest.pop(0)]
        elif word == "--entity-default" and kind == "brokers":
            done.append("--broker-defaults")
        elif word.startswith("--entity-"):
            raise Foreign(f"{word}: {', '.join(_ENTITIES.values())} or --broker-defaults")
        else:
            done.append(word)
    return done
