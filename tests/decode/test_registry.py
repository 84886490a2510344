"""The schema registry's client: what it asks, how often, as whom, and what it says when it gets no answer."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import logging
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from kafkacore import errors
from kafkacore.bounds import HTTP_SECONDS, REGISTRY_ANSWER_BYTES
from kafkacore.config_security import TokenEndpoint
from kafkacore.config_tls import Store
from kafkacore.decode import registry
from kafkacore.decode.avro import flat
from kafkacore.decode.registry import BACKOFF_S, TRIES, Registry, RegistryOptions, UnusableSchema, options_of
from kafkacore.decode.values import Undecodable
from tests.kit.inside import asking_of, flights_of, getting_of
from tests.kit.late import late_or_skip
from tests.kit.rows import each_row
from tests.net.token_endpoint import token_endpoint

late_or_skip("httpx")
NOWHERE = "http://127.0.0.1:1"


class Asking:
    """A registry client whose sleeps are noted and whose clock is moved by hand."""

    def __init__(self, url: str, **more: Any) -> None:
        self.slept: list[float] = []
        self.now = 0.0
        self.registry = Registry(RegistryOptions(url, **more), self.slept.append, lambda: self.now)


@pytest.fixture
def asking(registry_server: Any) -> Iterator[Asking]:
    found = Asking(registry_server.url)
    yield found
    found.registry.close()


def test_a_schema_is_asked_for_once(registry_server: Any, asking: Asking) -> None:
    number = registry_server.add("t-value", '"int"')
    assert asking.registry.by_id(number, "AVRO") is asking.registry.by_id(number, "AVRO")
    assert asking.registry.latest("t-value", "AVRO").text == '"int"'
    assert registry_server.asked == [f"/schemas/ids/{number}", "/subjects/t-value/versions/latest"]
    asking.registry.close()
    asking.registry.by_id(number, "AVRO")
    assert registry_server.asked[2:] == [f"/schemas/ids/{number}"]


@each_row("number", [0, 7, 2**31 - 1, 2**31, -1, True, "7", None])
def test_the_newest_schema_comes_with_its_id(registry_server: Any, asking: Asking, number: Any) -> None:
    registry_server.asked.clear()
    registry_server.answers = [(200, json.dumps({"schema": '"int"', "id": number}).encode())]
    if type(number) is int and 0 <= number < 2**31:
        assert asking.registry.latest_with_id("a/b", "AVRO") == (number, registry.Schema("AVRO", '"int"'))
    else:
        with pytest.raises(errors.CorruptDataError, match=f"answer for subject 'a/b' holds no id: {number!r}$"):
            asking.registry.latest_with_id("a/b", "AVRO")
    assert registry_server.asked == ["/subjects/a%2Fb/versions/latest"]
    registry_server.answers = [(404, b'{"error_code": 40402}')]
    with pytest.raises(errors.ConfigError, match="the schema registry has no subject 'c': name one"):
        asking.registry.latest("c", "PROTOBUF", ": name one")
    assert registry_server.asked[1:] == ["/subjects/c/versions/latest?format=serialized"]


def test_as_many_schemas_are_kept_as_the_bound_says(registry_server: Any, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SCHEMAS_KEPT", 2)
    for _ in range(3):
        registry_server.add("s", '"int"')
    for number in (1, 2, 1, 3, 3, 1):
        asking.registry.by_id(number, "AVRO")
    assert [path.rpartition("/")[2] for path in registry_server.asked] == ["1", "2", "3", "1"]
    registry_server.asked.clear()
    for number in (7, 8, 7, 9, 9, 7):
        with pytest.raises(UnusableSchema, match=f"has no schema {number}$"):
            asking.registry.by_id(number, "AVRO", patient=False)
    assert [path.rpartition("/")[2] for path in registry_server.asked] == ["7", "8", "9", "7"]


@each_row("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(registry_server: Any, asking: Asking, status: int) -> None:
    asking.slept.clear()
    registry_server.answers = [(status, b"")] * 4
    assert asking.registry.by_id(registry_server.add("s", '"int"'), "AVRO").text == '"int"'
    assert asking.slept == [0.2, 0.4, 0.8, 1.6]


@each_row("wrong", [None, ("a",), ("a", 1, 2), ["a", 1], (b"a", 1), ("a", "1")])
def test_a_provider_gives_a_token_and_when_it_expires(registry_server: Any, wrong: Any) -> None:
    asking = Asking(registry_server.url, token_provider=lambda: wrong)
    with pytest.raises(errors.AuthenticationFailedError, match=r"must return \(token, expiry in milliseconds since 1970\)"):
        asking.registry.latest("s", "AVRO")
    assert registry_server.asked == []


def test_options_show_places_and_registries_are_shared() -> None:
    options = RegistryOptions("http://a:b@h:1/p?q=hush, https://i, http://[")
    assert repr(options) == "RegistryOptions(url='http://h:1/p, https://i, ?')"
    options = RegistryOptions("http://shared:8081/x/, https://i")
    found = registry.shared(options)
    assert found.places == "http://shared:8081/x, https://i"
    assert registry.shared(RegistryOptions("http://shared:8081/x/, https://i")) is found is not registry.shared(RegistryOptions(NOWHERE))


UNKNOWN = (404, b'{"error_code": 40403, "message": "Schema not found"}')


def test_an_unknown_id_is_asked_for_as_a_registry_that_does_not_answer_and_then_an_error(registry_server: Any, asking: Asking) -> None:
    for again in (1, 2):  # nothing is remembered
        with pytest.raises(UnusableSchema, match=f"the schema registry {registry_server.url} has no schema 1"):
            asking.registry.by_id(1, "AVRO")
        assert len(registry_server.asked) == again * TRIES
    assert asking.slept == [BACKOFF_S * 2**i for i in range(TRIES - 1)] * 2
    assert 2 <= sum(asking.slept) / 2 <= 10
    registry_server.add("t-value", '"int"')
    assert asking.registry.by_id(1, "AVRO", patient=False).text == '"int"'


@pytest.mark.parametrize(
    "answers", [[UNKNOWN], [(503, b""), (429, b"{}")], [(503, b""), UNKNOWN], [UNKNOWN, (503, b""), UNKNOWN, (500, b"")]]
)
def test_a_follower_that_lags_is_asked_again(registry_server: Any, asking: Asking, answers: list[tuple[int, bytes]]) -> None:
    number = registry_server.add("t-value", '"int"')
    registry_server.answers = list(answers)
    assert asking.registry.by_id(number, "AVRO").text == '"int"'
    assert len(registry_server.asked) == len(answers) + 1
    again = Asking(registry_server.url)  # and after a try that failed
    registry_server.answers = [UNKNOWN] * TRIES
    with pytest.raises(UnusableSchema):
        again.registry.by_id(number, "AVRO")
    registry_server.answers = list(answers)
    assert again.registry.by_id(number, "AVRO").text == '"int"'


def test_an_address_that_does_not_know_the_id_is_not_the_last_word(registry_server: Any, other_registry: Any) -> None:
    number = registry_server.add("t-value", '"int"')
    asking = Asking(f"{other_registry.url},{registry_server.url}")
    assert asking.registry.by_id(number, "AVRO", patient=False).text == '"int"' and asking.slept == []
    with pytest.raises(UnusableSchema, match=f"{other_registry.url}, {registry_server.url} has no schema 9"):
        asking.registry.by_id(9, "AVRO", patient=False)
    while_the_other_fails = Asking(f"{other_registry.url},{registry_server.url}")
    registry_server.answers = [(503, b"")]
    assert while_the_other_fails.registry.by_id(number, "AVRO", patient=False).text == '"int"'
    assert while_the_other_fails.slept == [BACKOFF_S]


def test_where_unknown_schemas_are_taken_for_corrupt_an_id_is_asked_for_again_after_a_while(registry_server: Any, asking: Asking) -> None:
    for _ in range(3):
        with pytest.raises(UnusableSchema, match=r"has no schema 1"):
            asking.registry.by_id(1, "AVRO", patient=False)
    assert len(registry_server.asked) == 1
    registry_server.add("t-value", '"int"')
    asking.now += 29.9
    with pytest.raises(UnusableSchema, match=r"has no schema 1"):
        asking.registry.by_id(1, "AVRO", patient=False)
    asking.now = 30.0
    assert asking.registry.by_id(1, "AVRO", patient=False).text == '"int"'


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"error_code": 404, "message": "HTTP 404 Not Found"}', b'{"error_code": 40401}'])
@pytest.mark.parametrize("patient", [True, False])
def test_a_path_that_is_wrong_is_an_error_of_the_option(registry_server: Any, body: bytes, patient: bool) -> None:
    asking = Asking(registry_server.url.replace("//", "//me:hush@") + "/registri?x=hush")
    registry_server.answers = [(404, body)]
    says = f"option schema.registry.url: there is no schema registry at {registry_server.url}/registri: HTTP status 404 for .*/ids/1"
    with pytest.raises(errors.ConfigError, match=says) as caught:
        asking.registry.by_id(1, "AVRO", patient=patient)
    assert not isinstance(caught.value, UnusableSchema) and "hush" not in str(caught.value) and asking.slept == []
    registry_server.answers = [(404, b"<html>")]
    with pytest.raises(errors.ConfigError, match=r"there is no schema registry at"):
        asking.registry.latest("t-value", "AVRO")


def test_a_schema_of_another_type(registry_server: Any, asking: Asking) -> None:
    number = registry_server.add("t-value", "{}", kind="JSON")
    with pytest.raises(UnusableSchema, match=f"schema {number} of the schema registry {registry_server.url} is of the type JSON, not AVRO"):
        asking.registry.by_id(number, "AVRO")
    with pytest.raises(errors.ConfigError, match=r"subject 't-value' is of the type JSON, not AVRO"):
        asking.registry.latest("t-value", "AVRO")


def test_another_address_is_tried_at_once(registry_server: Any) -> None:
    number = registry_server.add("t-value", '"int"')
    asking = Asking(f"{NOWHERE}, {registry_server.url}/")
    assert asking.registry.by_id(number, "AVRO").text == '"int"'
    assert asking.slept == []


@pytest.mark.parametrize(
    ("answers", "kind", "says"),
    [
        ([(500, b"")] * TRIES, errors.KafkaTimeoutError, f"could not be asked, {TRIES} tries: .*HTTP status 500 for /schemas/ids/1"),
        ([(401, b"")], errors.AuthenticationFailedError, "does not let us in: .*HTTP status 401"),
        ([(302, b"")], errors.UsageError, "the schema registry refuses: .*HTTP status 302"),
        ([(200, b"[]")], errors.CorruptDataError, "something else than a schema registry's JSON"),
        ([(200, b"[" * 100_000)], errors.CorruptDataError, "something else than a schema registry's JSON"),
        ([(200, b"{}")], errors.CorruptDataError, "answer for schema 1 holds no schema"),
        *(
            ([(200, b'{"schema": "x", "references": %b}' % each)], errors.CorruptDataError, "references that are none")
            for each in (b"5", b"[5]", b"[{}]", b'[{"name": "n", "subject": "s", "version": "x"}]', b'{"a": 1}')
        ),
    ],
)
def test_a_registry_that_gives_no_schema(registry_server: Any, asking: Asking, answers: Any, kind: Any, says: str) -> None:
    registry_server.answers = list(answers)
    with pytest.raises(kind, match=says):
        asking.registry.by_id(1, "AVRO")


def test_who_asks_is_told_to_the_registry_and_to_nobody_else(
    registry_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    number = registry_server.add("t-value", '"int"')
    monkeypatch.setenv("REGISTRY", "me:hu%sh")
    (tmp_path / "token").write_text("hush\n", encoding="utf-8")
    secret_url = tmp_path / "url"
    secret_url.write_text(registry_server.url.replace("//", "//m%65:hu%25sh@"), encoding="utf-8")
    basic = "Basic " + base64.b64encode(b"me:hu%sh").decode()
    for url, more, sent in (
        (registry_server.url, {"user_info": "secret://env/REGISTRY"}, basic),
        (registry_server.url.replace("//", "//me:hu%25sh@"), {}, basic),
        (f"secret://file{secret_url}", {}, basic),
        (registry_server.url, {"token": f"secret://file{tmp_path}/token"}, "Bearer hush"),
    ):
        asking = Asking(url, **more)
        asking.registry.by_id(number, "AVRO")
        assert registry_server.authorizations[-1] == sent
        registry_server.answers = [(403, b"")]
        with pytest.raises(errors.KafkaError) as caught:
            asking.registry.by_id(99, "AVRO")
        assert "hu" not in str(caught.value)
    assert "hu%" not in caplog.text and "hush" not in caplog.text


@each_row("url", ["host:8081", "ftp://host", "http://", ""])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"schema.registry.url must be like https://host:8081"):
        Registry(RegistryOptions(url))


def test_references_that_go_in_a_circle_end(registry_server: Any, asking: Asking) -> None:
    loop = [{"name": "x", "subject": "t-value", "version": 1}]
    number = registry_server.add("t-value", '"int"', references=loop)
    with pytest.raises(errors.CorruptDataError, match=r"references more than 32 deep"):
        asking.registry.by_id(number, "AVRO")
    absent = registry_server.add("u-value", '"int"', references=[{"name": "x", "subject": "gone", "version": 3}])
    with pytest.raises(errors.CorruptDataError, match=r"refers to subject 'gone' version 3"):
        asking.registry.by_id(absent, "AVRO")


def test_what_several_schemas_refer_to_is_asked_for_once(registry_server: Any, asking: Asking) -> None:
    """Each level names the next twice: a tree of them would have 2 to the power of 32 leaves."""
    number = registry_server.add("s0", '{"type": "record", "name": "r0", "fields": []}')
    for level in range(1, 33):
        below = [{"name": f"r{level - 1}{half}", "subject": f"s{level - 1}", "version": 1} for half in "ab"]
        number = registry_server.add(f"s{level}", json.dumps({"type": "record", "name": f"r{level}", "fields": []}), references=below)
    registry_server.asked.clear()
    found = asking.registry.by_id(number, "AVRO")
    assert len(registry_server.asked) == 33
    assert len(flat(found.references)) == 64
    assert len(repr(found)) < 1_000


def test_two_versions_of_a_subject_are_two_schemas(registry_server: Any, asking: Asking) -> None:
    for text in ('"int"', '"long"'):
        registry_server.add("s", text)
    both = [{"name": f"r{version}", "subject": "s", "version": version} for version in (2, 1)]
    found = asking.registry.by_id(registry_server.add("t", '"int"', references=both), "AVRO")
    assert [(name, schema.text) for name, schema in found.references] == [("r2", '"long"'), ("r1", '"int"')]


def test_a_schema_with_very_many_references_is_refused(registry_server: Any, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SCHEMA_REFERENCES", 3)
    for number in range(4):
        registry_server.add(f"s{number}", '"int"')
    references = [{"name": f"r{number}", "subject": f"s{number}", "version": 1} for number in range(4)]
    with pytest.raises(errors.CorruptDataError, match="more than 3 references"):
        asking.registry.by_id(registry_server.add("t", '"int"', references=references), "AVRO")
    assert asking.registry.by_id(registry_server.add("t", '"int"', references=references[:3]), "AVRO").kind == "AVRO"


def test_a_token_that_was_changed_is_taken_up(registry_server: Any, tmp_path: Path) -> None:
    number = registry_server.add("t-value", '"int"')
    token = tmp_path / "token"
    token.write_text("old")
    asking = Asking(registry_server.url, token=f"secret://file{token}")
    asking.registry.by_id(number, "AVRO")
    token.write_text("new")
    registry_server.answers = [(401, b"")]
    assert asking.registry.latest("t-value", "AVRO").kind == "AVRO"
    assert registry_server.authorizations == ["Bearer old", "Bearer old", "Bearer new"]
    for gone in (False, True):  # nothing has changed, or nothing is there: what was refused is the error, asked once
        if gone:
            token.unlink()
        registry_server.answers = [(401, b"")]
        with pytest.raises(errors.AuthenticationFailedError, match="does not let us in"):
            asking.registry.latest("t-value", "AVRO")
    assert len(registry_server.authorizations) == 5


# ---- what a registry can make grow, and how it is asked


@pytest.fixture
def raw() -> Iterator[Any]:
    """A server that sends what the test says, byte by byte; `answer(sock)` is called for each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        raw = SimpleNamespace(url=f"http://127.0.0.1:{listener.getsockname()[1]}", answer=lambda sock: None, asked=[])

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(sock,), daemon=True).start()

        def one(sock: socket.socket) -> None:
            with sock, contextlib.suppress(OSError):
                if request := sock.recv(65_536):
                    raw.asked.append(request.split(b" ")[1].decode())
                    raw.answer(sock)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield raw
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(30)
    assert not thread.is_alive()


