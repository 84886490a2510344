"""The schema registry's client: what it asks, how often, as whom, and what it says when it gets no answer."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("pyarrow")

from kafkacore import errors
from kafkacore.decode import registry
from kafkacore.decode.avro import _flat
from kafkacore.decode.registry import BACKOFF_S, TRIES, UNKNOWN_S, Registry, RegistryOptions, UnusableSchema

NOWHERE = "http://127.0.0.1:1"


class Asking:
    """A registry client whose sleeps are noted and whose clock is moved by hand."""

    def __init__(self, url: str, **more: str) -> None:
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


UNKNOWN = (404, b'{"error_code": 40403, "message": "Schema not found"}')


def test_an_unknown_id_is_asked_for_as_a_registry_that_does_not_answer_and_then_an_error(registry_server: Any, asking: Asking) -> None:
    for again in (1, 2):                                                  # nothing is remembered
        with pytest.raises(UnusableSchema, match=f"the schema registry {registry_server.url} has no schema 1"):
            asking.registry.by_id(1, "AVRO")
        assert len(registry_server.asked) == again * TRIES
    assert asking.slept == [BACKOFF_S * 2**i for i in range(TRIES - 1)] * 2
    assert 2 <= sum(asking.slept) / 2 <= 10
    registry_server.add("t-value", '"int"')
    assert asking.registry.by_id(1, "AVRO", patient=False).text == '"int"'


@pytest.mark.parametrize("answers", [[UNKNOWN], [(503, b""), UNKNOWN], [UNKNOWN, (503, b""), UNKNOWN, (500, b"")]])
def test_a_follower_that_lags_is_asked_again(registry_server: Any, asking: Asking, answers: list[tuple[int, bytes]]) -> None:
    number = registry_server.add("t-value", '"int"')
    registry_server.answers = list(answers)
    assert asking.registry.by_id(number, "AVRO").text == '"int"'
    assert len(registry_server.asked) == len(answers) + 1
    again = Asking(registry_server.url)                                   # and after a try that failed
    registry_server.answers = [UNKNOWN] * TRIES
    with pytest.raises(UnusableSchema):
        again.registry.by_id(number, "AVRO")
    registry_server.answers = list(answers)
    assert again.registry.by_id(number, "AVRO").text == '"int"'
    again.registry.close()


def test_an_address_that_does_not_know_the_id_is_not_the_last_word(registry_server: Any, other_registry: Any) -> None:
    number = registry_server.add("t-value", '"int"')
    asking = Asking(f"{other_registry.url},{registry_server.url}")
    assert asking.registry.by_id(number, "AVRO", patient=False).text == '"int"' and asking.slept == []
    with pytest.raises(UnusableSchema, match=f"{other_registry.url}, {registry_server.url} has no schema 9"):
        asking.registry.by_id(9, "AVRO", patient=False)
    asking.registry.close()


def test_where_unknown_schemas_are_taken_for_corrupt_an_id_is_asked_for_again_after_a_while(registry_server: Any, asking: Asking) -> None:
    for _ in range(3):
        with pytest.raises(UnusableSchema, match=r"has no schema 1"):
            asking.registry.by_id(1, "AVRO", patient=False)
    assert len(registry_server.asked) == 1
    registry_server.add("t-value", '"int"')
    asking.now += UNKNOWN_S
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
    asking.registry.close()


def test_a_schema_of_another_type(registry_server: Any, asking: Asking) -> None:
    number = registry_server.add("t-value", "{}", kind="JSON")
    with pytest.raises(UnusableSchema, match=f"schema {number} of the schema registry {registry_server.url} is of the type JSON, not AVRO"):
        asking.registry.by_id(number, "AVRO")
    with pytest.raises(errors.ConfigError, match=r"subject 't-value' is of the type JSON, not AVRO"):
        asking.registry.latest("t-value", "AVRO")


def test_what_passes_is_tried_again(registry_server: Any, asking: Asking) -> None:
    number = registry_server.add("t-value", '"int"')
    registry_server.answers = [(503, b""), (429, b"{}")]
    assert asking.registry.by_id(number, "AVRO").text == '"int"'
    assert asking.slept == [BACKOFF_S, 2 * BACKOFF_S]


def test_another_address_is_tried_at_once(registry_server: Any) -> None:
    number = registry_server.add("t-value", '"int"')
    asking = Asking(f"{NOWHERE}, {registry_server.url}/")
    assert asking.registry.by_id(number, "AVRO").text == '"int"'
    assert asking.slept == []
    asking.registry.close()


@pytest.mark.parametrize(
    ("answers", "kind", "says"),
    [
        ([(500, b"")] * TRIES, errors.KafkaTimeoutError, f"could not be asked, {TRIES} tries: .*HTTP status 500 for /schemas/ids/1"),
        ([(401, b"")], errors.AuthenticationFailedError, "does not let us in: .*HTTP status 401"),
        ([(302, b"")], errors.UsageError, "the schema registry refuses: .*HTTP status 302"),
        ([(200, b"[]")], errors.CorruptDataError, "something else than a schema registry's JSON"),
        ([(200, b"{}")], errors.CorruptDataError, "answer for schema 1 holds no schema"),
    ],
)
def test_a_registry_that_gives_no_schema(registry_server: Any, asking: Asking, answers: Any, kind: Any, says: str) -> None:
    registry_server.answers = list(answers)
    with pytest.raises(kind, match=says):
        asking.registry.by_id(1, "AVRO")


def test_nobody_there() -> None:
    asking = Asking(NOWHERE)
    with pytest.raises(errors.KafkaTimeoutError, match=r"http://127.0.0.1:1: ConnectError"):
        asking.registry.by_id(1, "AVRO")
    assert len(asking.slept) == TRIES - 1
    asking.registry.close()


def test_who_asks_is_told_to_the_registry_and_to_nobody_else(
    registry_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    number = registry_server.add("t-value", '"int"')
    monkeypatch.setenv("REGISTRY", "me:hu%sh")
    (tmp_path / "token").write_text("hush\n", encoding="utf-8")
    secret_url = tmp_path / "url"
    secret_url.write_text(registry_server.url.replace("//", "//me:hu%25sh@"), encoding="utf-8")
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
        asking.registry.close()
    assert "hu%" not in caplog.text and "hush" not in caplog.text


@pytest.mark.parametrize("url", ["host:8081", "ftp://host", "http://", ""])
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
    """Each level names the next twice: a tree of them would have 2 to the power of 30 leaves."""
    number = registry_server.add("s0", '{"type": "record", "name": "r0", "fields": []}')
    for level in range(1, 31):
        below = [{"name": f"r{level - 1}{half}", "subject": f"s{level - 1}", "version": 1} for half in "ab"]
        number = registry_server.add(f"s{level}", json.dumps({"type": "record", "name": f"r{level}", "fields": []}), references=below)
    registry_server.asked.clear()
    found = asking.registry.by_id(number, "AVRO")
    assert len(registry_server.asked) == 31
    assert len(_flat(found.references)) == 60
    assert len(repr(found)) < 1_000


def test_a_schema_with_very_many_references_is_refused(registry_server: Any, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_REFERENCES", 3)
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
    asking.registry.close()
