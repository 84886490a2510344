"""What open clients do when the interpreter exits, without one that does. consumer/test_consumer_exit.py lets programs end."""

from __future__ import annotations

import atexit
import multiprocessing
import os
from multiprocessing import util
from typing import Any

import pytest

from kafkacore.net.at_exit import AtExit


class Client:
    """One that can be held weakly."""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"exit": [], "fork": [], "finalizers": []}
    monkeypatch.setattr(atexit, "register", found["exit"].append)
    monkeypatch.setattr(os, "register_at_fork", lambda *, after_in_child: found["fork"].append(after_in_child))
    monkeypatch.setattr(util, "Finalize", lambda owner, call, *, exitpriority: found["finalizers"].append((owner, call, exitpriority)))
    return found


def test_open_clients_of_this_process_end_once(registered: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[set[Any]] = []
    at_exit = AtExit[Client](lambda clients: ended.append(set(clients)))
    first, second, closed = clients = [Client(), Client(), Client()]
    for client in clients:
        at_exit.add(client)
    at_exit.discard(closed)
    (run,) = registered["exit"]
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    run()
    assert ended == []  # forked behind Python's back
    monkeypatch.setattr(os, "getpid", lambda: own)
    run()
    run()
    assert ended == [{first, second}, set()]
    at_exit.add(first)
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    registered["fork"][0]()
    at_exit.add(second)
    run()
    assert ended[2:] == [{second}] and not registered["finalizers"]


def test_children_of_multiprocessing_end_by_its_finalizers(registered: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    at_exit = AtExit[Client](lambda clients: None)
    clients = [Client(), Client()]
    for client in clients:
        at_exit.add(client)
    ((owner, run, priority),) = registered["finalizers"]  # for both
    assert owner is None and run == registered["exit"][0] and priority is not None
    registered["fork"][0]()
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    registered["fork"][0]()
    at_exit.add(clients[0])
    assert len(registered["finalizers"]) == 2
