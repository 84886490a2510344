"""aiokafka's public names and kafkacore.compat.aiokafka's, compared by introspection."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from kafkacore.compat import aiokafka as shim
from kafkacore.compat.aiokafka import structs
from kafkacore.compat.aiokafka.common_settings import COMMON, COMMON_DEFAULTS
from kafkacore.compat.aiokafka.consumer_settings import CONSUMER_DEFAULTS, CONSUMER_SETTINGS
from kafkacore.compat.aiokafka.producer.producer import PRODUCER_DEFAULTS, PRODUCER_SETTINGS
from kafkacore.compat.settings import NoEffect, Ours, Own, Refused
from tests.kit.rows import each_row

real = pytest.importorskip("aiokafka", minversion="0.14")
ROOT = Path(__file__).parents[2]

MODULES = (
    "abc",
    "admin",
    "admin.client",
    "admin.config_resource",
    "admin.new_partitions",
    "admin.new_topic",
    "admin.records_to_delete",
    "consumer",
    "coordinator.assignors.range",
    "coordinator.assignors.roundrobin",
    "coordinator.assignors.sticky.sticky_assignor",
    "errors",
    "helpers",
    "partitioner",
    "producer",
    "structs",
)
"""Modules that programs import from, and whose names are here."""
INSIDES = "aiokafka's insides; the engine has its own"
NOT_THERE = {
    "client": INSIDES,
    "cluster": INSIDES,
    "codec": INSIDES,
    "conn": INSIDES,
    "util": INSIDES,
    "protocol": INSIDES,
    "record": INSIDES,
    "consumer.consumer": "import AIOKafkaConsumer from `consumer`",
    "consumer.fetcher": INSIDES,
    "consumer.group_coordinator": INSIDES,
    "consumer.subscription_state": INSIDES,
    "producer.producer": "import AIOKafkaProducer from `producer`",
    "producer.message_accumulator": INSIDES,
    "producer.sender": INSIDES,
    "producer.transaction_manager": INSIDES,
    "coordinator": "names of assignors are in the modules below it",
    "coordinator.assignors": "names of assignors are in the modules below it",
    "coordinator.protocol": INSIDES,
    "coordinator.assignors.abstract": "a program's own assignor derives from kafkacore.PartitionAssignor",
    "coordinator.assignors.sticky": "the assignor's name is in `sticky_assignor`",
    "coordinator.assignors.sticky.partition_movements": INSIDES,
    "coordinator.assignors.sticky.sorted_set": INSIDES,
}
NOT_COVERED = {
    "AIOKafkaClient": "aiokafka's network layer: the engine has its own, and hands none out",
}
NAMES_NOT_COVERED = {
    "coordinator.assignors.sticky.sticky_assignor": {
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
    "structs": {"KT", "VT"},
}
"""By module: the sticky assignor's insides; type variables."""
CLIENTS = {
    "AIOKafkaProducer": (PRODUCER_SETTINGS, PRODUCER_DEFAULTS),
    "AIOKafkaConsumer": (CONSUMER_SETTINGS, CONSUMER_DEFAULTS),
    "AIOKafkaAdminClient": (COMMON, COMMON_DEFAULTS),
}
OTHER_DEFAULTS = {
    "client_id": "names the program that runs",
    "acks": "an object that stands for nothing given",
    "partitioner": "an object of the package",
    "partition_assignment_strategy": "classes of the package",
}
ASSIGNOR_NAMES = ("RangePartitionAssignor", "RoundRobinPartitionAssignor", "StickyPartitionAssignor")
"""Here these are names for a setting, without methods."""


def their_module(name: str) -> Any:
    return importlib.import_module(f"aiokafka.{name}")


def our_module(name: str) -> Any:
    return importlib.import_module(f"kafkacore.compat.aiokafka.{name}")


def own_names(module: Any) -> list[str]:
    """What a module defines or declares to export."""
    found = [
        each for each, value in vars(module).items() if not each.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]
    return sorted({*found, *getattr(module, "__all__", ())})


def every_class() -> list[tuple[str, str]]:
    found = {}
    for module in MODULES:
        for name in own_names(their_module(module)):
            value = getattr(their_module(module), name)
            if inspect.isclass(value) and not issubclass(value, Exception) and name not in ASSIGNOR_NAMES:
                if name in NAMES_NOT_COVERED.get(module, ()):
                    continue
                found.setdefault(name, module)
    found["BatchBuilder"] = "batch"
    found["TransactionContext"] = "producer.producer"
    return sorted(found.items())


def real_class(name: str) -> Any:
    if name == "BatchBuilder":
        return their_module("producer.message_accumulator").BatchBuilder
    if name == "TransactionContext":
        return their_module("producer.producer").TransactionContext
    return next(getattr(their_module(module), name) for module in MODULES if hasattr(their_module(module), name))