def test_an_answer_is_bounded_after_decompression(raw: Any) -> None:
    packed = gzip.compress(b'{"schema": "' + b" " * (2 * REGISTRY_ANSWER_BYTES) + b'"}')
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    raw.answer = lambda sock: sock.sendall(head + packed)
    asking = Asking(raw.url)
    tracemalloc.start()
    try:
        with pytest.raises(errors.CorruptDataError, match=f"answers with more than {REGISTRY_ANSWER_BYTES} bytes"):
            asking.registry.by_id(1, "AVRO")
        assert tracemalloc.get_traced_memory()[1] < 3 * REGISTRY_ANSWER_BYTES
    finally:
        tracemalloc.stop()


def test_a_packed_answer_within_the_bound_is_read(raw: Any) -> None:
    packed = gzip.compress(b'{"schema": "\\"int\\""}')
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    raw.answer = lambda sock: sock.sendall(head + packed)
    assert Asking(raw.url).registry.by_id(1, "AVRO").text == '"int"'
    raw.answer = lambda sock: sock.sendall(head + packed[:-8] + b"x" * 8)
    with pytest.raises(errors.CorruptDataError, match="broken compressed data"):
        Asking(raw.url).registry.by_id(1, "AVRO")
    raw.answer = lambda sock: sock.sendall(head.replace(b"gzip", b"br") + packed)
    with pytest.raises(errors.CorruptDataError, match="answers in the encoding 'br'"):
        Asking(raw.url).registry.by_id(1, "AVRO")


