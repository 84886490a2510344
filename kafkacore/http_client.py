"""Questions over HTTP, to servers that are no brokers: schema registries, token endpoints.

Rules:

1. A question ends: `bounds.HTTP_SECONDS` hold for all of it, resolving the name included, and its answer is bounded after decompression.
   [test_a_question_ends_as_a_whole_and_not_with_each_byte, test_an_answer_is_bounded_after_decompression,
   test_a_name_that_is_not_resolved_holds_a_few_threads_and_nobody_longer_than_its_time]
2. No URL, login or token is in an error or a log: who asks says whom it asked, in words that may be shown.
   [test_what_is_sent_is_in_no_error]
3. Redirects are not followed: they would lead secrets elsewhere. [test_a_registry_that_gives_no_schema]

Needs httpx, which is imported when something is asked.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkacore.bounds import HTTP_SECONDS, HTTP_UNRETURNED
from kafkacore.config_tls import Store, TlsSettings, make_context
from kafkacore.errors import ConfigError

NO_STORE = Store(None, None, None)


class HttpFailed(Exception):
    """There is no answer. The text goes on behind the name of who was asked: "cannot be asked: ConnectError"."""


class HttpUnusable(HttpFailed):
    """There is an answer, and it is not taken: beyond the bounds, or packed as nobody asked for. Another try would be the same."""


class HttpAnswer(NamedTuple):
    """An answer; 404 is one too."""

    status: int
    body: bytes


class HttpWay(NamedTuple):
    """How a server is asked.

    Attributes:
        ca: the authorities to trust; httpx's (certifi's, or those of SSL_CERT_FILE) by default.
        own, key: the client's certificate and key.
        proxy: the URL of a proxy; by default as HTTPS_PROXY and NO_PROXY say.
        seconds: for a whole answer.
        max_bytes: of an answer, after decompression.
    """

    ca: Store = NO_STORE
    own: Store = NO_STORE
    key: Store = NO_STORE
    proxy: str | None = None
    seconds: float = HTTP_SECONDS
    max_bytes: int = 1 << 20

    def context(self) -> ssl.SSLContext | None:
        """How the server's certificate is checked, by files that are read now; None leaves it to httpx.

        Raises:
            ConfigError: a file cannot be read.
        """
        if self.ca == NO_STORE and self.own == NO_STORE:
            return None
        return make_context(TlsSettings(self.ca, self.own, self.key, True))


def tls_context(way: HttpWay) -> ssl.SSLContext:
    """The context for `HttpQuestion`s of one way, to be kept by who asks many.

    Raises:
        ConfigError: a file cannot be read.
    """
    import httpx

    found = way.context()
    return httpx.create_ssl_context() if found is None else found


def check_proxy(url: str | None, setting: str) -> None:
    """Raises ConfigError unless a proxy can be asked by this URL; ImportError without httpx."""
    import httpx

    if url is None:
        return
    try:
        httpx.Proxy(url)
    except (ValueError, httpx.InvalidURL):
        raise ConfigError(f"{setting} must be of the form http://host:port") from None


@contextlib.contextmanager
def _no_log_of_urls() -> Iterator[None]:
    """httpx logs the whole URL of each request; while this thread asks, it does not."""
    mine = threading.get_ident()
    logger = logging.getLogger("httpx")

    def others(record: logging.LogRecord) -> bool:
        return record.thread != mine

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)


class HttpQuestion:
    """One question, to be called on any thread. `cancel` ends it from another one.

    Args:
        url: whole.
        way: how.
        headers: of the request.
        form: posted; without one it is a GET.
        auth: user and password.
        context: of TLS, if the caller has one: reading the authorities of a way takes 20 ms.
        clock: seconds.
    """

    def __init__(
        self,
        url: str,
        way: HttpWay,
        *,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._url = url
        self._way = way
        # What comes packed all the same is unpacked piece by piece, by `_Body`.
        self._headers = {**(headers or {}), "Accept-Encoding": "identity"}
        self._form = form
        self._auth = auth
        self._clock = clock
        self._sock: Any = None
        self._cancelled = False

    def cancel(self) -> None:
        """Ends the question: its call raises soon, unless a name is being resolved for it."""
        self._cancelled = True
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):  # it is closed already
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpx at each of its steps: where the socket can be got at."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sock = info["return_value"].get_extra_info("socket")
            if self._cancelled:
                self.cancel()

    def __call__(self) -> HttpAnswer:
        """Asks.

        Raises:
            HttpFailed: there is no answer.
            HttpUnusable: there is one beyond the bounds.
            ConfigError: a file of the way cannot be read.
        """
        import httpx

        way = self._way
        end_s = self._clock() + way.seconds
        context: ssl.SSLContext | bool | None = self._context
        if context is None:
            context = False if self._url.startswith("http://") else way.context() or True  # redirects, to https, are not followed
        try:
            with (
                _no_log_of_urls(),
                httpx.Client(timeout=way.seconds, verify=context, proxy=way.proxy, follow_redirects=False) as client,
                client.stream(
                    "GET" if self._form is None else "POST",
                    self._url,
                    data=self._form,
                    auth=self._auth,
                    headers=self._headers,
                    extensions={"trace": self._trace},
                ) as answer,
            ):
                body = _Body(answer.headers.get("content-encoding", ""), way.max_bytes)
                for piece in answer.iter_raw():
                    body.add(piece)
                    if self._clock() >= end_s:
                        raise _late(way.seconds)
                return HttpAnswer(answer.status_code, body.whole())
        except httpx.TimeoutException as error:                   # the deadline's own timer may come a moment later
            raise _late(way.seconds) from error
        except httpx.NetworkError as error:
            if self._cancelled:
                raise _late(way.seconds) from error
            raise HttpFailed(f"cannot be asked: {type(error).__name__}: {error}") from error  # what the system says
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise HttpFailed(f"cannot be asked: {type(error).__name__}") from error  # the text may repeat what was sent


def _late(seconds: float) -> HttpFailed:
    return HttpFailed(f"has not answered within {seconds * 1000:.0f} ms")


class _Body:
    """What has come of a body, unpacked, and not more than may come."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "deflate"):
            raise HttpUnusable(f"answers in the encoding {encoding[:20]!r}, which it was not asked for")
        self._unpack = None if encoding in ("", "identity") else zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._max_bytes = max_bytes
        self._data = bytearray()

    def add(self, piece: bytes) -> None:
        if self._unpack is not None:
            try:
                piece = self._unpack.decompress(piece, self._max_bytes + 1 - len(self._data))
            except zlib.error:
                raise HttpUnusable("answers with broken compressed data") from None
        self._data += piece
        if len(self._data) > self._max_bytes:
            raise HttpUnusable(f"answers with more than {self._max_bytes} bytes")

    def whole(self) -> bytes:
        if self._unpack is not None and not self._unpack.eof:
            raise HttpUnusable("answers with compressed data that break off")
        return bytes(self._data)


