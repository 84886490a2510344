"""OAUTHBEARER's tokens: how long each is used, what a provider may return, the client-credentials grant."""

import base64
import json

import pytest

from kafkacore.clock import ManualClock
from kafkacore.config_security import TokenEndpoint
from kafkacore.errors import AuthenticationFailedError, RequestTimedOut, SaslAuthentication
from kafkacore.net.oauth import ClientCredentials, TokenSource, read_unsecured_token, unsecured_token
from tests.net.token_endpoint import token_endpoint

T0 = 1_700_000_000_000


def test_a_token_is_kept_for_most_of_its_life():
    clock = ManualClock(0, T0)
    made = []

    def provider():
        made.append(None)
        return f"t{len(made)}", clock.wall_ms() + 10_000

    source = TokenSource(provider, clock)
    assert [source.token(), source.token()] == ["t1", "t1"]
    clock.advance(7_999)
    assert source.token() == "t1"
    clock.advance(1)
    assert source.token() == "t2"


def test_an_old_token_is_used_to_its_end_when_there_is_no_new_one():
    clock = ManualClock(0, T0)
    answers = iter([("t1", T0 + 10_000)])

    def provider():
        return next(answers)

    source = TokenSource(provider, clock)
    source.token()
    clock.advance(9_999)
    assert source.token() == "t1"
    clock.advance(1)
    with pytest.raises(AuthenticationFailedError, match="the provider raised StopIteration"):
        source.token()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("token", "must return"),
        (("token",), "must return"),
        ((b"token", T0 + 1), "must return"),
        (("token", None), "must return"),
        (("token", T0 // 1000 + 3600), "has expired already.*milliseconds"),
    ],
)
def test_what_a_provider_may_not_return(answer, why):
    with pytest.raises(AuthenticationFailedError, match=why) as caught:
        TokenSource(lambda: answer, ManualClock(0, T0)).token()
    assert "token'" not in str(caught.value)


def test_a_providers_own_error_is_told_and_a_foreign_ones_text_is_not():
    def own():
        raise RequestTimedOut("the vault is silent")

    def foreign():
        raise ValueError("password=hush")

    with pytest.raises(AuthenticationFailedError, match="the vault is silent"):
        TokenSource(own, ManualClock(0, T0)).token()
    with pytest.raises(AuthenticationFailedError, match="ValueError") as caught:
        TokenSource(foreign, ManualClock(0, T0)).token()
    assert "hush" not in str(caught.value)


# ---- unsecured tokens


def test_unsecured_tokens():
    token = unsecured_token({"sub": "alice"}, T0, 60)
    assert read_unsecured_token(token, T0) == ("alice", T0 + 60_000)
    with pytest.raises(SaslAuthentication, match="expired"):
        read_unsecured_token(token, T0 + 60_000)


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


NONE = part({"alg": "none"})


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.",
        f"{NONE}.{part([1])}.",
        f"{NONE}.{part({'sub': 'a'})}.",
        f"{NONE}.{part({'sub': 1, 'exp': 1e10})}.",
        f"{NONE}.{part({'sub': '', 'exp': 1e10})}.",
        f"{NONE}.{part({'sub': 'a', 'exp': 'x'})}.",
        f"{NONE}.{part({'sub': 'a', 'exp': 1e400})}.",
        f"{NONE}.{part({'sub': 'a', 'exp': 1e10})}.x",
        f"{NONE}.{part({'sub': 'a', 'exp': 1e10})}",
        f"{part({'alg': 'RS256'})}.{part({'sub': 'a', 'exp': 1e10})}.",
        f"{part('[' * 5000)}.{part({})}.",
    ],
)
def test_other_tokens_are_refused(token):
    with pytest.raises(SaslAuthentication):
        read_unsecured_token(token, T0)


# ---- the client-credentials grant


def test_client_credentials():
    pytest.importorskip("httpx")
    with token_endpoint(200, {"access_token": "abc", "expires_in": 60, "token_type": "Bearer"}) as endpoint:
        provider = ClientCredentials(TokenEndpoint(endpoint.url, "me", "hush", "kafka"), ManualClock(0, T0))
        assert provider() == ("abc", T0 + 60_000)
    basic = "Basic " + base64.b64encode(b"me:hush").decode()
    assert endpoint.asked == [(basic, {"grant_type": ["client_credentials"], "scope": ["kafka"]})]


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, {"error": "invalid_client"}), (200, {}), (200, b"<html>"), (200, [1]), (200, {"access_token": 5}), (500, b"")],
)
def test_an_endpoint_that_gives_no_token(status, body):
    pytest.importorskip("httpx")
    with (
        token_endpoint(status, body) as endpoint,
        pytest.raises(AuthenticationFailedError, match=f"gives me no token: HTTP {status}") as caught,
    ):
        ClientCredentials(TokenEndpoint(endpoint.url, "me", "hush", None), ManualClock(0, T0))()
    assert "hush" not in str(caught.value)


def test_an_endpoint_that_cannot_be_reached():
    pytest.importorskip("httpx")
    for url in ("http://127.0.0.1:1/", "nowhere", "http://["):
        with pytest.raises(AuthenticationFailedError, match="cannot be asked"):
            ClientCredentials(TokenEndpoint(url, "me", "hush", None), ManualClock(0, T0))()
