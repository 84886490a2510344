"""What the shell completes: topics and groups by asking the cluster that the command line names, and words from lists.

A completion takes a second at most and says nothing when it fails: who presses the tab key is typing something else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkacore.cli import options, setting_files

if TYPE_CHECKING:
    from kafkacore import KafkaAdminClient

PATIENCE_MS = 1_000


def words(*known: str) -> Callable[[str], list[str]]:
    """A completion from a list."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.lower().startswith(incomplete.lower())]

    return complete


def listed(*known: str) -> Callable[[str], list[str]]:
    """A completion from a list, of the last of several words with commas between."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in known if word.lower().startswith(last.lower())]

    return complete


def _asked(context: Any, incomplete: str, ask: Callable[[KafkaAdminClient], Iterable[str]]) -> list[str]:
    """The answer of the cluster that the words before name; nothing without an answer in time."""
    given = context.params
    patience = [f"{name}={PATIENCE_MS}" for name in ("default.api.timeout.ms", "request.timeout.ms", "socket.connection.setup.timeout.ms")]
    before = logging.root.manager.disable
    logging.disable()
    try:
        files, made = setting_files.of_command(context, given)
        setting_files.set_current(files)
        servers = made.get("bootstrap_server") or given.get("bootstrap_server") or options.DEFAULT_BOOTSTRAP
        with options.admin_client(servers, [*patience, *(given.get("setting") or ())]) as admin:
            taken = {word for value in given.values() if isinstance(value, (list, tuple)) for word in value}
            return [name for name in sorted(ask(admin)) if name.startswith(incomplete) and name not in taken]
    except Exception:  # whatever it is: a command line that is half typed is no place for it
        return []
    finally:
        logging.disable(before)


def topics(ctx: Any, incomplete: str) -> list[str]:
    """Names of topics."""
    return _asked(ctx, incomplete, lambda admin: admin.list_topics(include_internal=incomplete.startswith("_")))


def groups(ctx: Any, incomplete: str) -> list[str]:
    """Names of groups."""
    return _asked(ctx, incomplete, lambda admin: [group.group_id for group in admin.list_groups(partial=True)])


def brokers(ctx: Any, incomplete: str) -> list[str]:
    """Ids of brokers."""
    return _asked(ctx, incomplete, lambda admin: [str(node.id) for node in admin.describe_cluster().nodes])


def topic_settings(ctx: Any, incomplete: str) -> list[str]:
    """Names of settings of topics, with an equals sign."""

    def ask(admin: KafkaAdminClient) -> list[str]:
        some = next(iter(admin.list_topics(include_internal=True)))
        return [f"{name}=" for name in admin.describe_configs([("topic", some)]).check()["topic", some]]  # type: ignore[index]

    return _asked(ctx, incomplete, ask)


CODECS = words("none", "gzip", "snappy", "lz4", "zstd")
ISOLATION = words("read_committed", "read_uncommitted")