@pytest.mark.parametrize("part", ["head", "body", "nothing"])
def test_a_question_ends_as_a_whole_and_not_with_each_byte(raw: Any, part: str) -> None:
    over = threading.Event()

    def drip(sock: socket.socket) -> None:
        if part == "body":
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        if part == "head":
            sock.sendall(b"HTTP/1.1 200 OK\r\nx-filler: ")
        while not over.wait(0.02):
            if part != "nothing":
                sock.sendall(b" ")

    raw.answer = drip
    asking = Asking(raw.url, timeout_s=0.05)
    try:
        with pytest.raises(errors.KafkaTimeoutError, match="has not answered within 50 ms"):
            asking.registry.by_id(1, "AVRO")
        assert len(asking.slept) == TRIES - 1  # by a clock that stands
    finally:
        over.set()


def test_a_registry_that_hangs_is_not_waited_for_five_times(raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    raw.answer = lambda sock: over.wait(30)
    asking = Asking(f"{raw.url},{raw.url}/b", timeout_s=0.05)
    ask = asking_of(asking.registry)

    def slow(*args: Any) -> Any:
        asking.now += 0.2
        return ask(*args)

    monkeypatch.setattr(asking.registry, "_ask", slow)
    with pytest.raises(errors.KafkaTimeoutError, match=r"could not be asked, 1 try: .*/b has not answered within 50 ms"):
        asking.registry.by_id(1, "AVRO")
    over.set()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b'HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\n{"schema": "\\"int\\""}', "Schema"),
        (b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n", "AuthenticationFailedError"),
    ],
)
def test_threads_that_want_the_same_schema_ask_once_and_others_go_on(raw: Any, answer: bytes, kind: str) -> None:
    asked, answers = threading.Event(), threading.Event()
    good = b'HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\n{"schema": "\\"int\\""}'

    def reply(sock: socket.socket) -> None:
        is_second = raw.asked[-1].endswith("/2")
        if is_second:
            asked.set()
            assert answers.wait(30)
        sock.sendall(answer if is_second else good)

    raw.answer = reply
    asking = Asking(raw.url)
    kept = asking.registry.by_id(1, "AVRO")
    found, threads = asking_in_threads(asking, 2, 3, asked)
    assert asking.registry.by_id(1, "AVRO") is kept  # while the others wait
    assert asking.registry.by_id(3, "AVRO").text == '"int"'
    answers.set()
    for thread in threads:
        thread.join(30)
    assert [type(each).__name__ for each in found] == [kind] * 3
    assert len({str(each) for each in found}) == 1 and len(set(map(id, found))) == (1 if kind == "Schema" else 3)
    assert sorted(raw.asked) == [f"/schemas/ids/{n}" for n in (1, 2, 3)]


