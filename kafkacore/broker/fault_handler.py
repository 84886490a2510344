"""A failure boundary around one unit of work: a partition of a delta, a record of a replay, a group of a periodic job, a broker of a close.

    for unit in units:
        with contained("partition %s-%d", *unit.key):
            work(unit)

What fails is logged with its traceback and counted, and the next unit goes on. Ctrl+C and the like pass.

Source: org.apache.kafka.server.fault.{FaultHandler, LoggingFaultHandler}.
"""

from __future__ import annotations

import logging
from collections import Counter
from types import TracebackType

logger = logging.getLogger(__name__)

FAULTS: Counter[str] = Counter()
"""How many units failed in this process, by kind: the text that `contained` was given. Kafka's counterpart is MetadataApplyErrorCount."""


def handle(error: Exception, what: str, *args: object) -> None:
    """Logs and counts the fault of a unit of work, for an `except` where `contained` would cost too much.

    Args:
        error: the fault.
        what, args: as for `contained`.
    """
    FAULTS[what] += 1
    logger.error(f"{what} failed; the others go on", *args, exc_info=error)


class contained:
    """Around one unit of work: a partition, a topic, a group, a transaction, a listener. Not around what runs per record of a client.

    Attributes:
        failed: whether the unit failed.
    """

    __slots__ = ("_args", "_what", "failed")

    def __init__(self, what: str, *args: object) -> None:
        """Names the unit.

        Args:
            what: a format that says which kind of unit this is and where; also the name under which faults are counted.
            args: for the format.
        """
        self._what = what
        self._args = args
        self.failed = False

    def __enter__(self) -> contained:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self.failed = True
        handle(error, self._what, *self._args)
        return True
