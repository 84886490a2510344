"""What all settings share: names in two spellings, conversion, checks.

How a field is checked: by its annotation (a string from a file or a command line is turned into the number or truth value the annotation
asks for), then by the constraint in its metadata (`between`, `one_of`), then by the class's `_check` where fields depend on each other.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from kafkacore.config_names import OF_JAVA, hint
from kafkacore.config_values import convert, sentences_of
from kafkacore.errors import ConfigError

_OF_KINIT = frozenset(
    (
        "sasl_kerberos_kinit_cmd",
        "sasl_kerberos_min_time_before_relogin",
        "sasl_kerberos_ticket_renew_jitter",
        "sasl_kerberos_ticket_renew_window_factor",
    )
)
"""Kafka's settings of the thread that renews tickets by the command kinit."""


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of all settings."""

    def __new__(cls, **settings: Any) -> Self:
        made = super().__new__(cls)
        made.__dict__["_given"] = frozenset(settings)
        return made

    def __post_init__(self) -> None:
        cls: Any = type(self)
        hints = _hints(cls)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            try:
                value = convert(hints[field.name], value)
            except ValueError as failure:
                raise ConfigError(f"{field.name} must be {failure}" + (f", not {value!r}" if field.repr else "")) from None
            check = field.metadata.get("check")
            problem = check.problem(value) if check is not None and value is not None else None
            if problem:
                raise ConfigError(f"{field.name} {problem}" + (f", not {value!r}" if field.repr else ""))
            object.__setattr__(self, field.name, value)
        self._check()

    def _check(self) -> None:
        """Rules between fields; extended by subclasses."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all settings, snake_cased."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def from_user(cls, mapping: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        """Builds the settings from what a user wrote.

        Args:
            mapping: settings under dotted or snake_cased names.
            **settings: more of them, as keywords.

        Returns:
            The checked settings.

        Raises:
            ConfigError: an unknown name (the nearest known one is named), a name given twice, or a value that is refused.
        """
        known = set(cls.names())
        found: dict[str, Any] = {}
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(f"settings are a mapping, as {{'bootstrap.servers': ...}}, or keywords, not {mapping!r}")
        for given, value in [*(mapping or {}).items(), *settings.items()]:
            if not isinstance(given, str):
                raise ConfigError(f"a setting's name must be a string, not {given!r}")
            name = given.replace(".", "_")
            if name not in known and OF_JAVA.get(name) in known:
                name = OF_JAVA[name]
            if name not in known and name in _OF_KINIT:
                raise ConfigError(
                    f"{given} cannot be set: no command is run for Kerberos tickets. A keytab gets new ones by itself; those of a cache are"
                    f" renewed outside, by kinit -R. Leave {given} out"
                )
            if name not in known:
                raise ConfigError(f"unknown setting {given!r} for {cls.__name__}{cls._meant(given)}")
            if name in found:
                raise ConfigError(f"setting {given!r} is given twice")
            found[name] = value
        return cls(**found)

    @classmethod
    def _meant(cls, given: str) -> str:
        """What may be meant by a name that is no setting of this class, as the end of a sentence."""
        return hint(given.replace(".", "_"), cls.names(), cls._of_others(), dotted="." in given)

    @classmethod
    def _of_others(cls) -> Mapping[str, Collection[str]]:
        """The names of settings of other kinds of clients, by what these are called."""
        return {}

    def replace(self, **settings: Any) -> Self:
        """A copy with some settings changed, checked again."""
        copy = dataclasses.replace(self, **settings)
        copy.__dict__["_given"] = self.given | settings.keys()
        return copy

    @property
    def given(self) -> frozenset[str]:
        """The names of the settings that were set, also those set to their defaults."""
        names: frozenset[str] = self.__dict__["_given"]
        return names

    @classmethod
    @functools.cache
    def sentences(cls) -> Mapping[str, str]:
        """What each setting is, by name, as the docstring says; empty where Python leaves docstrings out (-OO)."""
        return sentences_of(cls.__doc__)