def asking_in_threads(asking: Asking, number: int, count: int, began: threading.Event) -> tuple[list[Any], list[threading.Thread]]:
    """Outcomes, and the threads: one asks, and the others wait for its answer."""
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(_outcome(lambda: asking.registry.by_id(number, "AVRO")))) for _ in range(count)]
    threads[0].start()
    assert began.wait(30)
    for thread in threads[1:]:
        thread.start()
    while sum(flight.waiting for flight in flights_of(asking.registry).values()) < count - 1:
        threads[1].join(0.001)
    return found, threads


def test_a_thread_that_is_interrupted_leaves_the_question_to_another(registry_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    number = registry_server.add("t-value", '"int"')
    asking = Asking(registry_server.url)
    get = getting_of(asking.registry)
    began, go = threading.Event(), threading.Event()

    def interrupted(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(asking.registry, "_get", get)
        began.set()
        assert go.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(asking.registry, "_get", interrupted)
    found, threads = asking_in_threads(asking, number, 2, began)
    go.set()
    for thread in threads:
        thread.join(30)
    assert sorted(type(each).__name__ for each in found) == ["KeyboardInterrupt", "Schema"]


def _outcome(call: Any) -> Any:
    try:
        return call()
    except BaseException as error:
        return error


@each_row(
    "more",
    [{"user_info": "alice:hush"}, {"token": "hush"}, {"token_provider": lambda: ("hush", 1)}, {"url": "http://alice:hush@registry:8081"}],
)
def test_a_password_goes_over_https_or_stays_here(more: dict[str, Any]) -> None:
    url = more.pop("url", "http://registry:8081") if "url" in more else "http://registry:8081"
    with pytest.raises(errors.ConfigError, match="http://registry:8081 would go over http, where others can read it: use https") as caught:
        Registry(RegistryOptions(url, **more))
    assert "hush" not in str(caught.value) and "hush" not in repr(RegistryOptions(url, **more))
    Registry(RegistryOptions(url, **more, allow_http=True))
    Registry(RegistryOptions(url.replace("http:", "https:"), **more))
    Registry(RegistryOptions(url.replace("registry:", "localhost:"), **more))
    Registry(RegistryOptions("http://registry:8081"))  # where nobody is named, nothing can be read


def test_oauth_for_the_registry(registry_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_SECRET", "hush")
    number = registry_server.add("t-value", '"int"')
    with token_endpoint(200, {"access_token": "abc", "expires_in": 600}) as endpoint:
        given = {
            "bearer.auth.issuer.endpoint.url": endpoint.url,
            "bearer.auth.client.id": "me",
            "bearer.auth.client.secret": "secret://env/REGISTRY_SECRET",
            "bearer.auth.scope": "schemas",
        }
        asking = Registry(options_of(registry_server.url, given))
        for _ in range(2):
            assert asking.latest("t-value", "AVRO").text == '"int"'
        assert registry_server.authorizations == ["Bearer abc"] * 2
        assert endpoint.asked == [("Basic bWU6aHVzaA==", {"grant_type": ["client_credentials"], "scope": ["schemas"]})]  # me:hush
        registry_server.answers = [(401, b"")]
        assert asking.by_id(number, "AVRO").text == '"int"'  # a token that was taken back: another one, once
        assert len(endpoint.asked) == 2
        registry_server.answers = [(401, b"")] * 9
        with pytest.raises(errors.AuthenticationFailedError, match="does not let us in"):
            asking.latest("t-value", "AVRO")
        assert len(registry_server.answers) == 7
        with pytest.raises(errors.ConfigError, match="who asks the schema registry is said once, not by a login and by a token endpoint"):
            Registry(options_of(registry_server.url, {**given, "basic.auth.user.info": "a:b"}))
    with token_endpoint(401, {"error": "no"}) as endpoint:
        asking = Registry(options_of(registry_server.url, {**given, "bearer.auth.issuer.endpoint.url": endpoint.url}))
        with pytest.raises(errors.AuthenticationFailedError, match="gives me no token: HTTP 401") as caught:
            asking.latest("t-value", "AVRO")
        assert "hush" not in str(caught.value)


def test_a_token_serves_four_fifths_of_its_life(registry_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry_server.add("t-value", '"int"')
    now_s = 1_000.0
    monkeypatch.setattr(registry, "time", SimpleNamespace(time=lambda: now_s, monotonic=time.monotonic))
    tokens = iter("abc")
    asking = Registry(RegistryOptions(registry_server.url, token_provider=lambda: (next(tokens), (now_s + 100) * 1_000)))
    for later_s in (0, 79, 1, 79.5):
        now_s += later_s
        asking.latest("t-value", "AVRO")
    assert registry_server.authorizations == ["Bearer a", "Bearer a", "Bearer b", "Bearer b"]


def test_a_token_is_asked_for_before_it_expires(registry_server: Any) -> None:
    registry_server.add("t-value", '"int"')
    tokens = iter("abc")
    asking = Registry(RegistryOptions(registry_server.url, token_provider=lambda: (next(tokens), 0)))  # each has expired already
    for _ in range(2):
        asking.latest("t-value", "AVRO")
    assert registry_server.authorizations == ["Bearer a", "Bearer b"]


@each_row(
    ("given", "says"),
    [
        ({"bearer.auth.client.id": "me"}, "goes with schema.registry.bearer.auth.issuer.endpoint.url"),
        ({"basic.auth.user": "me"}, "schema.registry.basic.auth.user is no setting"),
        ({"proxy": "http://h:1", "nope": "me"}, "schema.registry.nope is no setting"),
        ({"timeout.ms": "0"}, "milliseconds above 0"),
        ({"timeout.ms": "hush"}, "milliseconds above 0"),
        ({"allow.http": "maybe"}, "is true or false"),
        ({"ssl.ca.location": "/nowhere.pem"}, "/nowhere.pem"),
        ({"ssl.key.location": "/nowhere.pem"}, "goes with a certificate"),
        ({"proxy": "gopher://hush"}, "must be of the form http://host:port"),
    ],
)
def test_settings_that_cannot_be_used(given: dict[str, str], says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says) as caught:
        Registry(options_of(NOWHERE, given))
    assert "hush" not in str(caught.value)


def test_settings_come_by_their_names() -> None:
    oauth = {"issuer.endpoint.url": "https://t", "client.id": "me", "client.secret": "s", "scope": "all"}
    ids = {"logical.cluster": "lsrc-1", "identity.pool.id": "pool-2"}
    ssl = {"ca.location": "ca", "certificate.location": "cert", "key.location": "key", "key.password": "pw"}
    given = {f"bearer.auth.{name}": value for name, value in (oauth | ids).items()} | {f"ssl.{name}": value for name, value in ssl.items()}
    found = options_of(NOWHERE, {**given, "proxy": "http://h:1", "allow.http": "TRUE"}, "when", "called")
    assert found.token_endpoint == TokenEndpoint("https://t", "me", "s", "all", Store("ca", None, None), "http://h:1")
    assert (found.ca_file, found.certificate_file, found.key_file, found.key_password) == ("ca", "cert", "key", "pw")
    assert found.headers == (("target-sr-cluster", "lsrc-1"), ("Confluent-Identity-Pool-Id", "pool-2")) and found.allow_http
    assert (found.proxy, found.when, found.called, found.user_info, found.token) == ("http://h:1", "when", "called", None, None)
    plain = options_of(NOWHERE, {"basic.auth.user.info": "a:b", "bearer.auth.token": "t"})
    assert (plain.user_info, plain.token, plain.allow_http, plain.token_endpoint, plain.headers) == ("a:b", "t", False, None, ())


def test_a_prefix_names_the_schema() -> None:
    for number in (0, 7, 2**32 - 1):
        frame = registry.prefix_of(number)
        assert len(frame) == 5 and registry.split(frame) == (number, b"") and registry.split(frame + b"x") == (number, b"x")
        for wrong in (frame[:-1], b"\1" + frame[1:]):
            with pytest.raises(Undecodable):
                registry.split(wrong)


def test_the_time_for_an_answer_is_given_in_milliseconds() -> None:
    assert [options_of(NOWHERE, given).timeout_s for given in ({"timeout.ms": "1500"}, {})] == [1.5, HTTP_SECONDS]


def test_the_settings_of_the_spark_source_are_those_of_the_registry() -> None:
    from kafkacore.spark.options import REGISTRY_SETTINGS

    assert REGISTRY_SETTINGS == registry.SETTINGS


def test_a_private_authority_and_a_client_certificate(registry_server: Any, tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    mine = authority.issue_cert("me@example.org")
    (tmp_path / "me.pem").write_bytes(b"".join(each.bytes() for each in mine.cert_chain_pems))
    mine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    registry_server.server.socket = context.wrap_socket(registry_server.server.socket, server_side=True)
    url = registry_server.url.replace("http:", "https:")
    registry_server.add("t-value", '"int"')
    given = {"ssl.ca.location": str(tmp_path / "ca.pem")}
    own = {"ssl.certificate.location": str(tmp_path / "me.pem"), "ssl.key.location": str(tmp_path / "key.pem")}
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    for wrong in ({}, {"ssl.ca.location": str(tmp_path / "other.pem"), **own}, given):
        asking = Registry(options_of(url, {**wrong, "timeout.ms": "5000"}), sleep=lambda s: None)
        with pytest.raises(errors.KafkaTimeoutError, match="cannot be asked"):
            asking.latest("t-value", "AVRO")
    assert not registry_server.asked
    assert Registry(options_of(url, {**given, **own})).latest("t-value", "AVRO").text == '"int"'


def test_a_proxy(registry_server: Any) -> None:
    registry_server.answers = [(200, b'{"schema": "\\"int\\""}')]  # it gets what is for another host
    asking = Registry(options_of("http://registry.invalid:8081", {"proxy": registry_server.url}))
    assert asking.by_id(1, "AVRO").text == '"int"'
    assert registry_server.asked == ["http://registry.invalid:8081/schemas/ids/1"]


def test_schemas_and_their_references_are_bounded_in_bytes_seconds_and_number(
    registry_server: Any, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = json.dumps("x" * 3_000)
    for number in range(3):
        registry_server.add(f"s{number}", large)
    references = [{"name": f"r{number}", "subject": f"s{number}", "version": 1} for number in range(3)]
    number = registry_server.add("t", '"int"', references=references)
    monkeypatch.setattr(registry, "REGISTRY_ANSWER_BYTES", 8_000)
    with pytest.raises(errors.CorruptDataError, match=f"schema {number} has more than 8000 characters"):
        asking.registry.by_id(number, "AVRO")
    monkeypatch.setattr(registry, "REGISTRY_KEPT_CHARACTERS", 7_000)
    for _ in range(2):
        asking.registry.by_id(1, "AVRO")
        asking.registry.by_id(2, "AVRO")
    before = len(registry_server.asked)
    asking.registry.by_id(3, "AVRO")  # the texts are too many: all are forgotten
    asking.registry.by_id(1, "AVRO")
    assert len(registry_server.asked) == before + 2
    monkeypatch.undo()
    get = getting_of(asking.registry)

    def slow(*args: Any, **options: Any) -> Any:
        asking.now += registry.SCHEMA_SECONDS
        return get(*args, **options)

    monkeypatch.setattr(asking.registry, "_get", slow)
    with pytest.raises(errors.KafkaTimeoutError, match="has not come within 60 s"):
        asking.registry.by_id(number, "AVRO")
