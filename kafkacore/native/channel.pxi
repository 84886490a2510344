# One connection's bytes: frames in, frames out. Bases and values of net/frames.py and net/channel.py, whose rules hold here.
#
# Frame layout (both directions): int32 size, big-endian | size bytes of payload
#
# A channel over a plain, non-blocking socket (`plain_fd`) makes its system calls from here; any other transport is asked through its methods.
# `plain_fd` is forgotten when the channel is closed, for the descriptor may then be another file's.

from kafkacore.errors import DisconnectError, IllegalStateError

cdef enum:
    FRAME_STAGING = 16 * 1024
    # Unused pages of a fresh buffer cost no memory, so the step is wide enough that most fetches are never copied.
    FRAME_FIRST_STEP = 16 * 1024 * 1024
    # Small pieces go out in several calls of one step, as much as a small socket buffer takes: a poll for each 256 of them would be dear.
    GATHER_STEP_BYTES = 64 * 1024
    # A large frame is worth a wake-up for each step of so many bytes, not for each piece that the peer's system sends.
    LOW_WATER_STEP = 256 * 1024
    LOW_WATER_LEAST = 64 * 1024
    CHANNEL_READ = 1
    CHANNEL_WRITE = 4

STAGING_BYTES = FRAME_STAGING
FIRST_STEP_BYTES = FRAME_FIRST_STEP
UNLIMITED = 0x7FFFFFFF

cdef object EMPTY_FRAME = memoryview(b"")
cdef object CHANNEL_IS_READY = None


def _bind_channel_states(ready):
    """Gives the channel code the state in which frames flow; called once by kafkacore.net.channel."""
    global CHANNEL_IS_READY
    CHANNEL_IS_READY = ready


