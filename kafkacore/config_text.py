"""Settings of topics, groups and brokers as Kafka's requests carry them: texts."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from kafkacore.errors import UsageError

SettingValue: TypeAlias = str | bool | int | float | Sequence[str] | None
"""What a program may write for the value of a setting: its text, or what the text means; None for the default."""

_HOLDS_SECRET = re.compile(r"(?:password|secret|sasl[._]jaas[._]config|keystore[._]key)$")


def holds_secret(name: str) -> bool:
    """Whether the value of a setting is a secret, as its name says: a password, a key, a JAAS line of any listener."""
    return _HOLDS_SECRET.search(name) is not None


def _number_text(number: Any) -> str:
    """Of any Python's or numpy's; a whole one without a point, for times are often 1.5 * 3_600_000."""
    return str(int(number) if number == number // 1 else number)


def setting_text(name: str, value: SettingValue) -> str | None:
    """A setting's value as Kafka writes it: True is "true", 0.5 is "0.5", ["compact", "delete"] is "compact,delete".

    Args:
        name: of the setting, for the error.
        value: a text, a number, a truth value, a list of texts, or None.

    Raises:
        UsageError: it is something else; the value is not repeated, for it may be a password.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Real):
        return _number_text(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)) and all(isinstance(e, str) for e in value):
        return ",".join(value)
    raise UsageError(f"{name}: a value is a text, a number, a truth value or a list of texts, not {type(value).__name__}")


def setting_texts(settings: Mapping[str, SettingValue] | None) -> dict[str, str | None]:
    """The same of all settings in a mapping; none for None.

    Raises:
        UsageError: a value has no text, or it is no mapping.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise UsageError(f"configs is a mapping of settings, as {{'retention.ms': 1000}}, not {type(settings).__name__}")
    return {name: setting_text(name, value) for name, value in (settings or {}).items()}