def shape(fn: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters."""
    parameters = inspect.signature(fn).parameters.values()
    return [
        (each.name, each.kind, "its own" if each.name in OTHER_DEFAULTS else repr(each.default))
        for each in parameters
        if each.name not in ("self", "cls")
    ]


def test_every_module_is_there_or_has_its_reason() -> None:
    modules = {each.name.removeprefix("aiokafka.") for each in pkgutil.walk_packages(real.__path__, "aiokafka.")}
    insides = tuple(f"{name}." for name in ("protocol", "record"))
    assert {name for name in modules if not name.startswith(insides)} == {*MODULES, *NOT_THERE}
    for name in MODULES:
        our_module(name)


@each_row("name", MODULES)
def test_names_of_a_module_are_there(name: str) -> None:
    absent = {each for each in own_names(their_module(name)) if not hasattr(our_module(name), each)}
    assert absent == NAMES_NOT_COVERED.get(name, set())


def test_the_package_exports_what_aiokafka_does() -> None:
    assert set(real.__all__) - set(shim.__all__) == set(NOT_COVERED)
    assert [name for name in NOT_COVERED if not hasattr(real, name)] == []


@each_row(("name", "module"), every_class(), ids=[name for name, _ in every_class()])
def test_a_class_has_its_methods_and_signatures(name: str, module: str) -> None:
    wanted, found = real_class(name), getattr(our_module(module), name)
    methods = [each for each in dir(wanted) if not each.startswith("_") and inspect.isroutine(getattr(wanted, each))]
    methods = [each for each in methods if str(getattr(getattr(wanted, each), "__module__", "")).startswith("aiokafka")]
    special = [each for each in ("__aenter__", "__aexit__", "__aiter__", "__anext__", "__call__") if hasattr(wanted, each)]
    for method in [*methods, *special]:
        theirs_, ours_ = getattr(wanted, method), getattr(found, method, None)
        assert ours_ is not None, method
        assert method in special or shape(theirs_) == shape(ours_), method
        if inspect.iscoroutinefunction(theirs_):
            assert inspect.iscoroutinefunction(ours_), method
    properties = [each for each in dir(wanted) if not each.startswith("_") and isinstance(getattr(wanted, each), property)]
    assert [each for each in properties if not hasattr(found, each) and each != "client"] == []
    if name not in ("ConsumerRecord", "AbstractTokenProvider", "ConsumerRebalanceListener", "DefaultPartitioner"):
        assert shape(wanted) == shape(found)


def test_tuples_and_records_have_the_same_fields() -> None:
    for name in structs.__all__:
        wanted, found = getattr(their_module("structs"), name), getattr(structs, name)
        if name == "ConsumerRecord":
            assert [each.name for each in dataclasses.fields(wanted)] == [each.name for each in dataclasses.fields(found)]
        else:
            assert (found._fields, found._field_defaults) == (wanted._fields, wanted._field_defaults)


def test_a_record_can_be_made_as_aiokafkas() -> None:
    given = ("t", 1, 2, 3, 0, "key", {"a": 1}, None, 3, 8, (("h", b"1"),))
    wanted, found = their_module("structs").ConsumerRecord(*given), structs.ConsumerRecord(*given)
    assert dataclasses.astuple(found) == dataclasses.astuple(wanted)
    assert repr(found) == repr(wanted)
    assert dataclasses.replace(found, value=b"other").value == b"other"
    assert isinstance(found, structs.ConsumerRecord)
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


@each_row("client", CLIENTS)
def test_every_setting_is_in_the_table_with_its_default(client: str) -> None:
    table, defaults = CLIENTS[client]
    parameters = inspect.signature(real_class(client).__init__).parameters.values()
    wanted = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert set(wanted) == set(table) == set(defaults)
    assert {name for name in wanted if wanted[name] != defaults[name]} <= set(OTHER_DEFAULTS)
    assert all(type(each) in (Ours, Own, NoEffect, Refused) for each in table.values())


@pytest.mark.parametrize("client", CLIENTS)
def test_refused_settings_and_those_without_effect_say_why(client: str, caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    async def made(**settings: Any) -> None:
        found = getattr(shim, client, None) or our_module("admin").AIOKafkaAdminClient
        made = found(bootstrap_servers="127.0.0.1:1", **settings)
        await (made.stop if hasattr(made, "stop") else made.close)()

    for name, kind in CLIENTS[client][0].items():
        if isinstance(kind, Refused):
            with pytest.raises(ValueError, match=name) as caught:
                asyncio.run(made(**{name: "other"}))
            assert kind.why in str(caught.value)
        elif isinstance(kind, NoEffect):
            caplog.clear()
            asyncio.run(made(**{name: 3}))
            assert any(name in record.getMessage() and kind.why in record.getMessage() for record in caplog.records), name


def test_the_page_about_moving_names_what_differs() -> None:
    page = (ROOT / "docs" / "moving-from-aiokafka.md").read_text()
    for table, _ in CLIENTS.values():
        for name, kind in table.items():
            assert isinstance(kind, Ours) or f"`{name}`" in page, name
    for name in NOT_COVERED:
        assert f"`{name}`" in page


def test_no_client_is_made_outside_of_a_loop() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for client in (shim.AIOKafkaProducer, shim.AIOKafkaConsumer, our_module("admin").AIOKafkaAdminClient):
            with pytest.raises(RuntimeError, match="coroutine"):
                client()
