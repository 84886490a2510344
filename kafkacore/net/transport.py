"""Byte streams under a channel: plaintext sockets, TLS, and in-process pipes behind one small interface.

Rules every transport keeps (tests/net/test_transport_contract.py holds all of them to it):

1. Nothing blocks. "Would block" is -1, end of stream is 0, a broken stream raises OSError. [test_would_block_is_minus_one,
   test_the_end_of_the_stream_comes_after_the_data, test_writing_to_a_closed_peer_raises_oserror]
2. `read_into` and `write` each do a bounded amount of work, so one fast or slow peer cannot hold the loop.
   [test_a_read_takes_no_more_than_asked, test_a_full_peer_takes_part_and_then_nothing]
3. `buffered` is True only while the transport itself holds bytes that the operating system will not announce again (decrypted TLS
   data). The selector then reads again without waiting. [test_a_muted_channel_keeps_its_decrypted_frames]
4. `pending_writes` is True while bytes that `write` accepted are not yet with the operating system (TLS ciphertext).
   [test_a_send_is_complete_when_its_ciphertext_has_gone]
5. `fd` is -1 for a transport without a descriptor; such a transport answers `ready_ops` and calls `on_change` when that answer may have
   changed. [test_memory_pipe_can_be_scripted]

Source: Kafka's TransportLayer, PlaintextTransportLayer, SslTransportLayer.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from kafkacore._codec import FileSlice, recv_into, send_gather
from kafkacore.config_listeners import joined
from kafkacore.errors import SslAuthenticationFailed

__all__ = [
    "READ",
    "USE_DEFAULT_BUFFER_SIZE",
    "WRITE",
    "Address",
    "MemoryTransport",
    "PlaintextTransport",
    "SocketTransports",
    "TlsTransport",
    "Transport",
    "Transports",
    "configure_socket",
    "memory_pair",
]

READ = 1  # the values of EPOLLIN and EPOLLOUT
WRITE = 4

USE_DEFAULT_BUFFER_SIZE = -1
"""Leaves SO_SNDBUF or SO_RCVBUF as the operating system sets it."""

_TLS_CHUNK_BYTES = 256 * 1024  # plaintext encrypted, or ciphertext read, in one call
_TLS_RECORD_BYTES = 16 * 1024  # the most that a TLS record holds
_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY, errno.EINTR)


class Address(NamedTuple):
    """One resolved address: what `socket.getaddrinfo` gives, and the name it was asked for (TLS checks that name)."""

    family: int
    sockaddr: tuple[Any, ...]
    host: str = ""

    def __str__(self) -> str:
        if len(self.sockaddr) >= 2:
            return joined(self.host or self.sockaddr[0], self.sockaddr[1])
        return str(self.sockaddr[0] if self.sockaddr else self.host)


class Transport(Protocol):
    """A non-blocking byte stream; see the rules at the top of the file."""

    fd: int
    connected: bool
    buffered: bool
    peer: str

    def finish_connect(self) -> bool:
        """Returns True once connected, False while still connecting; raises OSError when the attempt failed."""

    def handshake(self) -> bool:
        """Advances the handshake and returns True when application bytes may flow; raises AuthenticationFailedError or OSError."""

    @property
    def handshake_wants_write(self) -> bool:
        """True while the handshake waits for the socket to take bytes."""

    def read_into(self, buffer: Any, start: int, nbytes: int) -> int:
        """Reads up to `nbytes` into `buffer[start:]`: the count, 0 at end of stream, -1 when nothing is there yet."""

    def write(self, buffers: list[Any], skip_bytes: int, first: int = 0) -> int:
        """Writes the gather list from byte `skip_bytes` of its buffer `first` on: the bytes accepted, or -1 when none could be."""

    @property
    def pending_writes(self) -> bool:
        """True while accepted bytes still wait inside the transport."""

    def flush(self) -> bool:
        """Pushes out bytes accepted earlier; True when none are left."""

    def close(self) -> None:
        """Closes the stream; may be called twice."""


def configure_socket(sock: socket.socket, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    """Sets the socket options of every Kafka connection.

    Args:
        sock: Socket to configure. TCP-only options are left out for other families.
        send_buffer_bytes: SO_SNDBUF, or -1 for the system's default.
        receive_buffer_bytes: SO_RCVBUF, or -1 for the system's default.

    Source: Kafka's Selector.configureSocketChannel.
    """
    sock.setblocking(False)
    if send_buffer_bytes != USE_DEFAULT_BUFFER_SIZE:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes != USE_DEFAULT_BUFFER_SIZE:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Batching is done above; Nagle's algorithm could only add delay.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


NO_TLS = "peer closed the connection when TLS began: its listener may be without it, that is security_protocol=PLAINTEXT or SASL_PLAINTEXT"


_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"})


_STRICT = range(80, 94)
"""OpenSSL's reasons (X509_V_ERR_PATHLEN_INVALID_FOR_NON_CA to X509_V_ERR_EXTENSIONS_REQUIRE_VERSION_3) that strict checks alone give."""