@cython.final
cdef class FrameReader:
    """Cuts a byte stream into frames, keeping partial sizes and bodies between calls.

    Use: `target()` says where the next bytes go, `received(n)` that n of them are there, `next_frame()` gives a complete payload.

    Args:
        max_bytes: Largest payload accepted.
        where: Name of the peer for error messages.
        first_step_bytes: What a large frame's buffer begins with; it doubles as bytes arrive. A block that the pool keeps anyway is
            taken whole.
        memory: Bounds the frames of many readers; None for no bound.

    Attributes:
        hungry: The next frame waits for `memory`; nothing is to be read until there is some.
    """

    cdef public str where
    cdef public bint hungry
    cdef Py_ssize_t max, first_step
    cdef ReceiveMemory memory
    cdef PooledBuffer staging             # made at the first read: a listening broker may hold many connections that never speak
    cdef Py_ssize_t start, end            # staged bytes not yet consumed are [start, end)
    cdef PooledBuffer body                # of the frame being filled, or None
    cdef Py_ssize_t body_size, body_filled

    def __cinit__(self, Py_ssize_t max_bytes=UNLIMITED, str where="", Py_ssize_t first_step_bytes=FRAME_FIRST_STEP,
                  ReceiveMemory memory=None):
        self.max = max_bytes
        self.where = where
        self.first_step = max(first_step_bytes, FRAME_STAGING)
        self.memory = memory

    def limit(self, Py_ssize_t max_bytes, ReceiveMemory memory):
        """Sets the largest payload and the bound of the memory of the frames that begin from now on.

        Args:
            max_bytes: Largest payload accepted.
            memory: Bounds the frames of many readers; None for no bound.
        """
        self.max = max_bytes
        self.memory = memory

    cdef str foreign(self, int64_t size):
        """What the first bytes of a stream are that another protocol begins with. Source: RFC 8446, section 5.1 (record headers)."""
        if size >> 16 == 0x1603 or size >> 16 == 0x1503:
            return "; the peer speaks TLS, and this side of the connection does not"
        if size == 0x47455420 or size == 0x504F5354 or size == 0x48545450:    # "GET ", "POST", "HTTP"
            return "; the peer speaks HTTP"
        return None

    cdef str cut_short(self):
        """Where the stream stands when the peer closes the connection."""
        cdef int64_t size
        if not self.partial:
            return ""
        size = self.body_size if self.body is not None else self.staged_size() if self.end - self.start >= 4 else 0
        return self.foreign(size) or " in the middle of a frame"

    @property
    def filling(self):
        """True when a large frame is half here."""
        return self.body is not None

    @property
    def partial(self):
        """True when the stream is in the middle of a frame."""
        return self.body is not None or self.end > self.start

    def target(self):
        """Returns (buffer, start, nbytes): where the next bytes of the stream belong. nbytes is never 0."""
        cdef Py_ssize_t at, room
        buffer = self.aim(&at, &room)
        return buffer, at, room

    cdef PooledBuffer aim(self, Py_ssize_t* at, Py_ssize_t* room):
        if self.body is not None:
            if self.body_filled == min(self.body.nbytes, self.body_size):
                self.grow()
            at[0] = self.body_filled
            room[0] = min(self.body.nbytes, self.body_size) - self.body_filled
            return self.body
        if self.staging is None:
            self.staging = PooledBuffer(FRAME_STAGING)
        elif self.start:
            # Only a partial size or a short partial body is left here; moving it keeps room for one full read.
            self.end -= self.start
            memmove(self.staging.ptr, self.staging.ptr + self.start, <size_t> self.end)
            self.start = 0
        at[0] = self.end
        room[0] = FRAME_STAGING - self.end
        return self.staging

    cpdef received(self, Py_ssize_t nbytes):
        """Accounts for `nbytes` put at the target."""
        if self.body is not None:
            self.body_filled += nbytes
        else:
            self.end += nbytes

    cdef inline int64_t staged_size(self) noexcept:
        return <int32_t> kc_get32(self.staging.ptr + self.start)

    cpdef bint has_frame(self):
        """True when `next_frame` has something to say (a payload, or an error) without further bytes."""
        cdef int64_t size
        if self.body is not None:
            return self.body_filled == self.body_size
        if self.end - self.start < 4:
            return False
        size = self.staged_size()
        return size <= self.end - self.start - 4 or size > self.max  # a negative size is an error to report, so it counts

    cpdef next_frame(self):
        """Returns the payload of the next complete frame (a view of a PooledBuffer, without the size), or None.

        Raises:
            CorruptDataError: The size is negative or above the limit; the connection cannot go on.
        """
        cdef PooledBuffer body
        cdef Py_ssize_t staged
        cdef int64_t size
        if self.body is not None:
            if self.body_filled < self.body_size:
                return None
            body, self.body = self.body, None
            return memoryview(body) if body.nbytes == self.body_size else memoryview(body)[:self.body_size]
        staged = self.end - self.start - 4
        if staged < 0:
            return None
        size = self.staged_size()
        if size < 0 or size > self.max:
            raise CorruptDataError(
                f"frame size {size} from {self.where or 'peer'} is "
                + ("negative" if size < 0 else f"above the limit of {self.max} bytes")
                + (self.foreign(size) or "; the stream is not Kafka's protocol or is out of step")
            )
        if size <= staged:
            body = None
            if size:
                body = PooledBuffer(size)
                memcpy(body.ptr, self.staging.ptr + self.start + 4, <size_t> size)
            self.start += 4 + size
            if self.start == self.end:
                self.start = self.end = 0
            return EMPTY_FRAME if body is None else memoryview(body)
        if size + 4 > FRAME_STAGING:
            self.hungry = self.memory is not None and self.memory.used_bytes >= self.memory.limit_bytes
            if self.hungry:
                return None
            body = PooledBuffer(size if pool_has(size) else min(size, self.first_step))
            if self.memory is not None:
                body.count(self.memory, size)
            memcpy(body.ptr, self.staging.ptr + self.start + 4, <size_t> staged)
            self.body = body
            self.body_size = size
            self.body_filled = staged
            self.start = self.end = 0
        return None

    cdef int grow(self) except -1:
        """Doubles the buffer of a large frame: the peer has sent as much as the buffer held, so the next step is earned."""
        cdef Py_ssize_t nbytes = min(self.body_size, 2 * self.body.nbytes)
        cdef PooledBuffer new
        if self.body.stretch(nbytes):
            return 0
        new = PooledBuffer(nbytes)                      # a view of the old one is open
        memcpy(new.ptr, self.body.ptr, <size_t> self.body_filled)
        new.count_for(self.body)
        self.body = new
        return 0


@cython.final
cdef class NetworkSend:
    """A frame on its way out: a gather list that is referenced, never copied.

    Args:
        destination: Connection id.
        buffers: Complete frame, size included, as bytes-likes.
        await_completion: False when no caller waits until the frame is written (a response will tell); the selector then need
            not return early from a poll only to report it.

    Attributes:
        first: Index of the first buffer that is not written completely.
        skip_bytes: Bytes of it that are.
    """

    cdef public object destination
    cdef public list buffers
    cdef public Py_ssize_t size_bytes
    cdef readonly Py_ssize_t written_bytes
    cdef readonly Py_ssize_t first, skip_bytes
    cdef public bint completed
    cdef public bint await_completion

    def __cinit__(self, destination, list buffers not None, bint await_completion=True):
        self.destination = destination
        self.buffers = buffers
        self.await_completion = await_completion
        for buffer in buffers:
            self.size_bytes += len(buffer)  # byte formats only: bytes, bytearray, PooledBuffer, BufferStart, FileSlice, memoryview of "B"

    cdef int advance(self, Py_ssize_t nbytes) except -1:
        """Accounts for `nbytes` more that are written."""
        cdef Py_ssize_t left = self.skip_bytes + nbytes, size
        self.written_bytes += nbytes
        while self.first < len(self.buffers):
            size = len(self.buffers[self.first])
            if left < size:
                break
            left -= size
            self.first += 1
        self.skip_bytes = left
        return 0


