"""Questions over HTTP whose name is not resolved: what the threads of others see is in tests/decode/test_registry.py."""

import socket
import threading

import pytest

from kafkacore import http_client
from kafkacore.http_client import HttpFailed, HttpQuestion, HttpWay, answer_in_time
from tests.kit.late import late_or_skip

late_or_skip("httpx")


def test_a_name_that_is_not_resolved_holds_a_few_threads_and_nobody_longer_than_its_time(monkeypatch):
    over = threading.Event()

    def hanging(*args, **options):
        assert over.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    monkeypatch.setattr(http_client, "HTTP_UNRETURNED", 2)
    threads = set(threading.enumerate())
    way = HttpWay(seconds=60)
    for _ in range(2):
        with pytest.raises(HttpFailed, match="has not answered within 50 ms"):
            answer_in_time(HttpQuestion("http://name.invalid/", way), 0.05)
    with pytest.raises(HttpFailed, match="cannot be asked: 2 earlier questions have not returned"):
        answer_in_time(HttpQuestion("http://name.invalid/", way), 0.05)
    over.set()
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
    with pytest.raises(HttpFailed, match="cannot be asked: ConnectError"):
        answer_in_time(HttpQuestion("http://name.invalid/", way), 60)


def test_what_is_sent_is_in_no_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/?key=hush"
        for headers in ({"Authorization": "Bearer hush\nx"}, {"hush\n": "x"}):
            with pytest.raises(HttpFailed, match="cannot be asked") as caught:
                answer_in_time(HttpQuestion(url, HttpWay(), headers=headers), 60)
            assert "hush" not in str(caught.value)


def test_a_timer_that_comes_before_the_deadline_s_own_says_the_same():
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(HttpFailed, match=r"^has not answered within 50 ms$"):
        HttpQuestion(f"http://127.0.0.1:{server.getsockname()[1]}/", HttpWay(seconds=0.05))()
