"""The connections of an admin client that several threads call at once.

A broker answers the requests of a connection one after another, so calls that share connections would wait for each other's answers. Each
public call takes a driver for itself, with connections of its own: one that is free, or a new one. Within a call, and in what it calls,
`Drivers.current` is that driver.

Rules
1. A thread binds a driver for the outermost call only. [test_a_call_within_a_call_has_its_connections]
2. MOST_KEPT drivers keep their connections when their calls have ended; others are closed. [test_connections_of_few_calls_are_kept]
3. Lists are changed by single operations only (append, pop, remove): there is no lock that a fork or Ctrl+C could leave held.
   [test_a_child_that_was_forked_during_a_call_is_refused_and_closes_nothing]
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from kafkacore import errors
from kafkacore.net.driver import CallerDriver

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="HasDrivers")

MOST_KEPT = 4


class HasDrivers(Protocol):
    """An admin client, as seen from here."""

    _drivers: Drivers


class Drivers:
    """Lends a driver to each call.

    Args:
        make: a new driver.

    Attributes:
        first: always there; what is not part of a call uses it.
        all: those that are open.
        free: those of them that no call has.
        made: called with each driver that is made later.
    """

    def __init__(self, make: Callable[[], CallerDriver]) -> None:
        self._make = make
        self.made: Callable[[CallerDriver], object] = lambda driver: None
        self.first = make()
        self.all = [self.first]
        self.free = [self.first]
        self._bound = threading.local()

    @property
    def current(self) -> CallerDriver:
        """The driver of the call that this thread is in; `first` outside of calls."""
        return getattr(self._bound, "driver", None) or self.first

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Within it, this thread has a driver for itself."""
        if getattr(self._bound, "driver", None) is not None or self.first.closed or self.first.forked:
            yield  # `first` says what is wrong, if something is
            return
        driver = self._take()
        try:
            with self.bound(driver):
                yield
        finally:
            self._give_back(driver)

    @contextlib.contextmanager
    def bound(self, driver: CallerDriver) -> Iterator[None]:
        """Within it, this thread uses a driver that is not lent to others."""
        self._bound.driver = driver
        try:
            yield
        finally:
            self._bound.driver = None

    def new(self) -> CallerDriver:
        """A driver that its caller keeps; `close` closes it.

        Raises:
            errors.ClosedError: the client is closed.
        """
        driver = self._make()
        self.made(driver)
        self.all.append(driver)
        if self.first.closed:  # perhaps `close` did not see this one
            driver.close()
            raise errors.ClosedError(f"this {driver.what} is closed")
        return driver

    def _take(self) -> CallerDriver:
        try:
            return self.free.pop(0)
        except IndexError:
            return self.new()

    def _give_back(self, driver: CallerDriver) -> None:
        self.free.append(driver)
        while len(self.free) > MOST_KEPT:
            driver = self._take()
            if driver is self.first:
                self.free.append(driver)
                continue
            driver.close()
            with contextlib.suppress(ValueError):
                self.all.remove(driver)

    def abandon(self, client: object) -> None:
        """No reference to the client is left: says so if it is not closed, and ends its connections."""
        others = [driver for driver in self.all if driver is not self.first]
        try:
            self.first.abandon(client)
        finally:
            for driver in others:
                driver.reported = True
                driver.abandon(client)

    def close(self) -> None:
        """Closes every connection; calls under way in other threads end with ClosedError first."""
        for driver in tuple(self.all):
            driver.close()


def lent(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method of an admin client that uses a driver of its own."""

    @functools.wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._drivers.lent():
            return method(self, *args, **kwargs)

    return call  # type: ignore[return-value]


def lend_to_calls(cls: type[Any]) -> None:
    """Has every public method of a class take a driver of its own."""
    for name, value in list(vars(cls).items()):
        if callable(value) and not name.startswith("_") and not isinstance(value, (type, staticmethod, classmethod)):
            setattr(cls, name, lent(value))
