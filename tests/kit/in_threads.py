"""The same work in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

GUARD_S = 60.0


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Calls `work(0)` to `work(count - 1)`, each in a thread of its own; none may raise or hang."""
    errors: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
