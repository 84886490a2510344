"""Word by word what commands say and ask of a cluster, from the answers of an admin client that asks nobody."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import typer

import kafkacore
from kafkacore import errors
from kafkacore.admin import (
    Acl,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    ItemResults,
    Listed,
    MemberDescription,
    ProducerDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from kafkacore.cli import transactions
from kafkacore.cli.app import application, run
from kafkacore.metadata import PartitionInfo
from kafkacore.net.leaders import ListedOffset
from kafkacore.types import Node, OffsetAndMetadata, TopicPartition

TRANSCRIPT = Path(__file__).with_suffix(".txt").read_text().rstrip("\n").split("\n\n")
"""Of each command line: `$` as typed, the output, `?` questions that are answered with yes, `>` what is changed or asked of the cluster by
more than names, `!` status and standard error."""
NODES = [Node(1, "one", 9092, "r"), Node(2, "::2", 9093, None)]
PLACES = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
FIRST, END = dict(zip(PLACES, (0, 5, 1000), strict=True)), dict(zip(PLACES, (4, 9, 3000), strict=True))


def split(wanted: Iterable[Any], known: Mapping[Any, Any], error: type[errors.KafkaError]) -> ItemResults[Any, Any]:
    """What is known of what is asked for, and an error for what is not."""
    names = list(wanted)
    return ItemResults(
        {each: known[each] for each in names if each in known}, {each: error(f"no {each}") for each in names if each not in known}
    )


def config_entry(name: str, value: str | None, source: str, sensitive: bool = False, kind: str = "int") -> ConfigEntry:
    return ConfigEntry(name, value, source, name == "fixed", sensitive, kind, [])


SET, STATIC, PLAIN = (
    config_entry("b.set", "1", "topic"),
    config_entry("a.static", None, "static_broker"),
    config_entry("c.plain", "3", "default", kind="unknown"),
)
SECRET = config_entry("a.secret", None, "dynamic_default_broker", True)
CONFIGS = {("topic", "t"): [PLAIN, STATIC, SET, SECRET], ("topic", "u"): [PLAIN], ("broker", "1"): [SET], ("broker", ""): [SECRET]}
TOPICS = {
    "t": TopicDescription(
        "t", b"\1" * 16, False, [PartitionInfo(0, 1, 7, [1, 2], [1, 2], ()), PartitionInfo(1, -1, 8, [2, 1], [1], (2,))], None
    ),
    "u": TopicDescription("u", b"\2" * 16, False, [PartitionInfo(0, 2, 3, [2], [2], ())], None),
}
MEMBERS = [
    MemberDescription("m-2", None, "b", "/h2", [PLACES[2], PLACES[1]]),
    MemberDescription("m-1", "i", "a", "/h1", [PLACES[0]]),
]
GROUPS = {
    "g": GroupDescription("g", "consumer", "Stable", "consumer", "uniform", MEMBERS, NODES[1]),
    "h": GroupDescription("h", "classic", "Empty", "consumer", "", []),
}
COMMITTED = {
    "g": {PLACES[0]: OffsetAndMetadata(1, "x"), PLACES[1]: None, TopicPartition("gone", 0): OffsetAndMetadata(2000)},
    "h": {PLACES[2]: OffsetAndMetadata(4000), PLACES[0]: OffsetAndMetadata(3)},
}
QUOTAS = {
    frozenset({("user", "a"), ("client-id", None)}): {"b": 1e6, "a": 12.5},
    frozenset({("ip", "h"), ("zone", "z")}): {"c": 3.0},
}
ACLS = [
    Acl("topic", "t", "User:b", "describe_configs", "h", "deny", "prefixed"),
    Acl("cluster", "kafka-cluster", "User:a", "all"),
]
PRODUCERS = {
    PLACES[0]: [ProducerDescription(7, 2, 3, 4, 5, 1200), ProducerDescription(8, 0, 3, 4, 6, 9), ProducerDescription(9, 0, 0, 0, 0, -1)]
}
TRANSACTIONS = {
    "x": TransactionDescription("Ongoing", 7, 2, 60_000, 3_500_000, [PLACES[2], PLACES[0]]),
    "y": TransactionDescription("CompleteCommit", 8, 1, 1_500, -1, []),
}


class Admin:
    """Answers as above, and notes what alters something or asks by more than names."""

    calls: list[Any]

    def __init__(self, settings: Mapping[str, Any]) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        def noted(what: Any = None, *more: Any, **how: Any) -> Any:
            self.calls.append((name, what, *more, how))
            items = next((each for each in reversed((what, *more)) if isinstance(each, list | dict)), ())
            keys = {"create_topics": lambda topic: topic.name, "delete_records": lambda place: TopicPartition(*place)}
            return ItemResults(dict.fromkeys(map(keys.get(name, lambda item: item), items), 6), {})

        return noted

    def list_topics(self, include_internal: bool = False) -> list[str]:
        return ["u", "t", *["__own"] * include_internal]

    def describe_topics(self, names: Iterable[str]) -> ItemResults[str, Any]:
        return split(names, TOPICS, errors.UnknownTopicOrPartition)

    def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id="c", controller=NODES[1], nodes=NODES)

    def list_config_resources(self, kinds: list[str]) -> list[Any]:
        return [*CONFIGS]

    def describe_configs(self, resources: Iterable[Any]) -> ItemResults[Any, Any]:
        known = {kafkacore.admin.ConfigResource(*each): {one.name: one for one in found} for each, found in CONFIGS.items()}
        return split([kafkacore.admin.ConfigResource(*each) for each in resources], known, errors.UnknownTopicOrPartition)

    def list_offsets(self, places: Mapping[Any, Any], read_committed: bool = False) -> ItemResults[Any, Any]:
        def at(tp: TopicPartition, spec: Any) -> int:
            named = {"earliest": FIRST.get(tp, -1), "latest": END.get(tp, -1) - read_committed, "max_timestamp": 2}
            return named[spec] if isinstance(spec, str) else -1

        found = {TopicPartition(*tp): ListedOffset(at(TopicPartition(*tp), spec), 77, 1) for tp, spec in places.items()}
        return split(places, {tp: each for tp, each in found.items() if tp in END}, errors.UnknownTopicOrPartition)

    def list_groups(self, states: Iterable[str] = (), partial: bool = False) -> Listed[GroupListing]:
        there = [GroupListing(each.group_id, each.protocol_type, each.state, each.type) for each in GROUPS.values()]
        lost = {3: errors.BrokerNotAvailable("away")} if partial and states else {}
        return Listed([each for each in there if not states or each.state in states], lost)

    def describe_groups(self, names: Iterable[str]) -> ItemResults[str, Any]:
        return split(names, GROUPS, errors.GroupIdNotFound)

    def list_groups_offsets(self, groups: Mapping[str, Any]) -> ItemResults[str, Any]:
        return ItemResults({name: ItemResults(COMMITTED.get(name, {}), {}) for name in groups}, {})

    def list_group_offsets(self, group: str) -> Any:
        return COMMITTED.get(group, {})

    def describe_client_quotas(self, filters: Any, strict: bool = False) -> Any:
        self.calls.append(("describe_client_quotas", filters, {"strict": strict}))
        return QUOTAS

    def alter_client_quotas(self, changes: Any, validate_only: bool) -> ItemResults[Any, None]:
        named = [(sorted(each, key=str), quotas) for each, quotas in changes.items()]
        self.calls.append(("alter_client_quotas", *named, {"validate_only": validate_only}))
        return ItemResults(dict.fromkeys(changes), {})

    def describe_acls(self, matching: Any) -> list[Acl]:
        self.calls.append(("describe_acls", tuple(matching)))
        return ACLS

    def delete_acls(self, filters: Any) -> ItemResults[Any, Any]:
        self.calls.append(("delete_acls", [*map(tuple, filters)]))
        return ItemResults({filters[0]: ACLS}, {each: errors.ClusterAuthorization("no") for each in filters[1:]})

    def describe_user_scram_credentials(self, users: Any) -> ItemResults[str, Any]:
        known = {"b": {"SCRAM-SHA-512": 5000, "SCRAM-SHA-256": 4096}, "a": {"SCRAM-SHA-256": 8192}}
        return split(users or known, known, errors.ResourceNotFound)

    def list_transactions(self, states: Any = (), producer_ids: Any = (), partial: bool = False) -> Listed[TransactionListing]:
        there = [TransactionListing(name, each.producer_id, each.state) for name, each in TRANSACTIONS.items()]
        return Listed(
            [each for each in there if (not producer_ids or each.producer_id in producer_ids) and (not states or each.state in states)]
        )

    def describe_transactions(self, names: Iterable[str]) -> ItemResults[str, Any]:
        return split(names, TRANSACTIONS, errors.TransactionalIdNotFound)

    def describe_producers(self, places: Iterable[Any]) -> ItemResults[Any, Any]:
        return ItemResults({tp: PRODUCERS.get(tp, []) for tp in places}, {})

    def describe_features(self) -> Any:
        return SimpleNamespace(finalized={"transaction.version": SimpleNamespace(highest=2)})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that were asked, and answered with yes."""
    questions: list[str] = []
    monkeypatch.setattr(kafkacore, "KafkaAdminClient", Admin)
    monkeypatch.setattr(Admin, "calls", [], raising=False)
    monkeypatch.setattr(typer, "confirm", lambda question, abort: questions.append(question))
    monkeypatch.setattr(transactions.time, "time_ns", lambda: 3_502_500_000_000)
    return questions


