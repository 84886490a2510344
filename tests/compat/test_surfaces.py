"""Names, signatures and settings of aiokafka and kafka-python and of their names here, by introspection; the pages about moving."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafkacore.compat import aiokafka, confluent, kafka
from kafkacore.compat.aiokafka import structs
from kafkacore.compat.aiokafka.admin import AIOKafkaAdminClient
from kafkacore.compat.aiokafka.common_settings import COMMON, COMMON_DEFAULTS
from kafkacore.compat.aiokafka.consumer_settings import CONSUMER_DEFAULTS, CONSUMER_SETTINGS
from kafkacore.compat.aiokafka.producer.producer import PRODUCER_DEFAULTS, PRODUCER_SETTINGS
from kafkacore.compat.confluent import client_settings as librdkafkas
from kafkacore.compat.confluent.admin import AdminClient
from kafkacore.compat.confluent.admin.base import ADMIN_SETTINGS
from kafkacore.compat.confluent.not_covered import NOT_COVERED as NOT_OF_CONFLUENT
from kafkacore.compat.kafka import admin_base, consumer_settings
from kafkacore.compat.kafka import producer as kafka_producer
from kafkacore.compat.settings import NoEffect, Ours, Own, Refused
from tests.kit.rows import each_row

REAL = {name: pytest.importorskip(name, minversion=version) for name, version in (("aiokafka", "0.14"), ("kafka", "3.0"))}
DOCS = Path(__file__).parents[2] / "docs"
NOWHERE = "127.0.0.1:1"

MODULES = {
    "aiokafka": (
        "abc admin admin.client admin.config_resource admin.new_partitions admin.new_topic admin.records_to_delete consumer"
        " coordinator.assignors.range coordinator.assignors.roundrobin coordinator.assignors.sticky.sticky_assignor"
        " errors helpers partitioner producer structs"
    ).split(),
    "kafka": ["errors", "structs", "serializer", "partitioner", "future", "admin"],
}
"""Modules that programs import from, and whose names are here."""
INSIDES = (
    "client cluster codec conn util protocol record consumer.consumer consumer.fetcher consumer.group_coordinator"
    " consumer.subscription_state producer.producer producer.message_accumulator producer.sender producer.transaction_manager"
    " coordinator coordinator.assignors"
    " coordinator.protocol coordinator.assignors.abstract coordinator.assignors.sticky coordinator.assignors.sticky.partition_movements"
    " coordinator.assignors.sticky.sorted_set"
).split()
"""Those of aiokafka that are not here: the engine has its own."""
NAMES_NOT_COVERED = {
    ("aiokafka", "coordinator.assignors.sticky.sticky_assignor"): {
        "ConsumerGenerationPair",
        "ConsumerSubscription",
        "StickyAssignmentExecutor",
        "StickyAssignorMemberMetadataV1",
        "StickyAssignorUserDataV1",
        "has_identical_list_elements",
        "partitions_comparator_key",
        "remove_if_present",
        "subscriptions_comparator_key",
    },
    ("aiokafka", "structs"): {"KT", "VT"},
}
"""The sticky assignor's insides; type variables."""
NOT_COVERED = {"aiokafka": ["AIOKafkaClient"], "kafka": ["KafkaAdminClient.api_versions", "KafkaAdminClient.get_broker_version_data"]}
"""Network and protocol layers: the engine has its own, and hands none out."""
CLIENTS: dict[str, tuple[Any, Any, Any]] = {
    "aiokafka.AIOKafkaProducer": (aiokafka.AIOKafkaProducer, PRODUCER_SETTINGS, PRODUCER_DEFAULTS),
    "aiokafka.AIOKafkaConsumer": (aiokafka.AIOKafkaConsumer, CONSUMER_SETTINGS, CONSUMER_DEFAULTS),
    "aiokafka.admin.AIOKafkaAdminClient": (AIOKafkaAdminClient, COMMON, COMMON_DEFAULTS),
    "kafka.KafkaProducer": (kafka.KafkaProducer, kafka_producer.PRODUCER_SETTINGS, kafka.KafkaProducer.DEFAULT_CONFIG),
    "kafka.KafkaConsumer": (kafka.KafkaConsumer, consumer_settings.CONSUMER_SETTINGS, kafka.KafkaConsumer.DEFAULT_CONFIG),
    "kafka.KafkaAdminClient": (kafka.KafkaAdminClient, admin_base.ADMIN_SETTINGS, kafka.KafkaAdminClient.DEFAULT_CONFIG),
}
LIBRDKAFKAS = [
    ("producers", confluent.Producer, librdkafkas.PRODUCER_SETTINGS),
    ("consumers", confluent.Consumer, librdkafkas.CONSUMER_SETTINGS),
    ("admin clients", AdminClient, ADMIN_SETTINGS),
]
OTHER_DEFAULTS = {"client_id", "acks", "partitioner", "kafka_client", "partition_assignment_strategy", "default_offset_commit_callback"}
"""Objects of the packages, or the name of the program that runs."""
ASSIGNORS = ("RangePartitionAssignor", "RoundRobinPartitionAssignor", "StickyPartitionAssignor")
"""Here these are names for a setting, without methods."""


