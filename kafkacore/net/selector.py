"""Selector: many channels, one waiting thread. Serves clients and brokers alike.

Rules:

1. One thread owns a selector. Only `wakeup` may be called from another. [test_a_wakeup_from_another_thread_ends_a_wait]
2. A poll makes at most one receive and one write per channel, so a slow or a flooding peer costs the others nothing. What a channel
   still holds (a second frame read along with the first, decrypted TLS bytes) is found by the next poll, which then does not wait.
   [test_one_receive_per_channel_and_poll_and_no_wait_for_the_second, test_one_write_per_channel_and_poll,
   test_a_muted_channel_keeps_its_decrypted_frames]
3. `send` writes at once when the channel is idle: a request costs one system call and no write event. The completion is reported by
   the next poll all the same, in order. [test_a_send_is_written_at_once_and_reported_by_the_next_poll]
4. Results of a poll (`completed_sends`, `completed_receives`, `connected`, `accepted`, `disconnected`, `failed_sends`) stand until the
   next poll, which empties them in place. What happens between two polls is reported by the second.
   [test_an_immediate_connection_is_reported_by_the_next_poll, test_fail_is_reported]
5. Muting is lazy: a muted channel leaves the poller only when bytes arrive that no reader wants yet. In request/response traffic that is
   never, and a mute costs no system call. Where the owner watches a muted channel, the end of its stream is reported at once, unless bytes
   came before it: these are read first, when the channel is unmuted. So is `half_duplex`, which a broker asks for: while an answer is
   being written, nothing is read from that peer. [test_a_muted_channel_with_waiting_bytes_does_not_spin,
   test_the_end_of_a_muted_peer_is_reported_where_it_is_watched, test_a_frame_before_the_end_of_a_muted_peer_is_read_first,
   test_a_request_that_comes_meanwhile_is_read_when_the_answer_is_written]
6. A channel that lost its peer while frames are still unread moves to `closing`, gives them one per poll, and is reported as
   disconnected after the last. [test_frames_before_the_end_are_delivered_before_the_disconnect,
   test_responses_are_read_out_after_a_write_failed, test_channels_without_peers_are_read_out_side_by_side_a_frame_a_poll]
7. A TLS handshake costs up to some milliseconds of arithmetic, so a poll makes a few steps of accepted ones, and the others wait for the
   next: clients that are served do not wait for a crowd that comes in. [test_a_crowd_of_handshakes_lets_others_through]

Source: Kafka's Selector, with its rules of one receive per channel and poll, and of idle expiry one connection per poll.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from kafkacore._codec import SelectorCore, epoll_wait
from kafkacore.clock import Clock
from kafkacore.errors import AuthenticationFailedError, DisconnectError, IllegalStateError, KafkaError, NetworkError
from kafkacore.metadata import NEVER_MS
from kafkacore.net.channel import Authenticator, ChannelState, ConnectionId, KafkaChannel, NetworkReceive, NetworkSend
from kafkacore.net.frames import FIRST_STEP_BYTES, UNLIMITED, ReceiveMemory
from kafkacore.net.node_ids import broker_of
from kafkacore.net.transport import READ, WRITE, Address, MemoryTransport, SocketTransports, TlsTransport, Transport, Transports, has_ended

__all__ = ["Admission", "EpollPoller", "IdleDisconnect", "NetworkReceive", "NetworkSend", "Poller", "Selector", "SelectorsPoller"]

_CONNECTING = ChannelState.CONNECTING
_READY = ChannelState.READY
_ACCEPTS_PER_POLL = 64
_HANDSHAKES_PER_POLL = 4


class IdleDisconnect(DisconnectError):
    """This side closed the connection because it was not used."""


class Admission(Protocol):
    """Who may connect to a listener, and when."""

    def wait_ms(self, now_ms: int) -> int:
        """0: a connection may be taken from the listener now; more: ask again after so long; -1: after one was closed."""

    def out_of_descriptors(self, now_ms: int) -> None:
        """The system had no file descriptor for a connection; the listener waits for a close, or until it is rearmed."""

    def opened(self, id: ConnectionId, host: str) -> bool:
        """A connection was taken; False closes it at once."""

    def closed(self, id: ConnectionId) -> None:
        """A connection that was let in is closed."""


class Poller(Protocol):
    """Waits for readiness. Bits are READ and WRITE; errors and hang-ups set further bits or READ."""

    def register(self, fd: int, ops: int) -> None:
        """Adds a descriptor."""

    def modify(self, fd: int, ops: int) -> None:
        """Changes what is waited for."""

    def unregister(self, fd: int) -> None:
        """Removes a descriptor."""

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Waits and returns (fd, bits); timeout_ms < 0 waits without bound."""

    def close(self) -> None:
        """Frees the poller."""


