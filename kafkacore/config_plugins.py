"""Objects of a program's own as settings: partitioners, serializers, deserializers, interceptors.

Each is an instance, a class, or the name of a class as "module:Class" (or with dots, as in Java). A class is made without arguments. What
has a method `configure` is configured, once for each client that uses it: it gets the settings that were given, under Kafka's dotted names.

Source: AbstractConfig.getConfiguredInstance, org.apache.kafka.common.Configurable.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from kafkacore.config_base import Settings
from kafkacore.errors import ConfigError

_SERIALIZATION = "org.apache.kafka.common.serialization"
_PRODUCER = "org.apache.kafka.clients.producer"
OF_JAVA: dict[str, Any] = {
    f"{_PRODUCER}.RoundRobinPartitioner": "round_robin",
    f"{_PRODUCER}.internals.DefaultPartitioner": "murmur2",
    f"{_SERIALIZATION}.StringSerializer": None,
    f"{_SERIALIZATION}.ByteArraySerializer": None,
    f"{_SERIALIZATION}.StringDeserializer": bytes.decode,
    f"{_SERIALIZATION}.ByteArrayDeserializer": None,
}
"""Java's own classes that are something here."""


def loaded(name: str, value: Any, wanted: str) -> Any:
    """What a setting is: the class, where it is a class's name.

    Args:
        name: of the setting.
        value: as it was given.
        wanted: what else it may be, for errors.

    Raises:
        ConfigError: there is no such class, or it is something else.
    """
    if not isinstance(value, str):
        return value
    if value in OF_JAVA:
        return OF_JAVA[value]
    module, colon, path = value.partition(":")
    if not colon:
        module, _, path = value.rpartition(".")
    if not module or not path:
        raise ConfigError(f"{name} must be {wanted}, a class or its name as module:Class, not {value!r}")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # of the module's own code, too
        raise ConfigError(f"{name}={value!r} cannot be loaded: {error}") from error
    if not isinstance(found, type):  # text of a settings file calls no function
        raise ConfigError(f"{name}={value!r} is no class")
    return found


def made(settings: Settings, name: str, methods: Sequence[str]) -> Any:
    """The object of a setting, made and configured.

    Args:
        settings: of the client.
        name: of the setting.
        methods: what such an object has, one of them: a class without any is a function, as `int` is.

    Raises:
        ConfigError: it cannot be made, or its `configure` has failed.
    """
    return _one(settings, name, getattr(settings, name), methods)


def made_list(settings: Settings, name: str, methods: Sequence[str]) -> tuple[Any, ...]:
    """The same of a setting that is a list."""
    return tuple(_one(settings, name, each, methods) for each in getattr(settings, name))


def _one(settings: Settings, name: str, value: Any, methods: Sequence[str]) -> Any:
    what, step = value, ""
    try:
        if isinstance(value, type) and any(_defines(value, method) for method in (*methods, "configure")):
            step = f"{value.__name__}()"
            what = value()
        configure = None if isinstance(what, type) else getattr(what, "configure", None)
        if callable(configure):
            step = f"configure() of {type(what).__name__}"
            configs = {each.replace("_", "."): getattr(settings, each) for each in sorted(settings.given)}
            configure(*((configs, name.startswith("key")) if _takes(configure) == 2 else (configs,)))
    except Exception as error:
        raise ConfigError(f"{name}: {step} failed: {error}") from error
    return what


def _defines(cls: type, method: str) -> bool:
    return any(method in vars(base) for base in cls.__mro__)


def _takes(fn: Any) -> int:
    """How many arguments a method of a program takes, those that need not be given left out; -1 where that is not known."""
    try:
        found = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return -1
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in found)


def partition_method(partitioner: Any) -> tuple[Any, bool]:
    """How a partitioner is called, and whether as Java's: partition(topic, key, key_bytes, value, value_bytes, cluster).

    Raises:
        ConfigError: it is none.
    """
    method = getattr(partitioner, "partition", None)
    if callable(method):
        return method, _takes(method) == 6
    if not callable(partitioner):
        raise ConfigError(f"partitioner: {partitioner!r} has no partition(topic, key, value, cluster), and cannot be called")
    return partitioner, False
