"""Other clients' settings become kafkacore's, by a table: each foreign name is one of four kinds.

* `Ours`: the engine has it, under a name and in a form of its own;
* `Own`: the face itself does what it says;
* `NoEffect`: it says how the other client does something that the engine does in another way. It is taken, and a log line says why it has
  no effect;
* `Refused`: what it asks for is not there: any other value than the client's default is an error that says why.

So no setting is ignored without a word, and a setting that would change what a program sees is never dropped, unless the program asks for
that: with the environment variable KAFKACORE_COMPAT=warn refused settings are log lines, too, so that it starts and can be looked at.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

MODE = "KAFKACORE_COMPAT"
"""The environment variable; `warn` is its one value."""

log = logging.getLogger("kafkacore.compat")


class Ours(NamedTuple):
    """A setting of the engine.

    Attributes:
        name: the engine's; None where it is the same.
        convert: from the other client's value to the engine's.
    """

    name: str | None = None
    convert: Callable[[Any], Any] | None = None


class Own(NamedTuple):
    """A setting that the face honours; `how` says where."""

    how: str


class NoEffect(NamedTuple):
    """A setting without effect; `why` is a sentence for the log."""

    why: str


class Refused(NamedTuple):
    """A setting that is refused unless it has its default; `why` is a sentence for the error."""

    why: str


Kind = Ours | Own | NoEffect | Refused


def translated(
    table: Mapping[str, Kind],
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    refuse: Callable[[str], Exception],
) -> dict[str, Any]:
    """The engine's settings.

    Args:
        table: what each foreign name is.
        defaults: of the other client, by name: they hold here too.
        given: what the program set; every name is in the table.
        refuse: makes the error of a refused setting, from its text.

    Raises:
        Exception: what `refuse` made.
    """
    mode = os.environ.get(MODE, "")
    if mode not in ("", "warn"):
        raise refuse(f"{MODE}={mode!r} in the environment: it is warn, or is not set")
    found: dict[str, Any] = {}
    for name, kind in table.items():
        value = given.get(name, defaults[name])
        changed = name in given and not _same(value, defaults[name])
        if isinstance(kind, Ours):
            found[kind.name or name] = value if kind.convert is None else kind.convert(value)
        elif changed and isinstance(kind, Refused) and mode:
            log.warning("%s=%r is not honoured: %s", name, value, kind.why)
        elif changed and isinstance(kind, Refused):
            raise refuse(f"{name}={value!r}: {kind.why}")
        elif changed and isinstance(kind, NoEffect):
            log.warning("%s=%r has no effect: %s", name, value, kind.why)
    return found


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
