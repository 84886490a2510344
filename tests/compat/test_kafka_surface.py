"""kafka-python's public names and kafkacore.compat.kafka's, compared by introspection."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from kafkacore.compat.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from kafkacore.compat.kafka.admin_base import ADMIN_SETTINGS
from kafkacore.compat.kafka.consumer_settings import CONSUMER_SETTINGS
from kafkacore.compat.kafka.producer import PRODUCER_SETTINGS
from kafkacore.compat.settings import NoEffect, Ours, Own, Refused
from tests.kit.rows import each_row

real = pytest.importorskip("kafka", minversion="3.0")

CLIENTS = {"KafkaProducer": KafkaProducer, "KafkaConsumer": KafkaConsumer, "KafkaAdminClient": KafkaAdminClient}
TABLES = {"KafkaProducer": PRODUCER_SETTINGS, "KafkaConsumer": CONSUMER_SETTINGS, "KafkaAdminClient": ADMIN_SETTINGS}
NOT_COVERED = {
    "KafkaAdminClient.api_versions": "the engine keeps the versions of each connection, not of the cluster, and hands none out",
    "KafkaAdminClient.get_broker_version_data": "a class of kafka-python's protocol layer, which is not there",
}
OTHER_DEFAULTS = {
    "client_id": "names the program that runs",
    "partitioner": "an object of the package",
    "kafka_client": "a class of the package",
    "partition_assignment_strategy": "classes of the package",
    "default_offset_commit_callback": "a function of the package",
}


def public(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))]


def methods() -> list[tuple[str, str]]:
    return [(name, method) for name in CLIENTS for method in public(getattr(real, name))]


def shape(fn: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters."""
    parameters = inspect.signature(fn).parameters.values()
    return [(each.name, each.kind, repr(each.default)) for each in parameters if each.name not in ("self", "cls")]


@each_row(("client", "method"), methods(), ids=[".".join(each) for each in methods()])
def test_a_method_is_there_with_its_signature(client: str, method: str) -> None:
    ours = getattr(CLIENTS[client], method, None)
    if f"{client}.{method}" in NOT_COVERED:
        assert ours is None
        return
    assert shape(ours) == shape(getattr(getattr(real, client), method))


def test_what_is_not_covered_is_there_in_kafka_python() -> None:
    assert set(NOT_COVERED) <= {".".join(each) for each in methods()}


@each_row("client", CLIENTS)
def test_every_setting_is_in_the_table_with_its_default(client: str) -> None:
    theirs, ours = getattr(real, client).DEFAULT_CONFIG, CLIENTS[client].DEFAULT_CONFIG
    assert set(theirs) == set(ours) == set(TABLES[client])
    different = {name for name in theirs if theirs[name] != ours[name]} - set(OTHER_DEFAULTS)
    assert different == set()
    assert all(type(each) in (Ours, Own, NoEffect, Refused) for each in TABLES[client].values())


@each_row("client", CLIENTS)
def test_refused_settings_say_why(client: str) -> None:
    for name, kind in TABLES[client].items():
        if isinstance(kind, Refused):
            with pytest.raises(errors.KafkaConfigurationError) as caught:
                CLIENTS[client](bootstrap_servers="127.0.0.1:1", **{name: "other"})
            assert name in str(caught.value)
            assert kind.why in str(caught.value)


def test_settings_without_effect_are_answered_with_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    for name, kind in PRODUCER_SETTINGS.items():
        if isinstance(kind, NoEffect):
            value: Any = (2, 0) if name == "api_version" else 3
            caplog.clear()
            KafkaProducer(bootstrap_servers="127.0.0.1:1", **{"api_version": (4, 3), name: value}).close(0)
            assert any(name in record.getMessage() and kind.why in record.getMessage() for record in caplog.records), name


def test_the_page_about_moving_names_what_is_refused_and_what_has_no_effect() -> None:
    page = (Path(__file__).parents[2] / "docs" / "moving-from-kafka-python.md").read_text()
    for table in TABLES.values():
        for name, kind in table.items():
            assert isinstance(kind, Ours) or f"`{name}`" in page, name
    for name in NOT_COVERED:
        assert f"{name.rpartition('.')[2]}()" in page


@each_row("name", ["errors", "structs", "serializer", "partitioner", "future", "admin"])
def test_names_of_a_module_are_there(name: str) -> None:
    theirs, ours = importlib.import_module(f"kafka.{name}"), importlib.import_module(f"kafkacore.compat.kafka.{name}")
    own = [each for each, value in vars(theirs).items() if not each.startswith("_") and getattr(value, "__module__", "") == theirs.__name__]
    wanted = getattr(theirs, "__all__", own)
    assert [each for each in wanted if not hasattr(ours, each)] == []


def test_the_package_exports_what_kafka_python_does() -> None:
    package = importlib.import_module("kafkacore.compat.kafka")
    assert set(real.__all__) - {"TopicPartition"} <= set(package.__all__)
    for name in ("ConsumerGroupMetadata", "OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition", "TopicPartitionReplica"):
        structs = importlib.import_module("kafka.structs")
        ours = getattr(importlib.import_module("kafkacore.compat.kafka.structs"), name)
        theirs = getattr(structs, name)
        assert (ours._fields, ours._field_defaults) == (theirs._fields, theirs._field_defaults)


def test_enumerations_have_the_same_members() -> None:
    theirs, ours = importlib.import_module("kafka.admin"), importlib.import_module("kafkacore.compat.kafka.admin")
    for name in theirs.__all__:
        members = getattr(getattr(theirs, name), "__members__", None)
        if members is not None:
            found = getattr(ours, name).__members__
            assert {key: each.value for key, each in members.items()} == {key: each.value for key, each in found.items()}
