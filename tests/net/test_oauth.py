"""OAUTHBEARER's tokens: how long each is used, what a provider may return, the client-credentials grant."""

import base64
import json
import queue
import random
import socket
import ssl
import threading

import pytest
import trustme

from kafkacore import client_credentials
from kafkacore.bounds import HTTP_SECONDS, TOKEN_ANSWER_BYTES, TOKENS_UNANSWERED
from kafkacore.client_credentials import ClientCredentials
from kafkacore.clock import ManualClock
from kafkacore.config_security import RefreshWindow, SaslSettings, TokenEndpoint
from kafkacore.errors import AuthenticationFailedError, RequestTimedOut, SaslAuthentication
from kafkacore.http_client import HttpAnswer
from kafkacore.metadata import NEVER_MS
from kafkacore.net import oauth
from kafkacore.net.oauth import ASK_TIMEOUT_MS, TokenLogin, read_unsecured_token, token_login, unsecured_token
from tests.kit.rows import each_row
from tests.net.token_endpoint import token_endpoint

T0 = 1_700_000_000_000
WAIT_S = 90


class Provider:
    """Gives what the test puts in."""

    def __init__(self):
        self.answers = []
        self.asked = 0

    def __call__(self):
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class LoginRig:
    """A login with a clock moved by hand. Its provider answers in place, unless it is a slow one."""

    def __init__(self, *answers, provider=None, life_ms=1_000_000, random=0.0, **options):
        self.clock = ManualClock(0, T0)
        self.life_ms = life_ms
        self.provider = provider or Provider()
        if provider is None:
            self.provider.answers += answers
        self.login = TokenLogin(self.provider, self.clock, blocks=provider is not None, rng=Fixed(random), **options)
        self.answered = threading.Semaphore(0)
        self.login.on_answer = self.answered.release

    def token(self, name):
        """An answer that is valid for `life_ms` from now."""
        return name, self.clock.wall_ms() + self.life_ms

    def ready(self):
        return self.login.ready(self.clock.now_ms())

    def answer(self, answer):
        """The slow provider returns."""
        self.provider.answers.put(answer)
        assert self.answered.acquire(timeout=WAIT_S)

    def at_deadline(self):
        """The owner comes back when it is asked to."""
        self.clock.advance(self.login.deadline_ms - self.clock.now_ms())
        self.login.advance(self.clock.now_ms())


