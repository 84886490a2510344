"""epoll_wait of the extension."""

from __future__ import annotations

import os
import select
import socket
import threading

import pytest

from kafkacore._codec import epoll_wait

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll on this system")


def test_events_waits_and_looks() -> None:
    left, right = socket.socketpair()
    with select.epoll() as epoll, left, right:
        epoll.register(left.fileno(), select.EPOLLIN)
        assert epoll_wait(epoll.fileno(), 0) == []
        assert epoll_wait(epoll.fileno(), 1) == []
        right.send(b"x")
        assert epoll_wait(epoll.fileno(), 0) == [(left.fileno(), select.EPOLLIN)] == epoll_wait(epoll.fileno(), -1)
        left.recv(1)
        thread = threading.Timer(0, right.send, (b"y",))
        thread.start()  # can only run because the wait lets go of the GIL
        assert epoll_wait(epoll.fileno(), -1) == [(left.fileno(), select.EPOLLIN)]
        thread.join()


def test_more_events_than_one_call_reports_come_in_turn() -> None:
    with select.epoll() as epoll:
        fds = [os.eventfd(1) for _ in range(300)]
        for fd in fds:
            epoll.register(fd, select.EPOLLIN)
        seen: set[int] = set()
        for _ in range(10):
            seen.update(fd for fd, _ in epoll_wait(epoll.fileno(), 0))
        assert seen == set(fds)
        for fd in fds:
            os.close(fd)


def test_errors_are_oserror() -> None:
    with select.epoll() as epoll:
        fd = epoll.fileno()
    with pytest.raises(OSError, match="epoll_wait") as caught:
        epoll_wait(fd, 0)
    assert caught.value.errno
