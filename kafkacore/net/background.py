"""Calls that may block, off the thread that does the I/O: resolving a name, asking for an OAuth token.

Rules:

1. A thread exists only while its call runs. It is a daemon: a call that hangs keeps neither `close` nor the end of the process waiting.
   [test_a_call_in_the_background_has_a_thread_that_keeps_no_process_waiting]
2. Such a thread touches nothing of its client. It hands over what came of the call, and wakes the owner, who goes on with it.
   [test_a_name_that_is_not_resolved_in_time_fails_its_own_broker_and_its_late_answer_is_used]
3. Where no thread can be started (a limit of the system, the end of the interpreter) the call is made in place: late, but made.
   [test_a_call_in_place_leaves_ctrl_c_to_the_caller]
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from kafkacore.errors import NetworkError
from kafkacore.net.transport import Address

__all__ = ["Lookups", "Post", "Resolver", "call_in_background", "numeric_addresses", "resolve"]

T = TypeVar("T")

_LOCAL = ("localhost", "localhost.localdomain")
"""No question for a name server (RFC 6761), so it is resolved in place: a thread would take longer than the connection."""

Resolver = Callable[[str, int], list[Address]]
"""resolver(host, port) gives the addresses to try, in order; raises OSError when the name cannot be resolved."""

Post = Callable[[Callable[[int], None]], None]
"""post(step): has the owner's thread call `step(now_ms)` soon. Any thread may call it."""


def call_in_background(name: str, call: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
    """Makes a call on a thread of its own.

    Args:
        name: of the thread.
        call: may block.
        done: called on that thread with what the call returned or raised.
    """

    def run(caught: type[BaseException] = BaseException) -> None:
        outcome: T | BaseException
        try:
            outcome = call()
        except caught as error:
            outcome = error
        done(outcome)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        run(Exception)  # Ctrl+C is for the caller


def _addresses(host: str, port: int, flags: int) -> list[Address]:
    found: dict[Address, None] = {}
    for family, _kind, _proto, _name, sockaddr in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags):
        if family in (socket.AF_INET, socket.AF_INET6):
            found[Address(family, sockaddr, host)] = None
    return list(found)


def resolve(host: str, port: int) -> list[Address]:
    """Resolves a name to every address it has, in the system's order of preference. Blocks."""
    return _addresses(host, port, 0)


def numeric_addresses(host: str, port: int) -> list[Address]:
    """The address that a literal such as 127.0.0.1 or ::1 is; empty for a name. Does not block."""
    with contextlib.suppress(OSError, UnicodeError):
        return _addresses(host, port, socket.AI_NUMERICHOST)
    return []


class Lookups:
    """Addresses of hosts for an owner that must not block. One thread at most per host, however many ask for it, and however often.

    Args:
        post: hands a step to the owner's thread.
        found: called on the owner's thread with (host, port) and the time when `find` has an answer.
        resolver: called in place, so it must not block; None asks the system, in the background unless the host is an address.
    """

    def __init__(self, post: Post, found: Callable[[tuple[str, int], int], None], resolver: Resolver | None = None) -> None:
        self._post = post
        self._found = found
        self._resolver = resolver
        # What a running lookup puts its answer into. `find` looks here as well, so a step of the owner's that Ctrl+C ended costs no answer.
        self._running: dict[tuple[str, int], deque[list[Address] | BaseException]] = {}
        # Kept for who waits for it now, or else for the next attempt; after that the name is asked for again.
        self._answers: dict[tuple[str, int], list[Address] | BaseException] = {}
        self._arriving: tuple[str, int] | None = None
        self._used = False

    def find(self, host: str, port: int, broker: int | None = None) -> list[Address] | None:
        """The addresses of a host.

        Args:
            host: a name or an address.
            port: a number.
            broker: for the error.

        Returns:
            None while the name is being resolved: `found` is called then, and this is to be asked again.

        Raises:
            NetworkError: the name cannot be resolved.
        """
        key = (host, port)
        early = self._take(key)
        answer: Any = self._answers.get(key)
        if answer is not None:
            self._used = True
            if not early and key != self._arriving:
                del self._answers[key]
        in_place = self._resolver or (resolve if host.lower() in _LOCAL else None)
        if answer is None and in_place is not None:
            try:
                answer = in_place(host, port)
            except (OSError, UnicodeError) as error:
                answer = error
        if answer is None:
            answer = numeric_addresses(host, port) or None
        if answer is None:
            if key not in self._running:
                self._ask(key)
            return None
        if isinstance(answer, BaseException):
            reason = getattr(answer, "strerror", None) or answer
            raise NetworkError(f"cannot resolve host {host!r}: {reason}", broker=broker) from answer
        if not answer:
            raise NetworkError(f"cannot resolve host {host!r}: the name has no address", broker=broker)
        return list(answer)

    def _ask(self, key: tuple[str, int]) -> None:
        outcomes: deque[list[Address] | BaseException] = deque()

        def arrived(outcome: list[Address] | BaseException) -> None:
            """Called on the helper thread."""
            outcomes.append(outcome)
            self._post(lambda now_ms: self._arrived(key, now_ms))

        try:
            self._running[key] = outcomes
            call_in_background(f"kafkacore-resolve-{key[0]}", lambda: resolve(*key), arrived)
        except BaseException:
            self._running.pop(key, None)
            raise

    def _take(self, key: tuple[str, int]) -> bool:
        """Takes the answer of a lookup that has ended; False when no lookup has ended, or its answer was taken before."""
        outcomes = self._running.get(key)
        if not outcomes:
            return False
        self._answers[key] = outcomes[0]
        del self._running[key]
        return True

    def _arrived(self, key: tuple[str, int], now_ms: int) -> None:
        early = not self._take(key)
        self._arriving, self._used = key, False
        try:
            self._found(key, now_ms)
        finally:
            self._arriving = None
            if self._used or early:
                self._answers.pop(key, None)