class EpollPoller:
    """Linux epoll, level-triggered; its wait keeps the GIL when events are there already."""

    __slots__ = ("_epoll", "_fd", "modify", "register", "unregister")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._fd = self._epoll.fileno()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister

    def fileno(self) -> int:
        """The epoll's descriptor: the compiled `Selector.poll` waits on it directly."""
        return self._fd

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        return epoll_wait(self._fd, timeout_ms)

    def close(self) -> None:
        self._epoll.close()


class SelectorsPoller:
    """The standard library's best selector, where there is no epoll."""

    __slots__ = ("_selector",)

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    @staticmethod
    def _mask(ops: int) -> int:
        return (selectors.EVENT_READ if ops & READ else 0) | (selectors.EVENT_WRITE if ops & WRITE else 0)

    def register(self, fd: int, ops: int) -> None:
        self._selector.register(fd, self._mask(ops))

    def modify(self, fd: int, ops: int) -> None:
        self._selector.modify(fd, self._mask(ops))

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        ready = self._selector.select(None if timeout_ms < 0 else timeout_ms / 1000)
        return [
            (key.fd, (READ if mask & selectors.EVENT_READ else 0) | (WRITE if mask & selectors.EVENT_WRITE else 0)) for key, mask in ready
        ]

    def close(self) -> None:
        self._selector.close()


class _Waker:
    """Ends a wait from another thread: an eventfd, or a socket pair on systems without it."""

    __slots__ = ("_lock", "_pair", "_waking", "fd")

    def __init__(self) -> None:
        # A wake must not reach a descriptor that was closed and given to another file. Re-entrant: a finalizer may wake on this thread.
        self._lock = threading.RLock()
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if hasattr(os, "eventfd"):
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._pair = socket.socketpair()
            for sock in self._pair:
                sock.setblocking(False)
            self.fd = self._pair[0].fileno()
        self._waking = False

    def wake(self) -> None:
        if self._waking:
            return
        with self._lock:
            if self.fd < 0:
                return
            try:
                self._waking = True
                if self._pair is None:
                    os.eventfd_write(self.fd, 1)
                else:
                    with contextlib.suppress(BlockingIOError):  # full of wakes: the poll will return anyway
                        self._pair[1].send(b"\0")
            except BaseException:  # Ctrl+C: a wake that was not written must not keep the next from being written
                self._waking = False
                raise

    def drain(self) -> None:
        # Read first, then clear: a wake between the two writes nothing, and need not, because the poll it wanted to end is this one.
        try:
            if self._pair is None:
                os.eventfd_read(self.fd)
            else:
                self._pair[0].recv(64)
        except BlockingIOError:
            pass  # written by nobody: not `suppress`, which costs three frames in front of each record that a thread was woken for
        finally:  # also after Ctrl+C, or no later wake would be written
            self._waking = False

    def close(self) -> None:
        with self._lock:
            fd, self.fd = self.fd, -1
            if self._pair is not None:
                for sock in self._pair:
                    sock.close()
            elif fd >= 0:
                os.close(fd)