def their_module(package: str, name: str) -> Any:
    return importlib.import_module(f"{package}.{name}")


def our_module(package: str, name: str) -> Any:
    return importlib.import_module(f"kafkacore.compat.{package}.{name}")


def own_names(module: ModuleType) -> list[str]:
    """What a module defines or declares to export."""
    declared = getattr(module, "__all__", ())
    if declared and module.__name__.startswith("kafka."):
        return sorted(declared)
    found = [each for each, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return sorted({each for each in (*found, *declared) if not each.startswith("_")})


def shape(fn: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters."""
    return [
        (each.name, each.kind, "its own" if each.name in OTHER_DEFAULTS else repr(each.default))
        for each in inspect.signature(fn).parameters.values()
        if each.name not in ("self", "cls")
    ]


def classes() -> dict[str, tuple[Any, Any]]:
    """By name: theirs, ours."""
    found = {
        "BatchBuilder": (
            their_module("aiokafka", "producer.message_accumulator").BatchBuilder,
            our_module("aiokafka", "batch").BatchBuilder,
        )
    }
    context = "TransactionContext"
    found[context] = tuple(getattr(each("aiokafka", "producer.producer"), context) for each in (their_module, our_module))  # type: ignore[assignment]
    for module in MODULES["aiokafka"]:
        for name in {*own_names(their_module("aiokafka", module))} - NAMES_NOT_COVERED.get(("aiokafka", module), set()) - {*ASSIGNORS}:
            value = getattr(their_module("aiokafka", module), name)
            if inspect.isclass(value) and not issubclass(value, Exception):
                found.setdefault(name, (value, getattr(our_module("aiokafka", module), name)))
    for name in ("KafkaProducer", "KafkaConsumer", "KafkaAdminClient"):
        found[name] = getattr(REAL["kafka"], name), getattr(kafka, name)
    return found


@each_row("package", MODULES)
def test_names_of_modules_are_there(package: str) -> None:
    for name in MODULES[package]:
        absent = {each for each in own_names(their_module(package, name)) if not hasattr(our_module(package, name), each)}
        assert absent == NAMES_NOT_COVERED.get((package, name), set()), name
    exported = {*REAL[package].__all__} - {*our_module(package, "structs").__all__, *NOT_COVERED[package]}
    assert exported <= {*importlib.import_module(f"kafkacore.compat.{package}").__all__}


def test_every_module_of_aiokafka_is_there_or_listed() -> None:
    modules = {each.name.removeprefix("aiokafka.") for each in pkgutil.walk_packages(REAL["aiokafka"].__path__, "aiokafka.")}
    assert {name for name in modules if not name.startswith(("protocol.", "record."))} == {*MODULES["aiokafka"], *INSIDES}


@each_row(("name", "pair"), lambda: classes().items())
def test_a_class_has_its_methods_and_signatures(name: str, pair: tuple[Any, Any]) -> None:
    wanted, found = pair
    package = wanted.__module__.partition(".")[0]
    methods = [each for each in dir(wanted) if not each.startswith("_") and inspect.isroutine(getattr(wanted, each))]
    methods = [each for each in methods if str(getattr(getattr(wanted, each), "__module__", "")).startswith(package)]
    special = [each for each in ("__aenter__", "__aexit__", "__aiter__", "__anext__", "__call__") if hasattr(wanted, each)]
    for method in [*methods, *special]:
        theirs_, ours_ = getattr(wanted, method), getattr(found, method, None)
        if f"{name}.{method}" in NOT_COVERED[package]:
            assert ours_ is None
            continue
        assert ours_ is not None, method
        assert method in special or shape(theirs_) == shape(ours_), method
        if inspect.iscoroutinefunction(theirs_):
            assert inspect.iscoroutinefunction(ours_), method
    properties = [each for each in dir(wanted) if not each.startswith("_") and isinstance(getattr(wanted, each), property)]
    assert [each for each in properties if not hasattr(found, each) and each != "client"] == []
    if package == "aiokafka" and name not in ("ConsumerRecord", "AbstractTokenProvider", "ConsumerRebalanceListener", "DefaultPartitioner"):
        assert shape(wanted) == shape(found)


@each_row("package", MODULES)
def test_tuples_and_enumerations_are_the_same(package: str) -> None:
    for name in our_module(package, "structs").__all__:
        wanted, found = getattr(their_module(package, "structs"), name, None), getattr(our_module(package, "structs"), name)
        if hasattr(wanted, "_fields") and name != "ConsumerRecord":
            assert (found._fields, found._field_defaults) == (wanted._fields, wanted._field_defaults)
    for name in own_names(their_module(package, "admin")):
        if members := getattr(getattr(their_module(package, "admin"), name), "__members__", None):
            found = getattr(our_module(package, "admin"), name).__members__
            assert {key: each.value for key, each in members.items()} == {key: each.value for key, each in found.items()}


def test_a_record_can_be_made_as_aiokafkas() -> None:
    given = ("t", 1, 2, 3, 0, "key", {"a": 1}, None, 3, 8, (("h", b"1"),))
    wanted, found = their_module("aiokafka", "structs").ConsumerRecord(*given), structs.ConsumerRecord(*given)
    assert [each.name for each in dataclasses.fields(wanted)] == [each.name for each in dataclasses.fields(structs.ConsumerRecord)]
    assert dataclasses.astuple(found) == dataclasses.astuple(wanted)
    assert repr(found) == repr(wanted)
    assert dataclasses.replace(found, value=b"other").value == b"other"
    assert structs.ConsumerRecord[str, bytes].__origin__ is structs.ConsumerRecord
    match found:
        case structs.ConsumerRecord(topic=topic, value=value):
            assert (topic, value) == ("t", {"a": 1})


def test_a_deserialized_record_is_what_was_read_with_other_values() -> None:
    read = structs.ConsumerRecord("t", 1, 2, 3, 1, b"key", None, None, 3, -1, (("h", b"1"),))
    found = structs.deserialized(read, "key", [1])
    shown = ("t", 1, 2, 3, 1, "key", [1], None, 3, -1, (("h", b"1"),))
    assert dataclasses.astuple(found) == shown
    assert (repr(found), found) == (repr(structs.ConsumerRecord(*shown)), structs.ConsumerRecord(*shown))
    assert dataclasses.replace(found, offset=9) == structs.ConsumerRecord(*shown[:2], 9, *shown[3:])
    assert pickle.loads(pickle.dumps(found)) == found
    assert (found.timestamp_ms, found.leader_epoch) == (3, -1)
    with pytest.raises(TypeError):
        hash(found)


# ---- settings


@each_row("client", CLIENTS)
def test_every_setting_is_in_the_table_with_its_default(client: str) -> None:
    _, table, defaults = CLIENTS[client]
    module, _, name = client.rpartition(".")
    real = getattr(importlib.import_module(module), name)
    parameters = inspect.signature(real.__init__).parameters.values()
    wanted = getattr(real, "DEFAULT_CONFIG", None) or {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert set(wanted) == set(table) == set(defaults)
    assert {name for name in wanted if wanted[name] != defaults[name]} <= OTHER_DEFAULTS
    assert all(type(each) in (Ours, Own, NoEffect, Refused) for each in table.values())


@each_row("client", CLIENTS)
def test_refused_settings_and_those_without_effect_say_why(client: str, caplog: pytest.LogCaptureFixture) -> None:
    kind, table, _ = CLIENTS[client]
    refusal = ValueError if client.startswith("aiokafka") else kafka.errors.KafkaConfigurationError

    async def made(**settings: Any) -> None:
        client = kind(bootstrap_servers=NOWHERE, **settings)
        ended = (client.stop if hasattr(client, "stop") else client.close)()
        if inspect.isawaitable(ended):
            await ended

    for name, what in table.items():
        if isinstance(what, Refused):
            with pytest.raises(refusal, match=name) as caught:
                asyncio.run(made(**{name: "other"}))
            assert what.why in str(caught.value)
        elif isinstance(what, NoEffect) and client != "kafka.KafkaAdminClient":  # which asks a broker at once
            caplog.clear()
            here = {} if client.startswith("aiokafka") else {"api_version": (4, 3)}
            asyncio.run(made(**here | {name: (2, 0) if name == "api_version" else 3}))
            assert any(name in record.getMessage() and what.why in record.getMessage() for record in caplog.records), name


@each_row(("clients", "client", "table"), LIBRDKAFKAS)
def test_refused_settings_of_librdkafka_say_why(clients: str, client: Any, table: Any) -> None:
    for name, kind in table.items():
        if isinstance(kind, Refused):
            value: Any = print if name.endswith("_cb") else "other"
            with pytest.raises(confluent.KafkaException) as caught:
                client({"bootstrap.servers": NOWHERE, "group.id": "g", name: value})
            error = caught.value.args[0]
            assert (error.name(), kind.why in error.str(), name in error.str()) == ("_INVALID_ARG", True, True)


def test_no_client_of_aiokafka_is_made_outside_of_a_loop() -> None:
    for client in ("AIOKafkaProducer", "AIOKafkaConsumer", "admin.AIOKafkaAdminClient"):
        with pytest.raises(RuntimeError, match="coroutine"):
            CLIENTS[f"aiokafka.{client}"][0]()


# ---- pages


@each_row(("package", "page"), [("aiokafka", "aiokafka"), ("kafka", "kafka-python")])
def test_a_page_names_what_differs(package: str, page: str) -> None:
    text = (DOCS / f"moving-from-{page}.md").read_text()
    for client, (_, table, _) in CLIENTS.items():
        for name, kind in table.items():
            assert not client.startswith(package) or isinstance(kind, Ours) or f"`{name}`" in text, name
    for name in NOT_COVERED[package]:
        assert name.rpartition(".")[2] in text


def test_the_page_of_confluent_kafka_says_what_the_tables_say() -> None:
    text = (DOCS / "moving-from-confluent-kafka.md").read_text()
    rows = text.split("| setting (default) | here |")[1].split("\n\n")[0].splitlines()[2:]
    by_name = {name: row for row in rows for name, _ in re.findall(r"`([^`]+)`(?: \(`([^`]*)`\))?", row.split(" | ")[0])}
    assert {librdkafkas.ALIASES.get(name, name) for name in by_name} == {*librdkafkas.PRODUCER_SETTINGS, *librdkafkas.CONSUMER_SETTINGS}
    for clients, _, table in LIBRDKAFKAS:
        for name, kind in table.items():
            said = f"`{kind.name or name}`" if isinstance(kind, Ours) else kind.how if isinstance(kind, Own) else kind.why
            assert said in by_name[name] or said.startswith("it is a setting of "), (clients, name)
            default = librdkafkas.DEFAULTS[name]
            shown = str(default).lower() if isinstance(default, bool) else default
            assert default in (None, "") or f"(`{shown}`)" in by_name[name], (clients, name)
    table = text.split("| not covered | reason |")[1].split("\n\n")[0].splitlines()[2:]
    assert table == [f"| `{name}` | {why} |" for name, why in NOT_OF_CONFLUENT.items()]