_UNTRUSTED = range(18, 22)
"""OpenSSL's reasons (X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT to X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE): the authority is not known."""


def _advice(error: ssl.SSLError) -> str:
    """What can be done about a broker's certificate that this client refuses: a private authority has to be named, and what only RFC 5280
    forbids contexts of Python 3.13 check by themselves."""
    code = getattr(error, "verify_code", 0)
    if code in _UNTRUSTED:
        return "; no authority that this client trusts has issued it: ssl_cafile names the file of a private authority"
    if code not in _STRICT:
        return ""
    return "; RFC 5280 forbids such a certificate, which VERIFY_X509_STRICT of the ssl_context checks: issue it again, or clear that flag"


def _why_refused(error: ssl.SSLError) -> str:
    """What a listener's operator can do with OpenSSL's words for a failed handshake."""
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return f"what came is no TLS: that client needs security_protocol=SSL or SASL_SSL ({error})"
    if "ALERT" in reason:
        return f"the client refuses this listener's certificate, or what it offers: {error}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return f"the client shows no certificate, and ssl.client.auth is required ({error})"
    return str(error)


def _peer_name(sock: socket.socket) -> str:
    try:
        name = sock.getpeername()
    except OSError:
        return ""
    return joined(name[0], name[1]) if isinstance(name, tuple) else str(name)


def _pieces(buffers: list[Any], first: int, skip_bytes: int, limit_bytes: int) -> Iterator[memoryview]:
    """The next bytes of a gather list, at most limit_bytes in all. Of a file only these are read."""
    for index in range(first, len(buffers)):
        if limit_bytes <= 0:
            return
        buffer = buffers[index]
        piece = buffer if isinstance(buffer, FileSlice) else memoryview(buffer)
        if skip_bytes >= piece.nbytes:
            skip_bytes -= piece.nbytes
            continue
        take = min(piece.nbytes - skip_bytes, limit_bytes)
        if isinstance(piece, FileSlice):
            yield memoryview(piece.read(skip_bytes, take))
        else:
            yield piece.cast("B")[skip_bytes : skip_bytes + take]
        limit_bytes -= take
        skip_bytes = 0


class PlaintextTransport:
    """A TCP (or any stream) socket."""

    __slots__ = ("buffered", "connected", "fd", "peer", "sock")

    def __init__(self, sock: socket.socket, *, connected: bool = True, peer: str = "") -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.connected = connected
        self.buffered = False
        self.peer = peer or _peer_name(sock)

    @property
    def is_local(self) -> bool:
        """Whether nothing of it leaves this machine."""
        try:
            name = self.sock.getpeername()
            return not isinstance(name, tuple) or ipaddress.ip_address(name[0].partition("%")[0]).is_loopback
        except (OSError, ValueError):
            return False

    def finish_connect(self) -> bool:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            self.sock.getpeername()
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                return False
            raise
        self.connected = True
        return True

    def handshake(self) -> bool:
        return True

    @property
    def handshake_wants_write(self) -> bool:
        return False

    def read_into(self, buffer: Any, start: int, nbytes: int) -> int:
        return recv_into(self.fd, buffer, start, nbytes)

    def write(self, buffers: list[Any], skip_bytes: int, first: int = 0) -> int:
        return send_gather(self.fd, buffers, skip_bytes, first)

    @property
    def pending_writes(self) -> bool:
        return False

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        self.fd = -1
        self.sock.close()


