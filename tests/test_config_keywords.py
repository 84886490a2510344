"""Settings as keywords: the types of config_keywords.py are those of the dataclasses, and tools see them."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import typing
from collections.abc import Sequence
from typing import Any, Literal

import kafkacore
import kafkacore.aio
from kafkacore import config, config_keywords, config_security
from tests.kit.rows import each_row

KEYWORDS = [
    (config.ProducerConfig, config_keywords.ProducerKeywords),
    (config.ConsumerConfig, config_keywords.ConsumerKeywords),
    (config.AdminConfig, config_keywords.AdminKeywords),
    (config.ClientConfig, config_keywords.ClientKeywords),
    (config_security.SecuritySettings, config_keywords.SecurityKeywords),
]
WIDER: dict[str, Any] = {
    "acks": int | Literal["all", "-1", "0", "1"],
    "compression_type": str | None,
    "interceptors": Sequence[Any],
    "sasl_oauthbearer_allowed_urls": str | Sequence[str] | None,
}
CLIENTS = [
    (each, described)
    for package in (kafkacore, kafkacore.aio)
    for each, described in (
        (package.KafkaProducer, config.ProducerConfig),
        (package.KafkaConsumer, config.ConsumerConfig),
        (package.KafkaAdminClient, config.AdminConfig),
    )
]


def taken(name: str, kept: Any) -> Any:
    """What a keyword takes for a setting that is kept as `kept`."""
    if name in WIDER:
        return WIDER[name]
    return str | Sequence[typing.get_args(kept)[0]] if typing.get_origin(kept) is tuple else kept


@each_row(("described", "keywords"), KEYWORDS, ids=lambda each: each.__name__)
def test_names_and_types_are_those_of_the_settings(described: Any, keywords: Any) -> None:
    kept = typing.get_type_hints(described)
    fields = {field.name for field in dataclasses.fields(described)}
    found = typing.get_type_hints(keywords)
    assert found == {name: taken(name, kept[name]) for name in fields}
    assert not keywords.__required_keys__


def test_what_a_keyword_takes_is_taken() -> None:
    for acks in typing.get_args(typing.get_args(WIDER["acks"])[1]):
        config.ProducerConfig.from_user(bootstrap_servers=["a:1", "b:2"], acks=acks)
    assert config.ProducerConfig.from_user(bootstrap_servers="a:1", compression_type=None).compression_type == "none"
    given = config.ConsumerConfig.from_user(bootstrap_servers="a:1", partition_assignment_strategy="range")
    assert given.partition_assignment_strategy == ("range",)


@each_row(("client", "described"), CLIENTS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_signature_and_help_name_every_setting(client: Any, described: Any) -> None:
    hints = typing.get_type_hints(client.__init__)
    assert typing.get_origin(hints["settings"]) is typing.Unpack
    assert set(typing.get_args(hints["settings"])[0].__annotations__) == set(described.names())
    assert inspect.signature(client).parameters["settings"].kind is inspect.Parameter.VAR_KEYWORD
    text = pydoc.plain(pydoc.render_doc(client))
    listed = {name for line in text.splitlines() if ": " in line for name in line.strip(" |").partition(": ")[0].split(", ")}
    assert set(described.names()) <= listed
