"""Command lines as hands type them that know kcat, Kafka's scripts and rpk: each works the same here, or says how it is written."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from kafkacore.cli.app import application, run
from kafkacore.cli.foreign import translated
from tests.kit.rows import each_row

ROOT: Any = typer.main.get_command(application([]))
SCRIPTS = {
    "kcat": "",
    "rpk": "",
    "kafka-topics.sh": "topics",
    "kafka-console-consumer.sh": "consume",
    "kafka-console-producer.sh": "produce",
    "kafka-consumer-groups.sh": "groups",
    "kafka-configs.sh": "configs",
    "kafka-acls.sh": "acls",
    "kafka-get-offsets.sh": "topics offsets",
    "kafka-producer-perf-test.sh": "perf produce",
    "kafka-consumer-perf-test.sh": "perf consume",
    "kafka-transactions.sh": "transactions",
    "kafka-dump-log.sh": "dump-log",
    "kafka-cluster.sh": "cluster",
}
"""The command here in whose place a script stands."""

SAME = [
    ("kafka-consumer-groups.sh --delete-offsets --topic t --group g", "groups delete-offsets g t"),
    ("rpk group offset-delete g -t t:0,1", "groups delete-offsets g t:0,1"),
    ("rpk topic trim-prefix t -o 5 -p 0,1 --no-confirm", "topics trim t --to 5 -p 0,1 --yes"),
    ("rpk topic trim-prefix t --offset @-1h", "topics trim t --to @-1h"),
    ("kcat -C -b h -t flights -o -5 -e", "consume flights -b h --from -5 -e"),
    ("kcat -b h -C -t flights -p 0 -o 10 -c 1", "consume flights -b h -p 0 --from 10 --max 1"),
    ("kcat -C -b h -t flights -o e@1767229200000", "consume flights --from earliest -b h --to @1767229200000"),
    ("kcat -b h -t flights -C -q -u -e", "consume flights --from earliest -b h -e"),  # kcat's begins at the start
    ("kcat -b h -G readers flights copy", "consume -g readers -b h flights copy"),
    ("kcat -P -b h -t flights -K: -z snappy", "produce flights -b h -k : --compression snappy"),
    ("kcat -b h -P -t flights -l file", "produce flights -b h file"),
    (
        "kafka-topics.sh --create --topic t --partitions 3 --replication-factor 2 --config retention.ms=1",
        "topics create t --partitions 3 --replication-factor 2 --config retention.ms=1",
    ),
    ("kafka-topics.sh --bootstrap-server h --describe --topic t", "topics describe t --bootstrap-server h"),
    ("kafka-topics.sh --describe --under-replicated-partitions", "topics describe --under-replicated"),
    ("kafka-topics.sh --alter --topic t --partitions 6", "topics alter t --partitions 6"),
    ("kafka-topics.sh --bootstrap-server h --delete --topic t", "topics delete t --bootstrap-server h"),
    ("kafka-topics.sh --bootstrap-server h --list --exclude-internal", "topics list --bootstrap-server h"),
    ("kafka-topics.sh --bootstrap-server h --describe --exclude-internal", "topics describe --bootstrap-server h"),
    ("kafka-console-consumer.sh --topic t --from-beginning", "consume t --from earliest"),
    ("kafka-console-consumer.sh --topic t --partition 0 --offset 5", "consume t --partition 0 --from 5"),
    ("kafka-console-consumer.sh --topic t --isolation-level read_committed", "consume t --isolation read_committed"),
    ("kafka-console-consumer.sh --bootstrap-server h --topic t --skip-message-on-error", "consume t --bootstrap-server h"),
    ("kafka-console-consumer.sh --topic t --consumer-property auto.offset.reset=earliest", "consume t -X auto.offset.reset=earliest"),
    ("kafka-console-consumer.sh --topic t --command-property auto.offset.reset=earliest", "consume t -X auto.offset.reset=earliest"),
    ("kafka-console-producer.sh --topic t --producer-property acks=all --compression-codec lz4", "produce t -X acks=all --compression lz4"),
    ("kafka-console-producer.sh --topic t --request-required-acks all", "produce t -X acks=all"),
    ("kafka-consumer-groups.sh --bootstrap-server h --list", "groups list --bootstrap-server h"),
    ("kafka-consumer-groups.sh --bootstrap-server h --describe --all-groups", "groups describe --bootstrap-server h"),
    ("kafka-consumer-groups.sh --describe --group g --members --verbose", "groups describe g"),
    ("kafka-consumer-groups.sh --bootstrap-server h --describe --group g --offsets", "groups describe g --bootstrap-server h"),
    ("kafka-consumer-groups.sh --bootstrap-server h --describe --group g --state", "groups describe g --bootstrap-server h"),
    ("kafka-consumer-groups.sh --bootstrap-server h --delete --group g --group h2", "groups delete g h2 --bootstrap-server h"),
    ("kafka-consumer-groups.sh --group g --reset-offsets --topic t --to-earliest --execute", "groups reset g t --to earliest --execute"),
    ("kafka-consumer-groups.sh --group g --reset-offsets --all-topics --to-latest --dry-run", "groups reset g --to latest --dry-run"),
    (
        "kafka-consumer-groups.sh --group g --reset-offsets --topic t --to-datetime 2026-05-01T12:00:00.000",
        "groups reset g t --to @2026-05-01T12:00:00.000",
    ),
    ("kafka-consumer-groups.sh --group g --reset-offsets --topic t --to-offset 5 --execute", "groups reset g t --to 5 --execute"),
    ("kafka-configs.sh --entity-type topics --entity-name t --describe", "configs describe --topic t"),
    (
        "kafka-configs.sh --entity-type topics --entity-name t --alter --add-config retention.ms=1,cleanup.policy=[delete,compact]",
        "configs set retention.ms=1 cleanup.policy=delete,compact --topic t",
    ),
    (
        "kafka-configs.sh --entity-type topics --entity-name t --alter --delete-config retention.ms,cleanup.policy",
        "configs set --topic t --delete retention.ms --delete cleanup.policy",
    ),
    ("kafka-configs.sh --entity-type brokers --entity-name 1 --describe", "configs describe --broker 1"),
    (
        "kafka-configs.sh --entity-type brokers --entity-default --alter --add-config log.retention.ms=1",
        "configs set log.retention.ms=1 --broker-defaults",
    ),
    ("kafka-configs.sh --entity-type broker-loggers --entity-name 1 --describe", "configs describe --broker-logger 1"),
    ("kafka-acls.sh --bootstrap-server h --list", "acls list --bootstrap-server h"),
    (
        "kafka-acls.sh --add --allow-principal User:a --operation Read --operation Write --topic t",
        "acls add --allow-principal User:a --operation Read --operation Write --topic t",
    ),
    ("kafka-acls.sh --remove --allow-principal User:a --topic t --force", "acls remove --allow-principal User:a --topic t --yes"),
    ("kafka-get-offsets.sh --topic t --time -1 --partitions 0,1", "topics offsets t --time -1 --partitions 0,1"),
    (
        "kafka-producer-perf-test.sh --topic t --num-records 100 --record-size 10 --throughput 5 --command-property acks=1",
        "perf produce t --num-records 100 --record-size 10 --throughput 5 -X acks=1",
    ),
    ("kafka-consumer-perf-test.sh --topic t --messages 100 --group g", "perf consume t --num-records 100 --group g"),
    ("kafka-transactions.sh --bootstrap-server h describe --transactional-id x", "transactions describe x --bootstrap-server h"),
    ("kafka-dump-log.sh --files 0.log --print-data-log", "dump-log 0.log --records"),
    ("kafka-cluster.sh cluster-id --bootstrap-server h", "cluster --bootstrap-server h"),
    ("rpk topic ls", "topics list"),
    ("rpk topic create t --topic-config retention.ms=1", "topics create t -c retention.ms=1"),
    ("rpk topic describe t -a", "topics describe t --configs"),
    ("rpk topic describe t -p", "topics describe t"),
    ("rpk topic describe t -c", "topics describe t --configs"),
    ("rpk topic consume t -o :end", "consume t --from earliest -e"),
    ("rpk topic consume t --num 3 --format json", "consume t --max 3 --format json"),
    ("rpk topic consume t --pretty-print", "consume t"),
    ("rpk topic produce t -k key -z lz4 -H a:b", "produce t -k key --compression lz4 -H a:b"),
    ("rpk group ls -s Stable", "groups list --state Stable"),
    ("rpk group seek g --to end --topics t", "groups reset g --to end t"),
    ("rpk group seek g --to 1767225600000", "groups reset g --to 1767225600000"),
    ("rpk cluster info", "cluster"),
    ("rpk cluster metadata", "cluster"),
    ("rpk cluster health", "cluster"),
    ("rpk cluster quotas alter --add producer_byte_rate=1 --name client-id=a", "quotas set producer_byte_rate=1 --client-id a"),
    (
        "rpk security acl create --allow-principal User:a --operation read --topic t",
        "acls add --allow-principal User:a --operation read --topic t",
    ),
    ("rpk acl delete --allow-principal User:a --topic t --no-confirm", "acls remove --allow-principal User:a --topic t --yes"),
    ("rpk acl user create bob", "users set bob"),
    ("rpk security user list", "users list"),
    ("rpk topic list --brokers h", "topics list -b h"),
    ("rpk topic list --format json", "topics list --json"),
    ("kcat -C -b h -t flights -s value=avro -r http://r", "consume flights --from earliest -b h --value-format avro --registry http://r"),
    ("kcat -C -b h -t flights -o s@1767225600000 -o e@1767229200000", "consume flights -b h --from s@1767225600000 --to @1767229200000"),
    ("kafka-console-consumer.sh --topic t --consumer.config c", "consume t -F c"),
    ("kafka-console-producer.sh --topic t --producer.config c", "produce t -F c"),
]
ANSWERED = [
    ("kcat -b h -L", "-L: `kafkacore cluster` shows the brokers, `kafkacore topics describe [TOPIC...]` partitions"),
    ("kcat -P -b h -t flights -Z -K :", "-Z: --null '' sends empty values and keys as null"),
    ("kcat -P -b h -t flights -D ';'", "-D: records end with a newline; -f '%v;' prints another end"),
    ("kcat -C -b h -t flights -D ';'", "-D: records end with a newline; -f '%v;' prints another end"),
    ("kcat -C -b h -t flights -s value=i", "-s value=i: --value-format avro|protobuf|json and --key-format, with --registry URL"),
    ("kcat -Q -b h -t flights:0:1767225600000", "-Q: `kafkacore topics offsets TOPIC --time MS` shows offsets by time"),
    ("kcat -M 10 -b h -t flights", "-M: `kafkacore broker --brokers N` is a cluster to play with"),
    ("kcat -b h -t flights -C -d broker", "-d: what goes wrong is on stderr anyway"),
    ("kcat -b h -P -t flights -T", "-T: `tee /dev/stderr | kafkacore produce TOPIC` shows what is sent"),
    ("kcat -b h -P -t flights -E", "-E: a record that was not delivered is a failure"),
    ("kcat -b h -C -t flights -m 10", "-m: -X default.api.timeout.ms=MS, max.block.ms to send"),
    ("kafka-topics.sh --describe --topics-with-overrides", "--topics-with-overrides: `kafkacore configs describe` shows what was s"),
    ("kafka-producer-perf-test.sh --topic t --producer-props acks=1", "--producer-props: settings go one by one: -X KEY=VALUE"),
    ("rpk profile use prod", "profile: profiles are tables of a file, [profiles.NAME]: `kafkacore cluster --profile NAME`"),
    ("kafka-topics.sh --zookeeper z --list", "--zookeeper: Kafka has no ZooKeeper any more: -b HOST:PORT names a broker"),
    ("kafka-topics.sh --create --topic t --replica-assignment 0:1,1:2", "--replica-assignment: the controller places replicas; New"),
    ("kafka-topics.sh --describe --at-min-isr-partitions", "--at-min-isr-partitions: --under-replicated, --unavailable"),
    ("kafka-console-consumer.sh --topic t --group g --max-messages 5 --timeout-ms 1000", "--timeout-ms: -e ends at the records tha"),
    ("kafka-console-consumer.sh --topic t --property print.key=true", r"--property: -k '\t' prints keys, what stands between key an"),
    ("kafka-console-consumer.sh --topic t --formatter-property print.key=true", r"--formatter-property: -k '\t' prints keys, what s"),
    ("kafka-console-consumer.sh --include 'a.*'", "--include: topics are named one by one: `kafkacore consume TOPIC...`"),
    (
        "kafka-console-producer.sh --broker-list h --topic t --property parse.key=true --property key.separator=:",
        "--property: -k : takes the key",
    ),
    ("kafka-console-producer.sh --topic t --compression-codec", "Option '--compression-codec' requires an argument."),
    ("kafka-console-producer.sh --topic t --batch-size 100 --timeout 100 --sync", "--batch-size: -X batch.size=BYTES"),
    ("kafka-consumer-groups.sh --group g --reset-offsets --topic t:0,1 --shift-by -10", "--topic t:0,1: all partitions of a topic "),
    ("kafka-consumer-groups.sh --group g --reset-offsets --topic t --by-duration PT1H", "--by-duration: --to @-1h is the first rec"),
    ("kafka-consumer-groups.sh --group g --reset-offsets --topic t --to-current --export", "--to-current: without --execute `group"),
    (
        "kafka-configs.sh --entity-type users --entity-name a --alter --add-config 'SCRAM-SHA-256=[password=x]'",
        "--entity-type users: quotas: `",
    ),
    ("kafka-configs.sh --alter --entity-type topics --entity-name t --add-config-file f", "--add-config-file: KEY=VALUE words: `ka"),
    ("kafka-acls.sh --authorizer-properties zookeeper.connect=z --list", "--authorizer-properties: -b HOST:PORT names a broker, wh"),
    ("kafka-transactions.sh find-hanging", "find-hanging: `kafkacore transactions open TOPIC` shows which are open and which of th"),
    ("rpk topic list -d", "-d: `kafkacore topics describe` shows partitions"),
    ("rpk topic consume t -o +5", "-o +5: --from is earliest, latest, an offset, -N or @TIME; --to, -e and --max say where reading ends"),
    ("rpk topic consume t -r '^a'", "-r ^a: topics are named one by one: `kafkacore consume TOPIC...`; --registry"),
    (r"rpk topic produce t -f '%k %v\n'", "-f: lines are values: -k : takes the key from in front of the separator, --key is one fo"),
    ("rpk topic produce t --tombstone", "--tombstone: --null '' sends empty values and keys as null"),
    ("rpk topic add-partitions t -n 3", "add-partitions: `kafkacore topics alter TOPIC --partitions N` with N in all"),
    ("rpk topic alter-config t --set retention.ms=1", "alter-config: `kafkacore configs set KEY=VALUE --topic TOPIC`; --append, --"),
    ("rpk topic describe-storage t", "describe-storage: KafkaAdminClient.describe_log_dirs shows sizes, from Python"),
    ("rpk cluster config get log.retention.ms", "config: `kafkacore configs describe|set|unset --broker-defaults`, or --broker ID"),
    ("rpk cluster quotas describe --any user", "--any: without a name all are shown"),
    ("rpk cluster logdirs describe", "logdirs: KafkaAdminClient.describe_log_dirs shows sizes, from Python"),
    ("rpk security user create bob -p x", "-p: others see a command line: type it, or --password secret://env/NAME"),
    ("rpk topic list --tls-enabled", "--tls-enabled: -X security.protocol=SSL"),
    ("rpk topic list --user a --password b --sasl-mechanism SCRAM-SHA-256", "--user: -X security.protocol=SASL_SSL -X sasl.mechani"),
    ("rpk container start -n 3", "container: `kafkacore broker --brokers N` is a cluster on this machine"),
    ("kafka-consumer-groups.sh --bootstrap-server h --list --state", "Option '--state' requires an argument."),
    ("kcat -b h -t flights", "-b: say what to do: -C reads a topic, -P sends to one"),
]


def arguments(line: str) -> list[str]:
    tool, *words = shlex.split(line)
    return shlex.split(SCRIPTS[tool]) + words


@each_row(("line", "ours"), SAME, ids=[line for line, _ in SAME])
def test_a_line_that_means_the_same(line: str, ours: str) -> None:
    """It becomes these words of ours, and they are a command line: with arguments, without an unknown option."""
    words = translated(ROOT, arguments(line))
    assert words == shlex.split(ours)
    command, context = ROOT, None
    while words:
        name = words.pop(0)
        command = command.commands[name]
        if not hasattr(command, "commands"):
            command.make_context(name, words, parent=context)
            break
    assert translated(ROOT, shlex.split(ours)) == shlex.split(ours)


@each_row(("line", "answer"), ANSWERED, ids=[line for line, _ in ANSWERED])
def test_a_line_that_is_answered(line: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With status 2, before anything is asked of a cluster."""
    assert run(arguments(line)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kafkacore: {answer}") and said.count("\n") == 1