_RECORD_HEADER_BYTES = 5
_ALERT_RECORD, _DATA_RECORD = 21, 23
_TLS_1_3_ALERT_BYTES = 19
"""An alert, its type and the tag; TLS 1.3 calls every encrypted record application data."""
_CLOSE_NOTIFY_BYTES = 128
"""More than any cipher needs for an alert."""


class _Scratch(threading.local):
    """Ciphertext on its way from a socket into its BIO: nothing is kept here, so a thread's connections share it."""

    def __init__(self) -> None:
        self.raw = bytearray(64 * 1024)


_scratch = _Scratch()


class TlsTransport:
    """TLS over a socket through two memory BIOs, so that the selector sees only bytes and never an SSL socket.

    Plaintext is encrypted at most 256 KiB per call; ciphertext that the socket does not take stays here (`pending_writes`) and a send
    counts as complete only when it is sent.

    With TLS 1.3 a client's handshake ends before the server has looked at its certificate. So an alert that comes before the first
    application byte belongs to the handshake: it is the refusal. A renegotiation (TLS 1.2) that a write would have to wait for ends the
    connection, as in Java; contexts made from settings decline it.

    Source: RFC 8446 sections 4.4.2.4 and 6.2; org.apache.kafka.common.network.SslTransportLayer, its state POST_HANDSHAKE.
    """

    __slots__ = (
        "_cipher", "_cipher_pos", "_handshaken", "_heard", "_incoming", "_outgoing", "_settled", "_ssl", "buffered",
        "connected", "fd", "peer", "server_side", "sock",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        connected: bool = True,
        peer: str = "",
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.connected = connected
        self.buffered = False
        self.peer = peer or _peer_name(sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname)
        self._cipher: bytes = b""
        self._cipher_pos = 0
        self._handshaken = False
        self._heard = False
        self._settled = server_side  # nothing that comes can belong to the handshake any more
        self.server_side = server_side

    finish_connect = PlaintextTransport.finish_connect

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """The session, for peer certificates and cipher names."""
        return self._ssl

    def handshake(self) -> bool:
        if self._handshaken:
            return self.flush()
        if not self.flush():
            return False
        raw = _scratch.raw
        while True:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                if not self.flush():
                    return False
                try:
                    got = recv_into(self.fd, raw, 0, len(raw))
                except ConnectionResetError:  # a peer that closes with bytes unread
                    got = 0
                if got < 0:
                    return False
                if got == 0:
                    why = "peer closed the connection during the TLS handshake" if self._heard or self.server_side else NO_TLS
                    raise ConnectionResetError(errno.ECONNRESET, why) from None
                self._heard = True
                self._incoming.write(memoryview(raw)[:got])
            except ssl.SSLError as error:
                # The alert tells the peer why; the peer may have closed already, and then the TLS error is still the one to report.
                with contextlib.suppress(OSError):
                    self.flush()
                    if self.server_side:  # closing a socket with bytes unread resets it, and a reset may overtake the alert
                        recv_into(self.fd, raw, 0, len(raw))
                why = _why_refused(error) if self.server_side else f"{error}{_advice(error)}"
                raise SslAuthenticationFailed(f"TLS handshake with {self.peer or 'peer'} failed: {why}") from error
            else:
                self._handshaken = True
                self._settled = self._settled or self._ssl.version() != "TLSv1.3"
                self.buffered = self._incoming.pending > 0
                return self.flush()

    @property
    def handshake_wants_write(self) -> bool:
        return self.pending_writes

    def read_into(self, buffer: Any, start: int, nbytes: int) -> int:
        view = memoryview(buffer)
        total = self._decrypt(view, start, nbytes)
        if total == 0:
            return 0
        if total < 0:
            total = 0
        if total < nbytes:
            raw = _scratch.raw
            got = recv_into(self.fd, raw, 0, len(raw))
            if got > 0:
                self._incoming.write(memoryview(raw)[:got])
            elif got == 0:
                self._incoming.write_eof()
            if got >= 0:
                more = self._decrypt(view, start + total, nbytes - total)
                if more > 0:
                    total += more
                elif more == 0 and total == 0:
                    return 0
        # A key update or an alert may have been produced by reading.
        if self._outgoing.pending:
            self.flush()
        return total or -1

    def is_close_notify(self, ahead: bytes) -> bool:
        """Whether the next bytes are one record that can be an alert only, and nothing is left of those before."""
        if self.buffered or self._incoming.pending or len(ahead) < _RECORD_HEADER_BYTES:
            return False
        length = int.from_bytes(ahead[3:5], "big")
        is_alert = ahead[0] == _ALERT_RECORD or (ahead[0] == _DATA_RECORD and length == _TLS_1_3_ALERT_BYTES)
        return is_alert and len(ahead) == _RECORD_HEADER_BYTES + length

    def _decrypt(self, view: memoryview, start: int, nbytes: int) -> int:
        """Decrypts what is here: the count, 0 at end of stream, -1 when a whole record is missing. Keeps `buffered` up to date."""
        total = 0
        while total < nbytes:
            try:
                # With a buffer the call returns a count; the type stubs know only the form that returns bytes.
                got: int = self._ssl.read(nbytes - total, view[start + total : start + nbytes])  # type: ignore[assignment, arg-type, unused-ignore]
            except ssl.SSLWantReadError:
                self.buffered = False
                return total or -1
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # With bytes in hand the end is reported by the next call, which must come without a new socket event.
                self.buffered = total > 0
                return total
            except ssl.SSLError as error:
                if not self._settled and "ALERT" in (error.reason or ""):
                    raise SslAuthenticationFailed(
                        f"{self.peer or 'peer'} refused this client after the TLS handshake, as for a client certificate that is missing or"
                        f" not trusted there: {error}"
                    ) from error
                raise ConnectionResetError(errno.ECONNRESET, f"TLS stream from {self.peer or 'peer'} is broken: {error}") from error
            if got == 0:
                self.buffered = total > 0
                return total
            total += got
            self._settled = True
        self.buffered = self._ssl.pending() > 0 or self._incoming.pending > 0
        return total

    def write(self, buffers: list[Any], skip_bytes: int, first: int = 0) -> int:
        if not self.flush():
            return -1
        accepted = 0
        small = bytearray()  # small pieces share a TLS record: each record costs a call, 22 bytes and a checksum
        for part in _pieces(buffers, first, skip_bytes, _TLS_CHUNK_BYTES):
            accepted += part.nbytes
            if small and len(small) + part.nbytes > _TLS_RECORD_BYTES:
                self._encrypt(memoryview(small))
                small = bytearray()
            if part.nbytes < _TLS_RECORD_BYTES:
                small += part
            else:
                self._encrypt(part)
        if small:
            self._encrypt(memoryview(small))
        self.flush()
        return accepted

    def _encrypt(self, part: memoryview) -> None:
        while part.nbytes:
            try:
                part = part[self._ssl.write(part) :]
            except ssl.SSLWantReadError as error:
                raise ConnectionResetError(
                    errno.ECONNRESET, f"{self.peer or 'peer'} began a TLS renegotiation, which is not supported"
                ) from error

    @property
    def pending_writes(self) -> bool:
        return self._cipher_pos < len(self._cipher) or self._outgoing.pending > 0

    def flush(self) -> bool:
        while True:
            if self._cipher_pos >= len(self._cipher):
                if not self._outgoing.pending:
                    return True
                self._cipher = self._outgoing.read()
                self._cipher_pos = 0
            sent = send_gather(self.fd, [self._cipher], self._cipher_pos)
            if sent < 0:
                return False
            self._cipher_pos += sent

    def close(self) -> None:
        if self.fd >= 0:
            if self._handshaken:
                # A closing alert, if the socket takes it now; a dead peer is no reason to fail a close.
                with contextlib.suppress(ssl.SSLError, OSError, ValueError):
                    self._ssl.unwrap()
                with contextlib.suppress(OSError):
                    self.flush()
            self.fd = -1
        self.sock.close()


class MemoryTransport:
    """One end of an in-process byte pipe: no descriptor, no kernel; both ends may live in different threads.

    Attributes:
        max_read_bytes: Most bytes one `read_into` gives (1 feeds byte by byte).
        max_write_bytes: Most bytes one `write` takes; 0 stalls the stream.
        capacity_bytes: Bytes the other end may hold unread.
        connect_error: OSError that `finish_connect` raises.
        closed: This end was closed.
    """

    __slots__ = (
        "_held", "_incoming", "_lock", "buffered", "capacity_bytes", "closed", "connect_error", "connected", "fd", "max_read_bytes",
        "max_write_bytes", "on_change", "other", "peer",
    )  # fmt: skip

    def __init__(self, lock: threading.Lock, *, connected: bool, capacity_bytes: int) -> None:
        self.fd = -1
        self.connected = connected
        self.buffered = False
        self.peer = "memory"
        self.max_read_bytes = 1 << 30
        self.max_write_bytes = 1 << 30
        self.capacity_bytes = capacity_bytes
        self.connect_error: OSError | None = None
        self.on_change: Callable[[], None] | None = None
        self.other: MemoryTransport = self
        self._incoming: deque[memoryview] = deque()
        self._held = 0
        self.closed = False
        self._lock = lock

    def ready_ops(self) -> int:
        """READ and WRITE bits that would make progress now."""
        ops = 0
        if not self.connected:
            return WRITE if self.connect_error is not None or self.other.connected else 0
        if self._held or self.other.closed:
            ops = READ
        if self.max_write_bytes and (self.other._held < self.other.capacity_bytes or self.other.closed):
            ops |= WRITE
        return ops

    def finish_connect(self) -> bool:
        if self.connect_error is not None:
            raise self.connect_error
        self.connected = self.other.connected
        return self.connected

    def accept(self) -> None:
        """Lets the other end's pending connect succeed."""
        self.connected = True
        self.other._changed()

    def handshake(self) -> bool:
        return True

    @property
    def handshake_wants_write(self) -> bool:
        return False

    def read_into(self, buffer: Any, start: int, nbytes: int) -> int:
        view = memoryview(buffer)
        wanted = min(nbytes, self.max_read_bytes)
        total = 0
        with self._lock:
            if self.closed:
                raise OSError(errno.EBADF, "transport is closed")
            while total < wanted and self._incoming:
                chunk = self._incoming[0]
                part = chunk[: wanted - total]
                view[start + total : start + total + len(part)] = part
                total += len(part)
                if len(part) == len(chunk):
                    self._incoming.popleft()
                else:
                    self._incoming[0] = chunk[len(part) :]
            self._held -= total
            ended = self.other.closed
        if total:
            self.other._changed()
            return total
        return 0 if ended else -1

    def write(self, buffers: list[Any], skip_bytes: int, first: int = 0) -> int:
        accepted = bytearray()
        with self._lock:
            if self.closed or self.other.closed:
                raise BrokenPipeError(errno.EPIPE, "peer closed the in-memory connection")
            room = min(self.max_write_bytes, self.other.capacity_bytes - self.other._held)
            for part in _pieces(buffers, first, skip_bytes, room):
                accepted += part
            if accepted:
                self.other._incoming.append(memoryview(bytes(accepted)))
                self.other._held += len(accepted)
        if not accepted:
            return -1
        self.other._changed()
        return len(accepted)

    @property
    def pending_writes(self) -> bool:
        return False

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self._incoming.clear()
            self._held = 0
        self.other._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


def memory_pair(*, capacity_bytes: int = 1 << 20, connected: bool = True) -> tuple[MemoryTransport, MemoryTransport]:
    """Makes two joined in-memory transports.

    Args:
        capacity_bytes: Unread bytes each direction holds before a writer would block.
        connected: False leaves both ends connecting until the second one is accepted (`MemoryTransport.accept`).

    Returns:
        The two ends, by convention (client, server).
    """
    lock = threading.Lock()
    left = MemoryTransport(lock, connected=connected, capacity_bytes=capacity_bytes)
    right = MemoryTransport(lock, connected=connected, capacity_bytes=capacity_bytes)
    left.other, right.other = right, left
    return left, right


def has_ended(transport: Transport) -> bool:
    """Whether a peer has closed its side and nothing that it sent before is unread. Reads nothing.

    Under TLS a short record counts as the end: the alert close_notify. No request is that short.

    Raises:
        OSError: the connection is broken.
    """
    if not isinstance(transport, PlaintextTransport | TlsTransport):
        return False
    try:
        ahead = transport.sock.recv(_CLOSE_NOTIFY_BYTES + 1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    if not ahead:
        return True
    return isinstance(transport, TlsTransport) and transport.is_close_notify(ahead)


class Transports(Protocol):
    """Makes transports for a selector: outgoing by address, incoming by accepted socket."""

    def connect(self, address: Address) -> Transport:
        """Starts a connection; `connected` of the result says whether it was made at once."""

    def accept(self, sock: socket.socket) -> Transport:
        """Wraps a socket that a listener accepted."""


class SocketTransports:
    """Real sockets, plaintext or TLS.

    Args:
        send_buffer_bytes: SO_SNDBUF, -1 for the system's default.
        receive_buffer_bytes: SO_RCVBUF, -1 for the system's default.
        ssl_context: Makes every connection TLS; or what gives the context of each.
        check_hostname_as: Name sent and checked instead of the address's host.
        socket_factory: Makes the sockets (tests give their own).
    """

    __slots__ = ("check_hostname_as", "receive_buffer_bytes", "send_buffer_bytes", "socket_factory", "ssl_context")

    def __init__(
        self,
        *,
        send_buffer_bytes: int = USE_DEFAULT_BUFFER_SIZE,
        receive_buffer_bytes: int = USE_DEFAULT_BUFFER_SIZE,
        ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        check_hostname_as: str | None = None,
        socket_factory: Callable[[int, int], socket.socket] = socket.socket,
    ) -> None:
        self.send_buffer_bytes = send_buffer_bytes
        self.receive_buffer_bytes = receive_buffer_bytes
        self.ssl_context = ssl_context
        self.check_hostname_as = check_hostname_as
        self.socket_factory = socket_factory

    def connect(self, address: Address) -> Transport:
        sock = self.socket_factory(address.family, socket.SOCK_STREAM)
        try:
            configure_socket(sock, self.send_buffer_bytes, self.receive_buffer_bytes)
            code = sock.connect_ex(address.sockaddr)
            if code and code not in _IN_PROGRESS:
                raise OSError(code, os.strerror(code))
            return self.over(sock, address, connected=code == 0)
        except BaseException:
            sock.close()
            raise

    def accept(self, sock: socket.socket) -> Transport:
        configure_socket(sock, self.send_buffer_bytes, self.receive_buffer_bytes)
        return self.over(sock)

    def over(self, sock: socket.socket, address: Address | None = None, *, connected: bool = True, peer: str = "") -> Transport:
        """The transport of a socket.

        Args:
            sock: configured.
            address: where it was connected to; None for one that was accepted.
            connected: it is no longer connecting.
            peer: the other side's name, where it is not the address.
        """
        peer = peer or ("" if address is None else str(address))
        context = self.ssl_context
        if context is None:
            return PlaintextTransport(sock, connected=connected, peer=peer)
        if not isinstance(context, ssl.SSLContext):
            context = context()
        if address is None:
            return TlsTransport(sock, context, server_side=True, connected=connected, peer=peer)
        name = self.check_hostname_as or address.host or str(address.sockaddr[0])
        return TlsTransport(sock, context, server_hostname=name, connected=connected, peer=peer)
