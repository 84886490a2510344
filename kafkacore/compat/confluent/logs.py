"""Where a client's log lines go: `logger`, `log_level` and `debug` of confluent-kafka, over Python's logging.

Source: the properties of librdkafka 2.16.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from typing import Any

from kafkacore.compat.confluent.kafka_error import local

ENGINE_LOGGER = "kafkacore"
LOG_LEVEL = 6
"""librdkafka's default, INFO."""
DEBUG_LEVEL = 7
"""That of a client with `debug`."""
LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.WARNING, logging.INFO, logging.DEBUG)
"""Python's levels of syslog's 0 to 7."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

CONTEXTS = {
    **dict.fromkeys(("all", "generic", "conf", "interceptor", "plugin", "mock", "telemetry"), ENGINE_LOGGER),
    **dict.fromkeys(("broker", "protocol", "security", "feature", "metadata"), f"{ENGINE_LOGGER}.net"),
    **dict.fromkeys(("topic", "msg", "queue", "eos"), f"{ENGINE_LOGGER}.producer"),
    **dict.fromkeys(("cgrp", "consumer", "fetch", "assignor"), f"{ENGINE_LOGGER}.consumer"),
    "admin": f"{ENGINE_LOGGER}.admin",
}
"""librdkafka's debug contexts: the engine's logger that has these lines."""

log = logging.getLogger("kafkacore.compat")
_before: dict[str, tuple[int, int]] = {}
"""By logger that clients have set to DEBUG: how many of them there are, and its level before."""


class _Forward(logging.Handler):
    """Hands the engine's log lines to a program's logger as well."""

    def __init__(self, logger: logging.Logger, level: int) -> None:
        super().__init__(level)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        if self._logger.isEnabledFor(record.levelno):
            self._logger.handle(record)


def log_to(client: Any, given: Mapping[str, Any]) -> None:
    """Has a program's logger get the engine's lines, and the engine write what `debug` asks for, for as long as the client lives.

    Args:
        client: a Producer, Consumer or AdminClient.
        given: the program's settings: logger, log_level, debug.

    Raises:
        KafkaException: a level, logger or context that is none.
    """
    logger, level = given.get("logger"), given.get("log_level")
    loggers = _debugged(given.get("debug"))
    level = LOG_LEVEL if level is None else int(level)
    if not 0 <= level < len(LEVELS):
        raise local("_INVALID_ARG", f'Configuration property "log_level" value {level} is outside allowed range 0..{len(LEVELS) - 1}')
    if logger is not None and not isinstance(logger, logging.Logger):
        raise local("_INVALID_ARG", f"logger={logger!r}: it is no logging.Logger")
    if logger is None and level != LOG_LEVEL:
        log.warning("log_level=%d has no effect: it is the level of what `logger` gets, and there is no logger", level)
    for name in loggers:
        _begin(name)
        weakref.finalize(client, _end, name).atexit = False
    source = logging.getLogger(ENGINE_LOGGER)
    handler: logging.Handler
    if logger is not None:
        if logger is logging.root or logger is source or logger.name.startswith(f"{ENGINE_LOGGER}."):
            return  # it has these lines anyway
        handler = _Forward(logger, LEVELS[DEBUG_LEVEL if loggers else level])
    elif loggers and not source.hasHandlers():  # as librdkafka does: to stderr
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
    else:
        return
    source.addHandler(handler)
    weakref.finalize(client, source.removeHandler, handler).atexit = False


def _debugged(contexts: Any) -> set[str]:
    """The loggers of a list of contexts."""
    if contexts is None:
        return set()
    names = [each.strip() for each in str(contexts).split(",")]
    if names == [""]:
        raise local("_INVALID_ARG", 'Configuration property "debug" cannot be set to empty value')
    for name in names:
        if name not in CONTEXTS:
            raise local("_INVALID_ARG", f'Invalid value "{name}" for configuration property "debug"')
    return {CONTEXTS[name] for name in names}


def _begin(name: str) -> None:
    logger = logging.getLogger(name)
    count, level = _before.get(name, (0, logger.level))
    _before[name] = count + 1, level
    logger.setLevel(logging.DEBUG)


def _end(name: str) -> None:
    """The last client with the context puts the level back, unless the program has set another one since."""
    count, level = _before.pop(name)
    logger = logging.getLogger(name)
    if count > 1:
        _before[name] = count - 1, level
    elif logger.level == logging.DEBUG:
        logger.setLevel(level)
