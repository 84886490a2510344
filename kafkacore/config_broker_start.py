"""What a broker is started with in Kafka's words, as in its server.properties: what means another setting, and what has no effect here.

    listeners=PLAINTEXT://:9092,CONTROLLER://:9093     without those of Kafka's controllers: the embedded one needs none
    log.retention.hours=168                            in milliseconds, unless log.retention.ms is there
    listener.name.plaintext.max.connections=100        among those of all listeners
    num.network.threads=3                              kept and described; no effect that a client could see
    broker.id=7                                        as node.id
    log.dirs=/var/kafka                                kept; a warning says what counts instead
    some.plugin.setting=1                              kept, as Kafka keeps it for plug-ins, with a warning; without a dot it is refused

Source: org.apache.kafka.common.config.AbstractConfig, kafka.server.KafkaConfig, org.apache.kafka.storage.internals.log.LogConfig.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kafkacore.config_broker_tables import BROKER, HARMLESS
from kafkacore.config_names import hint
from kafkacore.config_properties import NoProperties, parse_properties
from kafkacore.config_text import setting_text
from kafkacore.config_values import string_list
from kafkacore.errors import ConfigError, UsageError

logger = logging.getLogger(__name__)

_IN_MS = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "log.roll.hours": ("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", 3_600_000),
}
"""Coarser settings, the stronger ones first, and how many milliseconds their unit has."""
_INSTEAD = {
    "log.dir": "data_dir (--data-dir) says where the logs are",
    "log.dirs": "data_dir (--data-dir) says where the logs are",
    "metadata.log.dir": "data_dir (--data-dir) says where the logs are",
}
_OF_CONTROLLERS = ("controller.", "process.roles", "initial.broker.registration.timeout.ms")
"""Beginnings of names that say how Kafka's controllers find each other."""
_MAX_CONNECTIONS = re.compile(r"listener[._]name[._](?P<listener>[^.]*)[._]max[._]connections")


@functools.cache
def _defaults() -> Mapping[str, str]:
    """The default of each of Kafka's settings, as the tables have it."""
    return {row.split(" ")[0]: row.split(" ")[2] for row in BROKER.split("\n") if row}


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """A broker's settings out of a file such as Kafka's server.properties.

    Args:
        path: of the file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return parse_properties(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, NoProperties) as failure:
        raise ConfigError(f"{path} is no file of settings: {failure}") from None


def translated(settings: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """A user's settings as those of `BrokerConfig`; what has no field is under `other_settings`.

    Args:
        settings: under dotted or snake names.
        fields: the names of the fields.

    Raises:
        ConfigError: a value is none that Kafka's setting could have.
    """
    found = {given: value for given, value in settings.items() if given not in ("other_settings", "listener_name_max_connections")}
    others: dict[str, str] = dict(settings.get("other_settings") or {})
    own_limits: dict[str, int] = dict(settings.get("listener_name_max_connections") or {})
    unknown, unused = [], []
    meant = {*fields, *(name.replace(".", "_") for name in _defaults())} - {"other_settings", "listener_name_max_connections"}
    for given, value in settings.items():
        if not isinstance(given, str) or given.replace(".", "_") in fields:
            continue
        name = given if "." in given else given.replace("_", ".")
        if match := _MAX_CONNECTIONS.fullmatch(given):
            own_limits[match["listener"].upper()] = _number(given, value)
        elif name in _defaults() or "." in given:
            others[name] = _text(name, value)
            if name not in _defaults():
                unknown.append(f"{name}{hint(name.replace('.', '_'), meant, {}, dotted=True)}")
            elif name in _INSTEAD:
                logger.warning("%s=%s has no effect: %s", name, others[name], _INSTEAD[name])
            elif name not in HARMLESS and name not in _IN_MS and name != "broker.id" and not name.startswith(_OF_CONTROLLERS):
                unused += [name] if others[name] != _defaults()[name] else []
        else:
            continue
        del found[given]
    if unused:
        logger.warning("settings that have no effect on an embedded broker are kept: %s", ", ".join(sorted(unused)))
    if unknown:
        logger.warning("unknown settings are kept, and nothing reads them: %s", "; ".join(unknown))
    if "broker.id" in others and "node.id" not in found and "node_id" not in found:
        found["node_id"] = others.pop("broker.id")
    _convert_units(found, others)
    _drop_controllers(found, others)
    return found | ({"other_settings": others} if others else {}) | ({"listener_name_max_connections": own_limits} if own_limits else {})


def _text(name: str, value: Any) -> str:
    try:
        return setting_text(name, value) or ""
    except UsageError as failure:
        raise ConfigError(str(failure)) from None


def _number(name: str, value: Any) -> int:
    try:
        number = int(_text(name, value))
    except ValueError:
        number = -1
    if number < 0:
        raise ConfigError(f"{name} must be a whole number of at least 0, not {value!r}")
    return number


def _convert_units(found: dict[str, Any], others: Mapping[str, str]) -> None:
    for coarse, (fine, unit_ms) in _IN_MS.items():
        if coarse in others and fine not in found and fine.replace(".", "_") not in found:
            value = others[coarse].strip()
            if not re.fullmatch(r"-?[0-9]+", value):
                raise ConfigError(f"{coarse} must be a whole number, not {value!r}")
            found[fine] = max(int(value) * unit_ms, -1)


def _drop_controllers(found: dict[str, Any], others: Mapping[str, str]) -> None:
    names = {each.strip().upper() for each in others.get("controller.listener.names", "").split(",")} - {""}
    for given in [each for each in found if isinstance(each, str) and each.replace(".", "_") in ("listeners", "advertised_listeners")]:
        entries = string_list(found[given] or ())
        left = [each for each in entries if str(each).partition(":")[0].strip().upper() not in names]
        if len(left) < len(entries):
            found[given] = tuple(left)