_unreturned: set[HttpQuestion] = set()


def answer_in_time(question: HttpQuestion, seconds: float) -> HttpAnswer:
    """Asks on a thread of its own, which is not waited for longer than this, whatever holds it up.

    Raises:
        HttpFailed: as `HttpQuestion`; or there is no answer by then.
        ConfigError: as `HttpQuestion`.
    """
    outcome: list[Any] = []
    done = threading.Event()

    def run(caught: type[BaseException] = BaseException) -> None:
        try:
            outcome.append(question())
        except caught as error:
            outcome.append(error)
        finally:
            _unreturned.discard(question)
            done.set()

    if len(_unreturned) >= HTTP_UNRETURNED:
        raise HttpFailed(f"cannot be asked: {len(_unreturned)} earlier questions have not returned")
    try:
        try:
            threading.Thread(target=run, name="kafkacore-http", daemon=True).start()
        except RuntimeError:
            run(Exception)  # no thread can be started; Ctrl+C is for the caller
        if not done.wait(seconds):
            raise _late(seconds)
    finally:
        if not done.is_set():
            _unreturned.add(question)
            question.cancel()
        if done.is_set():
            _unreturned.discard(question)
    found = outcome.pop()
    try:
        if isinstance(found, BaseException):
            raise found
        answer: HttpAnswer = found
        return answer
    finally:
        del found  # a circle through its traceback would keep what had come of the answer