@cython.final
cdef class NetworkReceive:
    """A complete frame that came in: `payload` is a memoryview without the size."""

    cdef public object source
    cdef public object payload

    def __cinit__(self, source, payload not None):
        self.source = source
        self.payload = payload

    def __repr__(self):
        return f"NetworkReceive({self.source!r}, {len(self.payload)} bytes)"


cdef class ChannelCore:
    """The compiled half of KafkaChannel: its state, and one step of reading and of writing."""

    cdef public object id
    cdef public object transport
    cdef public object authenticator
    cdef public FrameReader reader
    cdef public NetworkSend send
    cdef public object state
    cdef public object mute_state
    cdef public bint muted
    cdef public int interest
    cdef public int armed
    cdef public int64_t served
    cdef public int plain_fd
    cdef public bint half_duplex               # not read while a frame is being written
    cdef public bint held                      # something came in between, and the poller was told not to say so again
    cdef readonly int low_water_bytes          # what is to be there before the poller says so (SO_RCVLOWAT); 0 for anything

    def __cinit__(self, *args, **kwargs):
        self.plain_fd = -1
        self.served = -1

    @property
    def ready(self):
        """True when frames may flow."""
        return self.state is CHANNEL_IS_READY

    cpdef set_send(self, NetworkSend send):
        """Makes `send` the frame being written.

        Raises:
            IllegalStateError: The one before it is not finished.
        """
        if self.send is not None:
            raise IllegalStateError(f"connection {self.id} is still writing a frame; a second one cannot begin")
        self.send = send
        self.interest |= CHANNEL_WRITE

    cpdef NetworkSend write(self):
        """Makes one write of the current send; returns it when that completed it, with the write interest removed."""
        cdef NetworkSend send = self.send
        cdef Py_ssize_t written
        if send is None:
            return None
        if send.written_bytes < send.size_bytes:
            if self.plain_fd >= 0:
                written = gather_out(self.plain_fd, send.buffers, send.first, send.skip_bytes, GATHER_STEP_BYTES, True)
            else:
                written = self.transport.write(send.buffers, send.skip_bytes, send.first)
            if written > 0:
                send.advance(written)
            if send.written_bytes < send.size_bytes or (self.plain_fd < 0 and self.transport.pending_writes):
                return None
        elif self.plain_fd < 0 and not self.transport.flush():
            return None
        send.completed = True
        self.send = None
        self.interest &= ~CHANNEL_WRITE
        return send

    cdef Py_ssize_t fill(self, Py_ssize_t* wanted) except -2:
        """One read from the transport to where the reader wants it."""
        cdef Py_ssize_t at, got
        cdef PooledBuffer buffer = self.reader.aim(&at, wanted)
        if self.plain_fd >= 0:
            got = receive_some(self.plain_fd, buffer.ptr + at, wanted[0])
        else:
            got = self.transport.read_into(buffer, at, wanted[0])
        if got > 0:
            self.reader.received(got)
        return got

    cdef void wait_for_more(self) noexcept:
        """Lets the system wake this side for a worthwhile part of a large frame, and for anything once the rest of it is small."""
        cdef FrameReader reader = self.reader
        cdef Py_ssize_t left = 0 if reader.body is None else reader.body_size - reader.body_filled
        cdef int wanted = 0 if left < LOW_WATER_LEAST else <int> min(left, <Py_ssize_t> LOW_WATER_STEP)
        if wanted != self.low_water_bytes and self.plain_fd >= 0 and kc_set_low_water(self.plain_fd, wanted):
            self.low_water_bytes = wanted

    cpdef read(self):
        """Makes one step of reading; returns a payload when a frame is complete.

        For the rest of a large frame the system is told how much is worth the next step.

        At most one staging read and, when that shows a large frame, one read into the frame's own buffer.

        Raises:
            DisconnectError: The peer closed the connection.
            CorruptDataError: The frame size is not acceptable.
            OSError: The stream broke.
        """
        frame = self.read_step()
        if self.reader.body is not None or self.low_water_bytes:
            self.wait_for_more()
        return frame

    cdef object read_step(self):
        cdef Py_ssize_t got, wanted
        frame = self.reader.next_frame()  # one may be here already, read together with the one before it
        if frame is not None or self.reader.hungry:
            return frame
        got = self.fill(&wanted)
        if got > 0:
            frame = self.reader.next_frame()
            if frame is not None or got < wanted or self.reader.hungry:
                return frame
            got = self.fill(&wanted)
            if got > 0:
                return self.reader.next_frame()
        if got == 0:
            raise DisconnectError(f"{self.transport.peer or 'the peer'} closed the connection{self.reader.cut_short()}")
        return None

    @property
    def has_buffered_read(self):
        """True when a read would find something although the operating system will not announce it."""
        return self.transport.buffered or self.reader.has_frame()
