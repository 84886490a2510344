"""TLS for tests: handshakes in memory, and OpenSSL's own programs, which change keys and renegotiate by a letter."""

from __future__ import annotations

import contextlib
import select
import ssl
import subprocess
from typing import Any

GUARD_S = 90


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "127.0.0.1") -> None:
    """Both sides to the end, in memory.

    Raises:
        ssl.SSLError: one of them refuses the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = [client.wrap_bio(to_client, to_server, server_hostname=name), server.wrap_bio(to_server, to_client, server_side=True)]
    while left:
        for side in tuple(left):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                left.remove(side)


def client_hello(context: ssl.SSLContext) -> bytes:
    """What a client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def is_readable(source: Any) -> bool:
    """Waits; by poll, which takes descriptors of any number."""
    poller = select.poll()
    poller.register(source, select.POLLIN)
    return bool(poller.poll(GUARD_S * 1000))


class OpenSsl:
    """`openssl s_client` or `s_server`: what is typed goes to the peer, but for letters that it obeys at the beginning of a line."""

    def __init__(self, *command: str) -> None:
        words = ["stdbuf", "-oL", "openssl", *command, "-legacy_renegotiation"]
        self.process: Any = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)

    def __enter__(self) -> OpenSsl:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate()

    def type(self, text: bytes) -> None:
        self.process.stdin.write(text)

    def read_until(self, wanted: bytes) -> bytes:
        """What it has printed, up to these bytes."""
        seen = b""
        while not seen.endswith(wanted):
            assert is_readable(self.process.stdout), seen
            byte = self.process.stdout.read(1)
            assert byte, seen
            seen += byte
        return seen
