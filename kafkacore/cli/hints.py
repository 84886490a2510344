"""What may have been meant by a name that the cluster does not know: asked of the cluster once the command has failed."""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from kafkacore import errors

if TYPE_CHECKING:
    from kafkacore import KafkaAdminClient

PATIENCE_MS = 1_000
_NEAR = 0.7
_UNKNOWN_SETTING = re.compile(r"Unknown (topic|broker) config name: (\S+)")
_WITH_PARTITION = re.compile(r"(.+):([0-9]+)")

_seen: ContextVar[list[BaseException] | None] = ContextVar("_seen", default=None)
_client: ContextVar[Callable[[], KafkaAdminClient] | None] = ContextVar("_client", default=None)


def begin() -> None:
    """A command line begins."""
    _seen.set([])
    _client.set(None)


def saw(error: BaseException) -> None:
    """An error became text for the user."""
    if (found := _seen.get()) is not None:
        found.append(error)


def ask_by(client: Callable[[], KafkaAdminClient]) -> None:
    """Who makes a client for the cluster of this command."""
    _client.set(client)


def hint(failed: BaseException) -> str:
    """The end of a sentence about a failure; "" where nothing is known.

    Args:
        failed: what the command ended with.
    """
    found = list(_all(failed, *(_seen.get() or ())))
    topics = {each.topic for each in found if isinstance(each, errors.UnknownTopicOrPartition) and each.topic}
    invalid = {each.topic for each in found if isinstance(each, errors.InvalidTopic) and each.topic}
    refused = [each.message for each in found if isinstance(each, errors.KafkaError) and each.code == errors.Code.INVALID_CONFIG]
    settings = {match.groups() for text in refused for match in _UNKNOWN_SETTING.finditer(text)}
    said = [
        f"the topic is {match[1]}, and --partition {match[2]} says which partition, where a command takes one"
        for name in sorted(invalid)
        if (match := _WITH_PARTITION.fullmatch(name))
    ]
    if topics or settings:
        meant = _meant(topics, settings)
        if len(meant) == 1 and len(topics) + len(settings) == 1:
            said += [f"did you mean {next(iter(meant.values()))}?"]
        elif meant:
            said += [f"did you mean {', '.join(f'{name} for {given}' for given, name in meant.items())}?"]
    return "".join(f"; {each}" for each in said)


def _all(*given: BaseException) -> Iterable[BaseException]:
    """Errors, with what they say of earlier tries and causes."""
    for error in given:
        yield error
        yield from _all(*getattr(error, "attempts", ()))
        if error.__cause__ is not None:
            yield from _all(error.__cause__)


def _meant(topics: set[str], settings: set[tuple[str, ...]]) -> dict[str, str]:
    """By what was given."""
    make = _client.get()
    if make is None:
        return {}
    found: dict[str, str] = {}
    before = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.suppress(Exception), make() as admin:      # a failure of its own says nothing about the command's
            known = admin.list_topics(include_internal=True)
            found |= nearest(topics, known)
            for kind, name in sorted(settings):
                some = next(iter(known)) if kind == "topic" else str(admin.describe_cluster().nodes[0].id)
                entries = admin.describe_configs([(kind, some)]).check()
                found |= nearest({name}, [entry for each in entries.values() for entry in each])
    finally:
        logging.disable(before)
    return found


def nearest(given: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """The nearest name of each; dots and case are what is mostly forgotten."""
    plain = {re.sub(r"[._-]", "", each).lower(): each for each in known}
    near = {name: difflib.get_close_matches(re.sub(r"[._-]", "", name).lower(), plain, 1, _NEAR) for name in sorted(given)}
    return {name: plain[each[0]] for name, each in near.items() if each}