class Fixed(random.Random):
    """Jitter known beforehand."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def random(self):
        return self.value

    def uniform(self, low, high):
        return 1.0


@each_row(
    ("life_s", "random", "window", "after_s"),
    [
        (3600, 0.0, {}, 2880),
        (3600, 1.0, {}, 3060),
        (1000, 1.0, {}, 700),  # 300 s before its end at the latest
        (400, 0.0, {"factor": 0.5, "buffer_s": 0, "min_period_s": 300}, 300),  # not before 300 s
        (300, 0.0, {}, 240),  # shorter than both together: neither counts
        (3600, 1.0, {"factor": 1.0, "jitter": 0.25, "buffer_s": 0}, 3600),
    ],
)
def test_when_a_token_is_refreshed(life_s, random, window, after_s):
    rig = LoginRig(("t1", T0 + life_s * 1000), random=random, refresh=RefreshWindow(**window))
    assert rig.ready()
    assert rig.login.deadline_ms == after_s * 1000


def test_a_client_refreshes_as_its_settings_say():
    settings = SaslSettings("OAUTHBEARER", claims={"sub": "alice"}, refresh=RefreshWindow(0.5, 0.0, 0, 0))
    login = token_login(settings, ManualClock(0, T0))
    assert login.ready(0)
    assert login.deadline_ms == 1_800_000  # of an hour


def test_a_token_is_refreshed_before_it_expires_without_anyone_asking():
    rig = LoginRig()
    rig.provider.answers.append(rig.token("t1"))
    assert [rig.ready(), rig.ready(), rig.login.token(), rig.provider.asked] == [True, True, "t1", 1]
    rig.clock.advance(1)
    rig.provider.answers.append(("t2", T0 + 1_700_000))
    rig.at_deadline()
    assert (rig.login.token(), rig.provider.asked) == ("t2", 2)
    assert rig.login.deadline_ms > rig.clock.now_ms()


def test_an_old_token_is_used_to_its_end_and_refreshes_back_off():
    rig = LoginRig()
    rig.provider.answers.append(rig.token("t1"))
    rig.ready()
    waits = []
    while rig.clock.now_ms() < rig.life_ms:
        assert rig.login.token() == "t1"
        before_ms = rig.clock.now_ms()
        rig.provider.answers.append(ValueError("down"))
        rig.at_deadline()
        waits.append(rig.clock.now_ms() - before_ms)
        if rig.login.deadline_ms == NEVER_MS:
            break
    assert waits[:9] == [700_000, 100, 200, 400, 800, 1600, 3200, 6400, 10_000]
    assert rig.clock.now_ms() >= rig.life_ms
    with pytest.raises(AuthenticationFailedError, match="the provider raised ValueError"):
        rig.login.token()
    # Nothing goes on by itself when there is nothing left to use: the next connection asks.
    rig.provider.answers.append(rig.token("t2"))
    rig.clock.advance(10_000)
    assert rig.ready()
    assert rig.login.token() == "t2"


def test_a_failed_ask_is_remembered_for_a_back_off():
    rig = LoginRig(ValueError("down"), ValueError("down"))
    for _ in range(10):
        with pytest.raises(AuthenticationFailedError, match="the provider raised ValueError"):
            rig.ready()
    assert rig.provider.asked == 1
    rig.clock.advance(100)
    for _ in range(10):
        with pytest.raises(AuthenticationFailedError):
            rig.ready()
    assert rig.provider.asked == 2
    rig.provider.answers.append(rig.token("t1"))
    rig.clock.advance(200)
    assert rig.ready()
    assert rig.provider.asked == 3


@each_row(
    ("answer", "why"),
    [
        ("token", "must return"),
        (("token",), "must return"),
        ((b"token", T0 + 1), "must return"),
        (("token", None), "must return"),
        (("token", T0 // 1000 + 3600), "has expired already.*milliseconds"),
        (("token", float("nan")), "has expired already"),
        (("token", float("inf")), "has expired already"),
    ],
)
def test_what_a_provider_may_not_return(answer, why):
    with pytest.raises(AuthenticationFailedError, match=why) as caught:
        LoginRig(answer).ready()
    assert "token'" not in str(caught.value)


def test_a_providers_own_error_is_told_and_a_foreign_ones_text_is_not():
    with pytest.raises(AuthenticationFailedError, match="the vault is silent"):
        LoginRig(RequestTimedOut("the vault is silent")).ready()
    with pytest.raises(AuthenticationFailedError, match="ValueError") as caught:
        LoginRig(ValueError("password=hush")).ready()
    assert "hush" not in str(caught.value)


# ---- a provider that blocks


class SlowProvider:
    """Blocks until the test says what to answer."""

    def __init__(self):
        self.asked = threading.Semaphore(0)
        self.calls = 0
        self.answers = queue.SimpleQueue()

    def __call__(self):
        self.calls += 1
        self.asked.release()
        answer = self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def slow():
    provider = SlowProvider()
    yield provider
    for _ in range(10):
        provider.answers.put(ValueError("end of the test"))


def test_connections_share_one_ask_and_none_of_them_blocks(slow):
    rig = LoginRig(provider=slow)
    assert [rig.ready() for _ in range(10)] == [False] * 10
    assert slow.asked.acquire(timeout=WAIT_S)
    rig.answer(("t1", T0 + 60_000))
    assert [rig.ready() for _ in range(10)] == [True] * 10
    assert (rig.login.token(), slow.calls) == ("t1", 1)


def test_an_ask_has_one_bound_and_a_late_answer_is_still_good(slow):
    rig = LoginRig(provider=slow)
    assert not rig.ready()
    assert rig.login.deadline_ms == ASK_TIMEOUT_MS
    rig.clock.advance(ASK_TIMEOUT_MS)
    with pytest.raises(AuthenticationFailedError, match="gave no answer within 10000 ms"):
        rig.ready()
    rig.answer(("t1", rig.clock.wall_ms() + 60_000))
    assert rig.ready()
    assert (rig.login.token(), slow.calls) == ("t1", 1)


def test_calls_that_do_not_return_do_not_pile_up(slow):
    rig = LoginRig(provider=slow)
    for _ in range(TOKENS_UNANSWERED):
        assert not rig.ready()
        rig.clock.advance(ASK_TIMEOUT_MS)
        with pytest.raises(AuthenticationFailedError, match="gave no answer"):
            rig.ready()
        rig.clock.advance(10_000)
    with pytest.raises(AuthenticationFailedError, match="3 earlier calls of the provider have not returned"):
        rig.ready()
    for _ in range(TOKENS_UNANSWERED):
        assert slow.asked.acquire(timeout=WAIT_S)
    assert slow.calls == TOKENS_UNANSWERED
    rig.answer(RuntimeError("late and wrong"))  # which makes room for one other
    rig.clock.advance(10_000)
    assert not rig.ready()
    for why in ("gave no answer", "3 earlier calls of the provider have not returned"):
        rig.clock.advance(ASK_TIMEOUT_MS)
        with pytest.raises(AuthenticationFailedError, match=why):
            rig.ready()
        rig.clock.advance(10_000)
    for late in (RuntimeError("wrong, too"), ("t1", rig.clock.wall_ms() + 60_000)):  # both come before anyone looks
        rig.answer(late)
    assert rig.ready()


# ---- unsecured tokens


def test_unsecured_tokens():
    token = unsecured_token({"sub": "alice"}, T0, 60)
    assert read_unsecured_token(token, T0) == ("alice", T0 + 60_000)
    with pytest.raises(SaslAuthentication, match="expired"):
        read_unsecured_token(token, T0 + 60_000)


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


NONE = part({"alg": "none"})


@each_row(
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
        f"{NONE}.{part({'sub': 'a', 'exp': 1e300})}.",
        f"{NONE}.{part({'sub': 'a', 'exp': 2**62})}.",
        f"{NONE}.{part({'sub': chr(0xD800), 'exp': 1e10})}.",
        f"{NONE}.{part({'sub': 'a', 'exp': 1e10})}.x",
        f"{NONE}!!!!.{part({'sub': 'a', 'exp': 1e10})}.",
        f"{NONE}.{part({'sub': 'a', 'exp': 2**62 / 1000 + 1})}.",
        f"{NONE}.{part({'sub': 'a', 'exp': 1e10})}",
        f"{part({'alg': 'RS256'})}.{part({'sub': 'a', 'exp': 1e10})}.",
        f"{part('[' * 5000)}.{part({})}.",
    ],
)
def test_other_tokens_are_refused(token):
    with pytest.raises(SaslAuthentication):
        read_unsecured_token(token, T0)
    assert read_unsecured_token(f"{NONE}.{part({'sub': 'a', 'exp': 2**62 / 1000})}.", T0) == ("a", 2**62)


# ---- the client-credentials grant


@each_row(
    ("told", "life_ms"),
    [({"expires_in": 60}, 60_000), ({}, 300_000), ({"expires_in": 0.5}, 500), ({"expires_in": 999_999_999_999}, 999_999_999_999_000)],
)
def test_client_credentials(told, life_ms):
    with token_endpoint(200, {"access_token": "abc", **told, "token_type": "Bearer"}) as endpoint:
        provider = ClientCredentials(TokenEndpoint(endpoint.url, "me", "hush", "kafka"), ManualClock(0, T0))
        assert provider() == ("abc", T0 + life_ms)
    basic = "Basic " + base64.b64encode(b"me:hush").decode()
    assert endpoint.asked == [(basic, {"grant_type": ["client_credentials"], "scope": ["kafka"]})]


def test_who_cannot_wait_for_ever_has_another_thread_ask(monkeypatch):
    asked = []

    def answered(question, seconds):
        asked.append(seconds)
        return HttpAnswer(200, b'{"access_token": "abc"}')

    monkeypatch.setattr(client_credentials, "answer_in_time", answered)
    provider = ClientCredentials(TokenEndpoint("http://127.0.0.1:1/", "me", "hush", None), ManualClock(0, T0))
    assert (provider.in_time(), asked) == (("abc", T0 + 300_000), [HTTP_SECONDS])


@each_row(
    ("status", "body"),
    [
        *((401, {"error": "no\x1b[2J\nkafkacore: deleted everything" + "x" * 30_000}), (500, b"")),
        *((200, {}), (200, b"<html>"), (200, [1]), (200, {"access_token": 5}), (201, {"access_token": "t"})),
        *((200, {"access_token": "t", "expires_in": each}) for each in (0, 1e12, "60")),
    ],
)
def test_an_endpoint_that_gives_no_token(status, body):
    with (
        token_endpoint(status, body) as endpoint,
        pytest.raises(AuthenticationFailedError, match=f"gives me no token: HTTP {status}") as caught,
    ):
        ClientCredentials(TokenEndpoint(endpoint.url, "me", "hush", None), ManualClock(0, T0))()
    said = caught.value.message
    assert "hush" not in said and said.isprintable() and len(said) < 400  # no effect on a terminal
    assert status != 401 or r"no\x1b[2J\nkafkacore: deleted everythingxxx" in said


def test_an_answer_without_end_is_bounded():
    with (
        token_endpoint(200, b'{"access_token": "' + b"x" * TOKEN_ANSWER_BYTES + b'"}') as endpoint,
        pytest.raises(AuthenticationFailedError, match=f"answers with more than {TOKEN_ANSWER_BYTES} bytes"),
    ):
        ClientCredentials(TokenEndpoint(endpoint.url, "me", "hush", None), ManualClock(0, T0))()


def test_an_answer_that_drips_is_bounded_as_a_whole():
    """Each byte comes in time, and all of them would not: the clock moves with every one."""
    clock = ManualClock(0, T0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip():
            sock, _ = listener.accept()
            with sock:
                sock.recv(65_536)
                sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
                try:
                    while True:
                        clock.advance(3_000)
                        sock.sendall(b" ")
                except OSError:
                    pass  # given up

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/token"
        with pytest.raises(AuthenticationFailedError, match="has not answered within 10000 ms"):
            ClientCredentials(TokenEndpoint(url, "me", "hush", None), clock)()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("end", ["close", "deadline"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_ask_that_hangs_is_ended_and_no_thread_is_left(end, scheme, monkeypatch, tmp_path):
    monkeypatch.setattr(oauth, "ASK_TIMEOUT_MS", 3_600_000)
    monkeypatch.setattr(client_credentials, "HTTP_SECONDS", 3_600)  # httpx is to be ended, not to end by itself
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/token"
        clock = ManualClock(0, T0)
        login = TokenLogin(ClientCredentials(TokenEndpoint(url, "me", "hush", None), clock), clock)
        answered = threading.Event()
        login.on_answer = answered.set
        before = set(threading.enumerate())
        assert not login.ready(clock.now_ms())
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
        sock, _ = listener.accept()
        if scheme == "https":
            sock = context.wrap_socket(sock, server_side=True)
        with sock:
            assert sock.recv(65_536).startswith(b"POST /token")
            if end == "close":
                login.close()
            else:
                clock.advance(3_600_000)
                login.advance(clock.now_ms())
            assert answered.wait(WAIT_S)
            thread.join(WAIT_S)
            assert not thread.is_alive()