class Selector(SelectorCore):
    """Polls channels; see the rules at the top of the file.

    Args:
        clock: Time for idle expiry.
        connections_max_idle_ms: A connection unused for so long is closed; -1 for never.
        max_receive_bytes: Largest frame accepted.
        transports: Makes transports (sockets by default).
        authenticator: Called with the id of a new channel to give its authenticator, if it needs one.
        poller: What waits (epoll where there is one).
        admission: Decides about connections to the listeners.
        receive_step_bytes: What the buffer of a large frame begins with.
        receive_memory: Bounds what the frames of all accepted connections hold; what this side asked for always finds room.

    Attributes:
        channels: Open channels by id.
        closing: Channels without a peer whose frames are still being read.
        explicitly_muted: Channels muted by the owner.
        now_ms: Time read after the last wait.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        connections_max_idle_ms: int = 540_000,
        max_receive_bytes: int = UNLIMITED,
        transports: Transports | None = None,
        authenticator: Callable[[ConnectionId], Authenticator | None] | None = None,
        poller: Poller | None = None,
        admission: Admission | None = None,
        receive_step_bytes: int = FIRST_STEP_BYTES,
        receive_memory: ReceiveMemory | None = None,
    ) -> None:
        self.clock = clock
        self.channels = {}
        self.closing = {}
        self.explicitly_muted = set()
        self.completed_sends = []
        self.completed_receives = []
        self.connected = []
        self.accepted = []
        self.disconnected = {}
        self.failed_sends = []
        self.now_ms = clock.now_ms()
        self._transports: Transports = transports or SocketTransports()
        self._authenticator = authenticator
        self._max_receive_bytes = max_receive_bytes
        self._admission = admission
        self._receive_step_bytes = receive_step_bytes
        self._receive_memory = receive_memory
        self._hungry = {}  # the next frame waits for memory
        self._watched: set[KafkaChannel] = set()  # muted, and of interest when the peer hangs up
        self._max_idle_ms = connections_max_idle_ms
        self._poller = poller or (EpollPoller() if hasattr(select, "epoll") else SelectorsPoller())
        self._epoll_fd = self._poller.fileno() if type(self._poller) is EpollPoller else -1
        self._waker = _Waker()
        self._waker_fd = self._waker.fd
        self._poller.register(self._waker.fd, READ)
        self._by_fd = {}
        self._memory = {}  # channels without a descriptor
        self._listeners: dict[int, tuple[socket.socket, Transports, Admission | None]] = {}
        self._starved: list[int] = []  # listeners waiting for a free descriptor, or for their admission
        self._immediate = []  # connected by the connect call itself
        self._buffered = {}  # reads that no event will announce
        self._lru: OrderedDict[ConnectionId, int] = OrderedDict()  # id -> last active; least recent first
        self._idle_check_ms = NEVER_MS
        self._none_stalled_ms = -1  # no frame stopped growing before
        self._early_sends = []
        self._early_disconnected = {}
        self._early_failed = []
        self._early = False  # something the next poll must report without waiting
        self._in_poll = False
        self._accept_serial = 0
        self._handshakes = 0  # steps of them in the poll `_handshakes_at`
        self._handshakes_at = -1
        self._closed = False

    @property
    def authenticator(self) -> Callable[[ConnectionId], Authenticator | None] | None:
        """What makes the authenticators of new channels."""
        return self._authenticator

    @property
    def uses_tls(self) -> bool:
        """Whether connections made from here are encrypted."""
        return getattr(self._transports, "ssl_context", None) is not None

    # ---- connections

    def connect(self, id: ConnectionId, address: Address, transports: Transports | None = None) -> None:
        """Starts a connection; a later poll reports it in `connected` or `disconnected`.

        Args:
            id: Its name.
            address: Where to.
            transports: How to make it; the selector's own way by default.

        Raises:
            IllegalStateError: The id is in use.
            OSError: The attempt failed at once.
        """
        self._require_free(id)
        channel = self._add(id, (transports or self._transports).connect(address), None)
        if channel.transport.connected:
            self._immediate.append(channel)
        self._sync(channel)

    def register(self, id: ConnectionId, sock: socket.socket, transports: Transports | None = None) -> None:
        """Adds a connected server-side socket, which now belongs to the selector."""
        self._require_free(id)
        self._established(id, (transports or self._transports).accept(sock))

    def register_transport(self, id: ConnectionId, transport: Transport) -> None:
        """Adds a connected transport of any kind (in-process pipes)."""
        self._require_free(id)
        self._established(id, transport)

    def listen(self, sock: socket.socket, transports: Transports | None = None, admission: Admission | None = None) -> None:
        """Accepts connections from a listening socket, which stays the caller's; new channels appear in `accepted`.

        Args:
            sock: Bound, listening socket.
            transports: How to wrap its connections; the selector's own way by default.
            admission: Who may connect to it; the selector's own by default.
        """
        sock.setblocking(False)
        fd = sock.fileno()
        self._listeners[fd] = (sock, transports or self._transports, admission or self._admission)
        self._poller.register(fd, READ)

    def unlisten(self, sock: socket.socket) -> None:
        """Stops accepting from a listening socket."""
        fd = sock.fileno()
        if self._listeners.pop(fd, None) is not None:
            if fd in self._starved:
                self._starved.remove(fd)
            else:
                self._poller.unregister(fd)

    def _require_free(self, id: ConnectionId) -> None:
        if self._closed:
            raise IllegalStateError("the selector is closed")
        if id in self.channels or id in self.closing:
            raise IllegalStateError(f"there is a connection {id} already")

    def _add(self, id: ConnectionId, transport: Transport, receive_memory: ReceiveMemory | None) -> KafkaChannel:
        authenticator: Authenticator | None = self._authenticator(id) if self._authenticator is not None else None
        channel = KafkaChannel(id, transport, self._max_receive_bytes, authenticator, self._receive_step_bytes, receive_memory)
        self.channels[id] = channel
        if transport.fd >= 0:
            self._by_fd[transport.fd] = channel
        else:
            self._memory[id] = channel
            if isinstance(transport, MemoryTransport):
                transport.on_change = self.wakeup
        self.touch(id, self.now_ms)
        return channel

    def _established(self, id: ConnectionId, transport: Transport) -> None:
        channel = self._add(id, transport, self._receive_memory)
        channel.half_duplex = self.half_duplex
        channel.state = ChannelState.HANDSHAKE
        channel.interest = READ
        self._prepare(channel)

    def _prepare(self, channel: KafkaChannel) -> None:
        """Advances the opening; a channel that becomes ready may hold bytes that came with the last handshake message."""
        if channel.plain_fd < 0 and channel.state is ChannelState.HANDSHAKE and self._has_to_wait(channel.transport):
            self._sync(channel)  # the poller will say again that it is readable
            return
        try:
            if channel.prepare() and channel.has_buffered_read:
                self._buffered[channel] = None
        except (KafkaError, OSError) as error:
            self._lost(channel, error)
            return
        self._sync(channel)

    def _has_to_wait(self, transport: Transport) -> bool:
        """Whether the next step of a handshake is for another poll; never on the side that begins it, which no event would remind of it."""
        if not isinstance(transport, TlsTransport) or not transport.server_side:
            return False
        if self._handshakes_at != self._serial:
            self._handshakes_at, self._handshakes = self._serial, 0
        self._handshakes += 1
        return self._handshakes > _HANDSHAKES_PER_POLL

    def is_channel_ready(self, id: ConnectionId) -> bool:
        """True when frames may flow on the connection."""
        channel = self.channels.get(id)
        return channel is not None and channel.state is _READY

    def channel(self, id: ConnectionId) -> KafkaChannel | None:
        """Returns the open channel with that id."""
        return self.channels.get(id)

    def mute(self, id: ConnectionId) -> None:
        """Stops reading from a connection."""
        channel = self._require(id)
        channel.mute()
        self.explicitly_muted.add(channel)
        self._buffered.pop(channel, None)

    def unmute(self, id: ConnectionId) -> None:
        """Reads from a connection again, unless its mute state (throttled, response pending) says no."""
        channel = self._require(id)
        self._watched.discard(channel)
        if channel.maybe_unmute():
            self.explicitly_muted.discard(channel)
            if channel.has_buffered_read:
                self._buffered[channel] = None
            if not channel.armed & READ:
                self._sync(channel)

    def watch(self, id: ConnectionId) -> None:
        """Reports the end of a muted connection at once, until it is unmuted: for a peer that has no answer to wait for.

        Bytes that the peer sent before its end may be requests: then the end is found when they have been read.
        """
        channel = self._require(id)
        self._watched.add(channel)
        if not channel.armed & READ and channel.send is None:  # bytes or the end came already
            self._unwanted(channel)

    def _unwanted(self, channel: KafkaChannel) -> None:
        """A muted channel got bytes, or its end. The poller is asked no more, or it would report that again and again."""
        if channel in self._watched and not channel.has_buffered_read:
            try:
                ended = has_ended(channel.transport)
            except OSError as error:
                self._lost(channel, error)
                return
            if ended:
                peer = channel.transport.peer or "the peer"
                self._lost(channel, DisconnectError(f"connection to {peer} was closed by it"))
                return
        self._sync(channel)

    def _require(self, id: ConnectionId) -> KafkaChannel:
        channel: KafkaChannel | None = self.channels.get(id)
        if channel is None:
            raise IllegalStateError(f"there is no connection {id}")
        return channel

    # ---- polling (`poll` and `send` are compiled: native/selector.pxi)

    @staticmethod
    def _memory_ops(channel: KafkaChannel) -> int:
        transport = channel.transport
        ready = transport.ready_ops() if isinstance(transport, MemoryTransport) else READ | WRITE
        held = channel.muted or channel.held or channel.reader.hungry
        return ready & (channel.interest & ~READ if held else channel.interest)

    def _memory_ready(self) -> bool:
        return any(self._memory_ops(channel) for channel in self._memory.values())

    def _open_step(self, channel: KafkaChannel, ops: int, now_ms: int) -> None:
        """One step of a channel that is not ready yet."""
        if channel.state is _CONNECTING:
            try:
                if not channel.finish_connect():
                    if ops & ~(READ | WRITE):  # hung up, with its reason already taken: it will never be connected
                        self._lost(channel, ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
                    return
            except OSError as error:
                self._lost(channel, error)
                return
            self.connected.append(channel.id)
            self.touch(channel.id, now_ms)
        elif channel.state is ChannelState.CLOSED:
            return
        self._prepare(channel)
        if channel.state is _READY and channel.send is not None:
            channel.interest |= WRITE
            self._sync(channel)

    def _accept(self, fd: int) -> None:
        entry = self._listeners.get(fd)
        if entry is None:
            return
        listener, transports, admission = entry
        for _ in range(_ACCEPTS_PER_POLL):
            if admission is not None and admission.wait_ms(self.now_ms):
                self._starve(fd)
                return
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # The listener stays readable; waiting on it would spin. It comes back when a connection is closed, or it is rearmed.
                    if admission is not None:
                        admission.out_of_descriptors(self.now_ms)
                    self._starve(fd)
                    return
                if error.errno in (errno.ECONNABORTED, errno.EPROTO, errno.EPERM):
                    continue  # that peer has closed; the next one may not have
                raise
            self._accept_serial += 1
            id = f"{endpoint_of(listener.getsockname())}-{endpoint_of(peer)}-{self._accept_serial}"
            if admission is not None and not admission.opened(id, str(peer[0]) if isinstance(peer, tuple) else ""):
                sock.close()
                continue
            try:
                transport = transports.accept(sock)
            except OSError:
                sock.close()  # reset before it was configured
                if admission is not None:
                    admission.closed(id)
                continue
            self.accepted.append(id)
            self._established(id, transport)

    def _starve(self, fd: int) -> None:
        self._poller.unregister(fd)
        self._starved.append(fd)

    def _feed(self) -> None:
        """There is memory again: the hungry channels try, and all but the first few may find it taken."""
        hungry, self._hungry = self._hungry, {}
        for channel in hungry:
            channel.reader.hungry = False
            self._sync(channel)
            self._buffered[channel] = None

    def fail_stalled(self, before_ms: int) -> None:
        """Closes the connections whose large frame has not grown since before_ms, if others wait for memory.

        Called with every poll, it walks the connections only when that can be true of one: not before the least recently used of those
        that it found filling was. Those that begin later were used later.
        """
        if not self._hungry or before_ms <= self._none_stalled_ms:
            return
        earliest_ms = self.now_ms
        for channel in [each for each in self.channels.values() if each.reader.filling]:
            active_ms = self._lru.get(channel.id, before_ms)
            if active_ms < before_ms:
                self.fail(channel.id, NetworkError(f"{channel.transport.peer or channel.id} stopped in the middle of a request"))
            else:
                earliest_ms = min(earliest_ms, active_ms)
        self._none_stalled_ms = earliest_ms

    # ---- endings

    def _lost(self, channel: KafkaChannel, cause: KafkaError | OSError) -> None:
        """The peer has closed or the stream is broken: reads what is left, then reports."""
        error = cause if isinstance(cause, KafkaError) else self._explain(channel, cause)
        if error.broker is None:
            error.broker = broker_of(channel.id)
        was_ready = channel.state is _READY
        self._forget(channel)
        answering = channel.half_duplex and channel.send is not None
        if was_ready and not isinstance(cause, KafkaError) and channel not in self.explicitly_muted and not answering:
            # The write side failed; responses the peer sent before may still be readable. Requests of a peer that takes no answer are not.
            self.closing[channel.id] = (channel, error)
            return
        self._finish(channel, error)

    @staticmethod
    def _explain(channel: KafkaChannel, cause: OSError) -> KafkaError:
        peer = channel.transport.peer or "the peer"
        reason = cause.strerror or str(cause) or type(cause).__name__
        error: KafkaError
        if channel.state is _CONNECTING:
            error = NetworkError(f"connection to {peer} failed: {reason}")
        elif isinstance(cause, ConnectionError):
            error = DisconnectError(f"connection to {peer} was lost: {reason}")
        else:
            error = NetworkError(f"connection to {peer} failed: {reason}")
        error.__cause__ = cause
        return error

    def _forget(self, channel: KafkaChannel) -> None:
        """Takes the channel out of the poller and of every table but `closing`."""
        fd = channel.transport.fd
        if fd >= 0:
            if channel.armed:
                with contextlib.suppress(OSError):  # a descriptor closed under us has left the poller already
                    self._poller.unregister(fd)
            self._by_fd.pop(fd, None)
        channel.armed = 0
        self.channels.pop(channel.id, None)
        self._memory.pop(channel.id, None)
        self._buffered.pop(channel, None)
        self._hungry.pop(channel, None)
        self._watched.discard(channel)
        self._lru.pop(channel.id, None)
        if self._admission is not None:
            self._admission.closed(channel.id)
        if channel in self._immediate:
            self._immediate.remove(channel)
        if channel.id in self.connected:
            self.connected.remove(channel.id)
        if isinstance(channel.transport, MemoryTransport):
            channel.transport.on_change = None

    def _finish(self, channel: KafkaChannel, error: KafkaError) -> None:
        self.explicitly_muted.discard(channel)
        channel.close()
        if self._in_poll:
            self.disconnected[channel.id] = error
        else:
            self._early_disconnected[channel.id] = error
            self._early = True
        self.rearm_listeners()

    def _read_closing(self) -> None:
        for id, (channel, error) in list(self.closing.items()):
            payload = None
            if channel.served != self._serial:
                channel.served = self._serial
                try:
                    payload = channel.read()
                except AuthenticationFailedError as refusal:  # what the peer said before it closed is why it closed
                    refusal.broker = error.broker
                    error = refusal
                except (KafkaError, OSError):
                    pass  # the first failure is the one to report
            if payload is not None:
                self.completed_receives.append(NetworkReceive(id, payload))
            elif not channel.reader.has_frame():
                del self.closing[id]
                self._finish(channel, error)

    def descriptor(self) -> int:
        """What is readable when one of the connections is ready, for an event loop to watch; -1 without such a descriptor."""
        return self._epoll_fd

    @property
    def has_more(self) -> bool:
        """Whether the next poll has something to do that `descriptor` does not announce, as a second answer that one read brought."""
        return self._early or bool(self._buffered or self._immediate or self.closing)

    def close(self, id: ConnectionId | None = None) -> None:
        """Closes one connection without reporting it, or, without an id, the selector with all its connections."""
        if id is not None:
            channel = self.channels.get(id)
            if channel is not None:
                self._forget(channel)
                self.explicitly_muted.discard(channel)
                channel.close()
                self.rearm_listeners()
            elif id in self.closing:
                self.closing.pop(id)[0].close()
            return
        if self._closed:
            return
        self._closed = True
        for open_id in [*self.channels, *self.closing]:
            self.close(open_id)
        for fd in self._listeners:
            if fd not in self._starved:
                with contextlib.suppress(OSError):  # the owner may have closed the socket first
                    self._poller.unregister(fd)
        self._listeners.clear()
        self._starved.clear()
        self._poller.close()
        self._waker.close()

    def fail(self, id: ConnectionId, error: KafkaError) -> None:
        """Closes one connection for a reason found above; the next poll (or this one) reports it in `disconnected`."""
        channel = self.channels.get(id)
        if channel is not None:
            self._forget(channel)
            self._finish(channel, error)

    def rearm_listeners(self) -> None:
        """Listens again where it was given up for want of descriptors or admission."""
        while self._starved:
            fd = self._starved.pop()
            if fd in self._listeners:
                self._poller.register(fd, READ)

    def wakeup(self) -> None:
        """Makes the poll in progress, or the next one, return without waiting. Any thread may call it."""
        self._waker.wake()

    # ---- idle expiry

    def _expire_idle(self, now_ms: int) -> None:
        """Closes the least recently used connection if it is idle for too long: at most one per poll."""
        while self._lru:
            id, active_ms = next(iter(self._lru.items()))
            channel = self.channels.get(id)
            if channel is None:
                del self._lru[id]
                continue
            deadline_ms = active_ms + self._max_idle_ms
            if deadline_ms > now_ms:
                self._idle_check_ms = deadline_ms
                return
            idle_ms = now_ms - active_ms
            self._forget(channel)
            self._finish(channel, IdleDisconnect(f"connection to {channel.transport.peer or id} was closed after {idle_ms} ms without use"))
            self._idle_check_ms = next(iter(self._lru.values())) + self._max_idle_ms if self._lru else NEVER_MS
            return
        self._idle_check_ms = NEVER_MS

    def statistics(self) -> dict[str, int]:
        """Returns counts of what the selector holds."""
        return {
            "connections": len(self.channels),
            "closing": len(self.closing),
            "explicitly_muted": len(self.explicitly_muted),
            "listeners": len(self._listeners),
            "polls": self.poll_count,
        }


def endpoint_of(name: Any) -> str:
    """A socket's name as ids of accepted connections have it: the listener's, the peer's, a number."""
    if isinstance(name, tuple) and len(name) >= 2:
        return f"{name[0]}:{name[1]}"
    return str(name)
