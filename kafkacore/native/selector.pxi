# One turn of the selector, compiled base of net/selector.py, which tells the rules and does everything that is rare: opening, accepting,
# losing and expiring connections. Results go into the lists that the Python half owns.

from kafkacore.errors import KafkaError, NetworkError


cdef class SelectorCore:
    """The compiled half of Selector: `poll` and `send`."""

    cdef public object clock
    cdef public dict channels
    cdef public dict closing
    cdef public set explicitly_muted
    cdef public list completed_sends
    cdef public list completed_receives
    cdef public list connected
    cdef public list accepted
    cdef public dict disconnected
    cdef public list failed_sends
    cdef public int64_t now_ms
    cdef public int64_t poll_count
    cdef public object _poller
    cdef public int _epoll_fd                 # of an EpollPoller, else -1
    cdef public int _waker_fd
    cdef public object _waker
    cdef public dict _by_fd
    cdef public dict _memory
    cdef public dict _listeners
    cdef public list _immediate
    cdef public dict _buffered
    cdef public ReceiveMemory _receive_memory
    cdef public dict _hungry                  # channels whose next frame waits for memory
    cdef public object _lru
    cdef public int64_t _max_idle_ms
    cdef public int64_t _idle_check_ms
    cdef public list _early_sends
    cdef public dict _early_disconnected
    cdef public list _early_failed
    cdef public bint _early
    cdef public bint _in_poll
    cdef public bint quiet                    # polls return when there is something to report, not when parts of frames have moved
    cdef public bint half_duplex              # an accepted channel is not read while a frame is being written to it
    cdef public int64_t _serial
    cdef object touched                       # the id used last, and when: the same again needs no entry
    cdef int64_t touched_ms

    def send(self, NetworkSend send not None):
        """Begins to write a frame, at once if the channel is ready.

        A connection that fails here is reported by the next poll in `failed_sends` and `disconnected`.

        Raises:
            IllegalStateError: There is no such connection, or its last frame is not finished.
        """
        cdef ChannelCore channel = self.channels.get(send.destination)
        if channel is None:
            if send.destination in self.closing:
                self._early_failed.append(send.destination)
                self._early = True
                return
            raise IllegalStateError(f"there is no connection {send.destination} to send to")
        channel.set_send(send)
        if channel.state is not CHANNEL_IS_READY:
            return
        try:
            done = channel.write()
        except (KafkaError, OSError) as error:
            self._early_failed.append(send.destination)
            self._early = True
            self._lost(channel, error)
            return
        if done is None:
            self._sync(channel)
            return
        self._early_sends.append(send)
        if send.await_completion:
            self._early = True
            self.touch(send.destination, self.now_ms)  # no response will do it

    def poll(self, int64_t timeout_ms, now_ms=None):
        """Waits for something to happen, does one step of I/O on every channel that can, and fills the result containers.

        Args:
            timeout_ms: Longest wait; 0 returns at once, a negative value waits without bound.
            now_ms: Time, if the caller has just read it.
        """
        cdef int64_t idle_ms, now = -1, until_ms
        cdef bint again = self.quiet and self._epoll_fd >= 0
        if now_ms is not None:
            now = now_ms
        self.clear()
        if self._hungry and self._receive_memory.used_bytes < self._receive_memory.limit_bytes:
            self._feed()
        if self._early or self._immediate or self._buffered or self.closing or (self._memory and self._memory_ready()):
            timeout_ms = 0
        until_ms = LOOKING
        if again and timeout_ms > 0:
            if now < 0:
                now = time_of(self.clock)
            until_ms = now + timeout_ms if timeout_ms < LOOKING - now else LOOKING
        if self._early_sends:
            self.completed_sends, self._early_sends = self._early_sends, self.completed_sends
        if self._early:
            self._early = False
            self.disconnected.update(self._early_disconnected)
            self._early_disconnected.clear()
            self.failed_sends.extend(self._early_failed)
            self._early_failed.clear()
        while True:
            if timeout_ms != 0 and self._idle_check_ms < LOOKING:
                if now < 0:
                    now = time_of(self.clock)
                idle_ms = self._idle_check_ms - now
                if idle_ms < timeout_ms or timeout_ms < 0:
                    timeout_ms = idle_ms if idle_ms > 0 else 0
            if timeout_ms > 0x7FFFFFFE:
                timeout_ms = -1
            if self.turn(<int> max(timeout_ms, -1)) or not again or timeout_ms == 0:
                return
            # Parts of frames moved and there is nothing to report.
            now = self.now_ms
            timeout_ms = -1 if until_ms == LOOKING else max(until_ms - now, 0)

    cdef bint turn(self, int timeout_ms) except -1:
        """One wait, and one step of I/O on every channel that can; False if that left nothing to report or to do."""
        cdef epoll_event found[KC_EPOLL_EVENTS]
        cdef int64_t now
        cdef int n, i, fd, ops
        cdef bint woken = False
        cdef list events = None
        cdef dict buffered = None
        cdef list accepting = None
        self.poll_count += 1
        if self._epoll_fd >= 0:
            n = wait_for_events(self._epoll_fd, found, timeout_ms)
        else:
            events = self._poller.poll(timeout_ms)
            n = <int> len(events)
        now = self.now_ms = time_of(self.clock)
        pool_age(now)
        self._serial += 1
        self._in_poll = True
        try:
            if self._immediate:
                ready, self._immediate = self._immediate, []
                for channel in ready:
                    self.service(channel, CHANNEL_WRITE, now)
            if self._buffered:
                buffered, self._buffered = self._buffered, {}
            for i in range(n):
                if events is None:
                    fd, ops = kc_epoll_fd(&found[i]), <int> found[i].events
                else:
                    fd, ops = events[i]
                if fd == self._waker_fd:
                    self._waker.drain()
                    woken = True
                elif fd in self._by_fd:
                    self.service(self._by_fd[fd], ops, now)
                elif fd in self._listeners:
                    accepting = [fd] if accepting is None else [*accepting, fd]
            if self._memory:
                for channel in list(self._memory.values()):
                    ops = self._memory_ops(channel)
                    if ops:
                        self.service(channel, ops, now)
            if buffered:
                for channel in buffered:
                    if (<ChannelCore> channel).served != self._serial and channel.state is CHANNEL_IS_READY and not channel.muted:
                        if (<ChannelCore> channel).half_duplex and (<ChannelCore> channel).send is not None:
                            continue                          # `service` looks again when that is written
                        self.read(channel, now)
            if self.closing:
                self._read_closing()
            if accepting:
                # Last: a descriptor closed in this poll may come back as a new connection, and its old events must not reach that.
                for fd in accepting:
                    self._accept(fd)
            if now >= self._idle_check_ms:
                self._expire_idle(now)
        finally:
            self._in_poll = False
        return (n == 0 or woken or accepting is not None or bool(self.completed_receives) or bool(self.completed_sends) or bool(self._buffered)
                or bool(self.disconnected) or bool(self.failed_sends) or bool(self.closing) or bool(self.connected) or bool(self._early)
                or bool(self._immediate) or bool(self._hungry) or bool(self._memory))

    cdef int clear(self) except -1:
        if self.completed_sends:
            self.completed_sends.clear()
        if self.completed_receives:
            self.completed_receives.clear()
        if self.connected:
            self.connected.clear()
        if self.accepted:
            self.accepted.clear()
        if self.disconnected:
            self.disconnected.clear()
        if self.failed_sends:
            self.failed_sends.clear()
        return 0

    cpdef _sync(self, ChannelCore channel):
        """Tells the poller what the channel waits for. A channel that waits for nothing is taken out, or a hang-up would spin."""
        cdef int armed = channel.armed, fd
        cdef int wanted = channel.interest & ~CHANNEL_READ if channel.muted or channel.held or channel.reader.hungry else channel.interest
        if wanted == armed:
            return
        channel.armed = wanted
        fd = channel.transport.fd
        if fd < 0:
            return
        if not armed:
            self._poller.register(fd, wanted)
        elif wanted:
            self._poller.modify(fd, wanted)
        else:
            self._poller.unregister(fd)

    cdef int service(self, ChannelCore channel, int ops, int64_t now_ms) except -1:
        """One step of I/O for one channel."""
        if channel.state is not CHANNEL_IS_READY:
            self._open_step(channel, ops, now_ms)
            return 0
        if ops & ~CHANNEL_WRITE:               # to be read, or the error and hang-up bits, which a read turns into their reason
            if channel.muted:
                self._unwanted(channel)
            elif channel.reader.hungry:
                self._sync(channel)
            elif channel.half_duplex and channel.send is not None:
                channel.held = True
                self._sync(channel)
            elif channel.served != self._serial:
                self.read(channel, now_ms)
        if ops & ~CHANNEL_READ and channel.send is not None and channel.state is CHANNEL_IS_READY:
            try:
                done = channel.write()
            except (KafkaError, OSError) as error:
                self.failed_sends.append(channel.id)
                self._lost(channel, error)
                return 0
            self.touch(channel.id, now_ms)
            if done is not None:
                # To a peer that this side connected to, the next request may wait for just that.
                if done.await_completion or not self.quiet or not channel.half_duplex:
                    self.completed_sends.append(done)
                channel.held = False
                self._sync(channel)
                if channel.half_duplex and not channel.muted and channel.has_buffered_read:
                    self._buffered[channel] = None
        return 0

    cdef int read(self, ChannelCore channel, int64_t now_ms) except -1:
        channel.served = self._serial
        try:
            payload = channel.read()
        except (KafkaError, OSError) as error:
            self._lost(channel, error)
            return 0
        except MemoryError as error:  # a frame within the limit, but not within what this process may have: one connection's trouble
            self._lost(channel, NetworkError(f"no memory for a frame from {channel.transport.peer or 'the peer'}: {error}"))
            return 0
        self.touch(channel.id, now_ms)
        if payload is not None:
            self.completed_receives.append(NetworkReceive(channel.id, payload))
        if channel.reader.hungry:
            self._hungry[channel] = None
            self._sync(channel)
        elif (channel.plain_fd < 0 and channel.transport.buffered) or channel.reader.has_frame():
            self._buffered[channel] = None
        return 0

    cpdef touch(self, id, int64_t now_ms):
        """The connection was used."""
        if self._max_idle_ms < 0 or (self.touched_ms == now_ms and self.touched is id and id in self._lru):
            return
        if not self._lru:
            self._idle_check_ms = now_ms + self._max_idle_ms
        self._lru[id] = now_ms
        self._lru.move_to_end(id)
        self.touched = id
        self.touched_ms = now_ms