def words_of(shown: str) -> list[str]:
    """Lines without the borders of tables and what stands before a figure."""
    return [text for line in shown.splitlines() if (text := " ".join(re.sub("[┃│┏━┳┓┡╇┩├─┼┤└┴┘]", " ", line).split()))]


def said_by(line: str, asked: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """A command line with all that came of it: its output, what it asked the user and the cluster, and how it failed."""
    asked.clear()
    Admin.calls.clear()
    status = run(shlex.split(line))
    out, err = capsys.readouterr()
    found = [f"$ {line}", *words_of(out), *(f"? {each}" for each in asked), *(f"> {name} {given}" for name, *given in Admin.calls)]
    return "\n".join([*found, *(f"! {status} {each}" for each in err.splitlines())])


@pytest.mark.parametrize("command", sorted({each.split()[1] for each in TRANSCRIPT}))
def test_what_is_said_and_asked(command: str, asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [each for each in TRANSCRIPT if each.split()[1] == command]
    assert [said_by(each.partition("\n")[0].removeprefix("$ "), asked, capsys) for each in wanted] == wanted


def parameter_text(param: Any) -> str:
    """An argument or option: its names, what is shown for its value, what holds for it, and its value unless it is typed."""
    of = param if hasattr(param, "min") else param.type
    bounds = ["" if each is None else str(each) for each in (getattr(of, "min", None), getattr(of, "max", None))]
    marks = {
        str(param.metavar): param.metavar,
        "...": param.multiple or param.nargs == -1,
        "required": param.required,
        "flag": getattr(param, "is_flag", False),
        "first": param.is_eager,
        "checked": param.callback is not None,
        "completed": getattr(param, "_custom_shell_complete", None) is not None,
        f"${param.envvar}": param.envvar,
        "..".join(bounds): any(bounds),
        f"= {param.default}": param.default is not None and param.default is not False,
    }
    return " ".join(["/".join([*param.opts, *param.secondary_opts]), *(word for word, there in marks.items() if there)])


def commands_below(command: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield f"{path}{name}", [parameter_text(each) for each in below.params]
        yield from commands_below(below, f"{path}{name} ")


def test_options_and_their_values_unless_typed() -> None:
    found = dict(commands_below(typer.main.get_command(application([])), ""))
    uses = Counter(each for params in found.values() for each in params)
    everywhere = [each for each, count in uses.items() if count > 30]
    rows = {"everywhere": everywhere} | {name: [each for each in params if each not in everywhere] for name, params in found.items()}
    wanted = Path(__file__).with_name("options_of_commands.txt").read_text().splitlines()
    assert [f"{name}: {'; '.join(params)}" for name, params in rows.items()] == wanted
