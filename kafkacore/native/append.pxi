# The producer's append path: one C call from KafkaProducer.send to the bytes of the open batch.
#
# Objects, outermost first
#   ProducerCore     base of KafkaProducer; send() and send_many()
#   TopicQueue       a topic seen by this producer: its PartitionQueues and the sticky one
#   PartitionQueue   FIFO deque of ProducerBatch (the accumulator's), and `open`, its last batch while records may be added
#   ProducerBatch    a pooled buffer being filled: 61 bytes left for the header, then records; later the unit of sending
#   Delivery         what is known of a batch's fate; small, and the only thing futures hold
#   RecordFuture     (delivery, index): 48 bytes, from a free list
#
# Rules
# 1. The append path takes no lock: the GIL is its lock, and the extension does not declare itself safe without one. So between reading
#    PartitionQueue.open and advancing ProducerBatch.pos nothing may run Python code, allocate a tracked object or release the GIL.
#    Buffers, serializers, headers and the future are therefore obtained first, and RecordFuture is untracked by the collector.
# 2. Once `open` is None for a batch, its bytes never change except the header. Closing (close_open) is one C function, so it is atomic too.
# 3. A future never holds a buffer: kept futures would keep pages out of the pool.
# 4. A new batch is empty until its first record: the accumulator does not see it before `_begun`, which is called right after that.
# 5. Delivery.state goes PENDING -> RESOLVED (values readable, callbacks running) -> FINISHED, once, on whichever thread drives the I/O.

from cpython.bytearray cimport PyByteArray_AS_STRING

from collections import deque as _deque
import logging as _logging

cdef extern from "wire.h":
    size_t kc_record_body_size(int64_t, int32_t, int64_t, int64_t, size_t) nogil
    uint8_t *kc_put_record(uint8_t *, size_t, int64_t, int32_t, const void *, int64_t, const void *, int64_t) nogil

cdef enum:
    DELIVERY_PENDING = 0
    DELIVERY_RESOLVED = 1
    DELIVERY_FINISHED = 2
    BATCH_BYTES_MIN = KC_BATCH_HEADER + KC_SLACK
    APPEND_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5   # a record's framing at most: length, attributes, deltas, key, value and header counts

BATCH_OVERHEAD_BYTES = BATCH_BYTES_MIN                 # bytes of a batch's buffer that hold no records

_append_log = _logging.getLogger("kafkacore.producer")
_record_metadata = None                                # types.RecordMetadata, set by producer/__init__ (the extension imports nothing above it)
cdef PlanType* _record_metadata_type = NULL
_usage_error = RuntimeError


def _bind_producer_types(record_metadata, usage_error):
    """Gives the append path the value classes it makes; called once by kafkacore.producer."""
    global _record_metadata, _record_metadata_type, _usage_error
    if not issubclass(record_metadata, tuple) or len(record_metadata._fields) != 6:
        raise TypeError(f"{record_metadata!r} is not the tuple of six that make_metadata fills")
    _record_metadata = record_metadata                 # kept alive here
    _record_metadata_type = <PlanType*><PyObject*> record_metadata
    _usage_error = usage_error


@cython.final
cdef class Delivery:
    """The fate of one batch of records, shared by the futures of its records."""

    cdef readonly PartitionQueue queue
    cdef readonly object driver
    cdef readonly int state
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly object error
    cdef readonly dict record_errors
    cdef readonly list parts                  # [(first index, Delivery)] after a split
    cdef readonly int32_t count               # records, once the batch is closed
    cdef readonly int32_t looked_at           # records whose outcome somebody asked for
    cdef int32_t parts_left
    cdef Delivery parent
    cdef list callbacks                       # flat: future, fn, future, fn
    cdef list done_callbacks
    cdef list waiters                         # locks to release
    cdef dict loops                           # event loop -> its waiting futures
    cdef int64_t many_token                   # the send_many call that numbered this delivery last, and the number it gave
    cdef int32_t many_slot

    def __cinit__(self, PartitionQueue queue, driver):
        self.queue = queue
        self.driver = driver
        self.base_offset = -1
        self.log_append_time_ms = -1

    @property
    def topic(self):
        return self.queue.topic

    @property
    def partition(self):
        return self.queue.index

    @property
    def resolved(self):
        """True once the outcome is known (callbacks may still be running)."""
        return self.state >= DELIVERY_RESOLVED

    @property
    def finished(self):
        """True once the outcome is known and every callback has run."""
        return self.state == DELIVERY_FINISHED

    @property
    def unobserved(self):
        """How many failed records nobody asked about (each record looked at is taken to be a failed one)."""
        return max(0, self.failed - self.looked_at)

    @property
    def failed(self):
        """How many of the batch's records failed."""
        if self.parts is not None:
            return sum(part.failed for _, part in self.parts)
        if self.error is not None:
            return self.count
        return len(self.record_errors) if self.record_errors else 0

    @property
    def root(self):
        """The delivery the futures hold: itself, or that of the batch it was split from."""
        cdef Delivery d = self
        while d.parent is not None:
            d = d.parent
        return d

    def first_error(self):
        """The error of the first failed record, or None."""
        if self.parts is not None:
            return next((e for e in (part.first_error() for _, part in self.parts) if e is not None), None)
        return self.record_errors[min(self.record_errors)] if self.record_errors else self.error

    def add_waiter(self, lock):
        """Has `lock` released at resolution; returns False (and keeps nothing) if that has passed."""
        cdef list fresh = []                   # made first: an allocation between the check and the append could let _publish in
        if self.state == DELIVERY_FINISHED:
            return False
        if self.waiters is None:
            self.waiters = fresh
        self.waiters.append(lock)
        return True

    def remove_waiter(self, lock):
        if self.waiters is not None and lock in self.waiters:
            self.waiters.remove(lock)

    def resolve(self, int64_t base_offset, int64_t log_append_time_ms, error, dict record_errors=None):
        """Publishes the outcome, runs the callbacks, wakes the waiters.

        Args:
            base_offset: offset of the batch's first record, -1 when unknown.
            log_append_time_ms: the broker's time stamp, -1 when the records keep their own.
            error: a KafkaError for the whole batch, or None.
            record_errors: {index: KafkaError} of the records the broker named; `error` is for the others then.

        Returns:
            False when the outcome was already published (nothing changes then).
        """
        if self.state != DELIVERY_PENDING:
            return False
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.record_errors = record_errors
        self._publish()
        return True

    def split_into(self, list parts):
        """Hands the records over to the deliveries of smaller batches: [(first index, Delivery)] in order."""
        cdef Delivery part
        self.parts = parts
        self.parts_left = <int32_t> len(parts)
        for _, part in parts:
            part.parent = self

    cdef _publish(self):
        # Nothing that user code raises may keep the waiters waiting: it is logged, and only Ctrl+C goes on, when all is done.
        cdef Py_ssize_t i
        interrupt = None
        self.state = DELIVERY_RESOLVED
        self.driver = None
        callbacks, self.callbacks = self.callbacks, None
        if callbacks is not None:
            interrupt = self._call_on_delivery(callbacks)
        done_callbacks, self.done_callbacks = self.done_callbacks, None
        if done_callbacks is not None:
            for i in range(0, len(done_callbacks), 2):
                interrupt = self._call_done(done_callbacks[i], done_callbacks[i + 1]) or interrupt
        self.state = DELIVERY_FINISHED
        waiters, self.waiters = self.waiters, None
        if waiters is not None:
            for lock in waiters:
                _release_quietly(lock)
        loops, self.loops = self.loops, None
        if loops is not None:
            for loop, futures in loops.items():
                try:
                    loop.call_soon_threadsafe(_resolve_loop_futures, futures)
                except RuntimeError:                       # the loop was closed: nobody can be waiting on it
                    _append_log.debug("event loop closed before the delivery of %s-%d", self.queue.topic, self.queue.index)
                except KeyboardInterrupt as stop:
                    interrupt = stop
        parent, self.parent = self.parent, None
        if parent is not None:
            (<Delivery> parent)._part_done()
        if interrupt is not None:
            raise interrupt

    cdef _part_done(self):
        self.parts_left -= 1
        if self.parts_left == 0 and self.state == DELIVERY_PENDING:
            self._publish()

    cdef _call_on_delivery(self, list callbacks):
        cdef Py_ssize_t i
        cdef RecordFuture future
        interrupt = None
        for i in range(0, len(callbacks), 2):
            future = <RecordFuture> callbacks[i]
            fn = callbacks[i + 1]
            try:
                if self.error is None and self.record_errors is None and self.parts is None:
                    fn(make_metadata(self, future, future.index), None)
                    continue
                error = future_error(future)
                fn(None if error is not None else future_metadata(future), error)
            except KeyboardInterrupt as stop:
                interrupt = stop
            except BaseException:
                _append_log.exception("on_delivery callback failed for a record of %s-%d", self.queue.topic, self.queue.index)
        return interrupt

    cdef _call_done(self, future, fn):
        try:
            fn(future)
        except KeyboardInterrupt as stop:
            return stop
        except BaseException:
            _append_log.exception("done callback failed for a record of %s-%d", self.queue.topic, self.queue.index)

    def add_done_callback(self, future, fn):
        """Runs fn(future) at resolution, or at once when that has passed."""
        cdef list fresh = []
        if self.state != DELIVERY_PENDING:
            interrupt = self._call_done(future, fn)
            if interrupt is not None:
                raise interrupt
            return
        if self.done_callbacks is None:
            self.done_callbacks = fresh
        self.done_callbacks.append(future)
        self.done_callbacks.append(fn)

    def loop_future(self, loop):
        """A future of `loop` that is resolved with all the others of this delivery by one call_soon_threadsafe."""
        cdef dict fresh = {}
        cdef list waiting = []
        future = loop.create_future()
        if self.state == DELIVERY_FINISHED:
            future.set_result(None)
            return future
        if self.loops is None:
            self.loops = fresh
        self.loops.setdefault(loop, waiting).append(future)
        return future

    def observe(self, int32_t records):
        """Counts records whose outcome somebody will look at."""
        self.looked_at += records


def _resolve_loop_futures(futures):
    for future in futures:
        if not future.done():
            future.set_result(None)


cdef _release_quietly(lock):
    try:
        lock.release()
    except RuntimeError:                                   # released twice: the waiter is awake, which is all that matters
        pass


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class RecordFuture:
    """One record's place in a batch: asks the batch's Delivery. Made by send() only."""

    cdef Delivery delivery
    cdef int64_t own_timestamp_ms
    cdef int32_t index
    cdef int32_t key_size
    cdef int32_t value_size
    cdef bint looked_at

    def result(self, timeout=None):
        """Waits for the record's outcome, driving the I/O itself when the Sender is idle.

        Args:
            timeout: seconds, None = no limit.

        Returns:
            RecordMetadata (offset -1 with acks=0).

        Raises:
            KafkaTimeoutError: not known within `timeout`; the record is still on its way.
            KafkaError: the record failed; the cause.
        """
        future_look(self)
        future_wait(self, timeout)
        error = future_error(self)
        if error is not None:
            raise error
        return future_metadata(self)

    def get(self, timeout=None):
        """The same as result()."""
        return self.result(timeout)

    def exception(self, timeout=None):
        """Waits like result() and returns the record's error, or None."""
        future_look(self)
        future_wait(self, timeout)
        return future_error(self)

    def done(self):
        """True once the outcome is known."""
        return self.delivery.state != DELIVERY_PENDING

    def add_done_callback(self, fn):
        """Runs fn(future) on the thread that drives the I/O when the outcome is known, or at once when it already is."""
        future_look(self)
        self.delivery.add_done_callback(self, fn)

    def __await__(self):
        future_look(self)
        if self.delivery.state != DELIVERY_FINISHED:
            import asyncio
            yield from self.delivery.loop_future(asyncio.get_running_loop()).__await__()
        error = future_error(self)
        if error is not None:
            raise error
        return future_metadata(self)

    def __repr__(self):
        state = "pending" if self.delivery.state == DELIVERY_PENDING else repr(future_error(self) or future_metadata(self))
        return f"<RecordFuture {self.delivery.queue.topic}-{self.delivery.queue.index}[{self.index}] {state}>"

# Functions, not methods: a method table would cost every future eight bytes.

cdef inline void future_look(RecordFuture f) noexcept:
    if not f.looked_at:
        f.looked_at = True
        f.delivery.looked_at += 1


cdef Delivery future_leaf(RecordFuture f, int32_t *index):
    """The delivery that tells the record's fate, and its number there: after splits not the one it began with."""
    cdef Delivery d = f.delivery, part
    cdef int32_t i = f.index, first
    while d.parts is not None:
        for first, part in reversed(d.parts):
            if i >= first:
                i -= first
                d = part
                break
    index[0] = i
    return d


cdef future_error(RecordFuture f):
    cdef int32_t i
    cdef Delivery d = future_leaf(f, &i)
    return d.error if d.record_errors is None else d.record_errors.get(i, d.error)


cdef future_metadata(RecordFuture f):
    cdef int32_t i
    cdef Delivery d = future_leaf(f, &i)
    return make_metadata(d, f, i)


cdef make_metadata(Delivery d, RecordFuture f, int32_t i):
    """RecordMetadata of record `i` of a delivery: the six fields of the tuple, put in without its Python constructor."""
    cdef PyObject* made = _record_metadata_type.tp_alloc(_record_metadata_type, 6)
    if made is NULL:
        raise MemoryError
    metadata = <object> made
    plan_xdecref(made)
    plan_incref(<PyObject*> d.queue.topic)
    plan_tuple_set(made, 0, <PyObject*> d.queue.topic)
    plan_tuple_set(made, 1, plan_long(d.queue.index))
    plan_tuple_set(made, 2, plan_longlong(-1 if d.base_offset < 0 else d.base_offset + i))
    plan_tuple_set(made, 3, plan_longlong(f.own_timestamp_ms if d.log_append_time_ms < 0 else d.log_append_time_ms))
    plan_tuple_set(made, 4, plan_long(f.key_size))
    plan_tuple_set(made, 5, plan_long(f.value_size))
    return metadata


cdef future_wait(RecordFuture f, timeout):
    if f.delivery.state == DELIVERY_PENDING:
        driver = f.delivery.driver
        if driver is not None:
            driver.wait(f.delivery, timeout)


@cython.final
cdef class ProducerBatch:
    """Records of one partition in a pooled buffer: filled by send(), then sealed and sent by the Sender."""

    cdef readonly PartitionQueue queue
    cdef readonly Delivery delivery
    cdef readonly PooledBuffer buffer
    cdef uint8_t *ptr
    cdef Py_ssize_t pos
    cdef Py_ssize_t limit
    cdef readonly int32_t count
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly bint closed
    cdef readonly Py_ssize_t reserved_bytes    # what the BufferPool gets back
    # the accumulator's and Sender's notes
    cdef public int64_t created_ms
    cdef public int64_t last_attempt_ms
    cdef public int64_t drained_ms
    cdef public int attempts
    cdef public int64_t backoff_ms
    cdef public int leader_epoch
    cdef public bint in_retry
    cdef public bint in_flight
    cdef public bint is_split
    cdef public bint sequence_has_been_reset
    cdef public bint released
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly int base_sequence
    cdef bytearray _header
    cdef object _body

    def __cinit__(self, PartitionQueue queue, PooledBuffer buffer, Py_ssize_t nbytes, driver, int64_t now_ms):
        if nbytes < BATCH_BYTES_MIN or nbytes > buffer.nbytes:
            raise ValueError(f"a batch of {nbytes} bytes in a buffer of {buffer.nbytes}")
        self.queue = queue
        self.delivery = Delivery(queue, driver)
        self.buffer = buffer
        self.ptr = buffer.ptr
        self.pos = KC_BATCH_HEADER
        self.limit = nbytes - KC_SLACK         # wide stores may run that far past the last record
        self.reserved_bytes = nbytes
        self.created_ms = now_ms
        self.leader_epoch = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1

    @property
    def size_bytes(self):
        """Bytes of the batch before compression, header included."""
        return self.pos

    @property
    def body(self):
        """The compressed records as sealed, None when they are sent as they are."""
        return self._body

    @property
    def wire_bytes(self):
        """Bytes of the batch as sealed; size_bytes until then."""
        return self.pos if self._header is None else KC_BATCH_HEADER + len(self._body)

    @property
    def topic_partition(self):
        return self.queue.topic_partition

    @property
    def has_sequence(self):
        return self.base_sequence >= 0

    @property
    def last_sequence(self):
        return increment_sequence(self.base_sequence, self.count - 1)

    def records(self):
        """The encoded records, uncompressed, without the header (a view of the buffer)."""
        return memoryview(self.buffer)[KC_BATCH_HEADER:self.pos]

    def close(self):
        """No more records; the batch leaves PartitionQueue.open if it is there."""
        self.close_open()

    def close_if_empty(self):
        """Closes a batch whose first record never came (its thread was interrupted); True when it did."""
        if self.count:
            return False
        self.close_open()
        return True

    cdef inline int64_t backing_off_ms(self, int64_t now_ms) noexcept:
        """How long this batch still waits for its next try; a new leader ends the wait. Relies on PartitionQueue.look_up."""
        cdef int64_t left
        if self.attempts == 0:
            return 0
        left = self.backoff_ms - (now_ms - self.last_attempt_ms)
        return 0 if left <= 0 or self.queue.leader_epoch > self.leader_epoch >= 0 else left

    cdef void close_open(self) noexcept:
        if not self.closed:
            self.closed = True
            self.delivery.count = self.count
            self.queue.closed_bytes += self.pos
            if self.queue.open is self:
                self.queue.open = None

    cpdef set_producer_state(self, int64_t producer_id, int producer_epoch, int base_sequence):
        """The idempotent producer's stamp, given at drain or again after an epoch bump."""
        if self.producer_id >= 0:
            self.sequence_has_been_reset = True
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def clear_producer_state(self):
        """Takes the stamp off; the batch gets a new one when it is drained again."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.sequence_has_been_reset = True

    cpdef list seal(self, int codec, body, bint transactional):
        """Writes the header and CRC-32C and returns the gather list to send.

        Args:
            codec: compression id 0..4 for the attributes.
            body: the compressed records, or None to send the buffer as it is.
            transactional: sets bit 4 of the attributes.

        Returns:
            Buffers that make the batch, in order. They stay valid until release().
        """
        cdef uint8_t *h = self.ptr
        cdef uint32_t crc
        cdef Py_ssize_t body_bytes = self.pos - KC_BATCH_HEADER
        cdef const uint8_t[::1] view
        if body is None:
            codec = 0
            self._header = None
            self._body = None
        else:
            view = body
            body_bytes = view.shape[0]
            self._header = bytearray(KC_BATCH_HEADER)
            self._body = body
            h = <uint8_t *> PyByteArray_AS_STRING(self._header)
        kc_put64(h, 0)
        kc_put32(h + 8, <int32_t> (KC_BATCH_HEADER - 12 + body_bytes))
        kc_put32(h + 12, -1)
        h[16] = 2
        kc_put16(h + 21, <int16_t> (codec | (16 if transactional else 0)))
        kc_put32(h + 23, self.count - 1)
        kc_put64(h + 27, self.base_timestamp_ms)
        kc_put64(h + 35, self.max_timestamp_ms)
        kc_put64(h + 43, self.producer_id)
        kc_put16(h + 51, <int16_t> self.producer_epoch)
        kc_put32(h + 53, self.base_sequence)
        kc_put32(h + 57, self.count)
        if body is None:
            crc = kc_crc32c(0, h + 21, <size_t> (self.pos - 21))
            kc_put32(h + 17, <int32_t> crc)
            return [memoryview(self.buffer)[:self.pos]]
        crc = kc_crc32c(0, h + 21, KC_BATCH_HEADER - 21)
        if body_bytes:
            crc = kc_crc32c(crc, &view[0], <size_t> body_bytes)
        kc_put32(h + 17, <int32_t> crc)
        return [self._header, body]

    def wire(self):
        """The gather list of the batch as sealed last."""
        if self._header is None:
            return [memoryview(self.buffer)[:self.pos]]
        return [self._header, self._body]

    def drop_buffer(self):
        """Forgets the buffer (it went back to the pool) and returns it."""
        buffer = self.buffer
        self.buffer = None
        self.ptr = NULL
        self._header = None
        self._body = None
        return buffer

    cdef void put(self, size_t body_size, int64_t timestamp_ms, const uint8_t *key, Py_ssize_t key_len,
                  const uint8_t *value, Py_ssize_t value_len, const uint8_t *headers, Py_ssize_t headers_len) noexcept:
        cdef uint8_t *p = self.ptr + self.pos
        p = kc_put_record(p, body_size, timestamp_ms - self.base_timestamp_ms, self.count, key, key_len, value, value_len)
        if headers_len == 0:
            p[0] = 0
            p += 1
        else:
            memcpy(p, headers, <size_t> headers_len)
            p += headers_len
        self.pos = p - self.ptr
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.count += 1

    cdef bint try_append(self, int64_t timestamp_ms, const uint8_t *key, Py_ssize_t key_len, const uint8_t *value, Py_ssize_t value_len,
                         const uint8_t *headers, Py_ssize_t headers_len) noexcept:
        """Writes one record if it fits. headers: the encoded header array with its count, or nothing for none."""
        cdef size_t body_size
        if self.count == 0:
            self.base_timestamp_ms = timestamp_ms
            self.max_timestamp_ms = timestamp_ms
        body_size = kc_record_body_size(timestamp_ms - self.base_timestamp_ms, self.count, key_len, value_len,
                                        <size_t> headers_len if headers_len else 1)
        if self.closed or <size_t> (self.limit - self.pos) < body_size + kc_varint_size(<int64_t> body_size):
            return False
        self.put(body_size, timestamp_ms, key, key_len, value, value_len, headers, headers_len)
        return True

    def split(self, Py_ssize_t target_bytes, make_batch):
        """Spreads the records over smaller batches, for a broker that refused this one as too large.

        Args:
            target_bytes: buffer size to aim at; a larger single record goes alone.
            make_batch: make_batch(nbytes) -> ProducerBatch with room for nbytes.

        Returns:
            The new batches in order, closed; their Deliveries resolve this batch's.
        """
        cdef const uint8_t *p = self.ptr + KC_BATCH_HEADER
        cdef const uint8_t *end = self.ptr + self.pos
        cdef const uint8_t *body
        cdef const uint8_t *next_record
        cdef int64_t length, ts_delta, skip
        cdef int64_t timestamp_ms
        cdef size_t rest, body_size
        cdef uint8_t *out
        cdef ProducerBatch batch = None
        cdef list batches = [], parts = []
        cdef int32_t index = 0
        while p < end:
            body = kc_get_varint(p, end, 5, &length)
            if body == NULL or length < 3 or length > end - body:
                raise AssertionError("the producer's own batch does not parse")
            next_record = body + length
            body = kc_get_varint(body + 1, next_record, 10, &ts_delta)
            if body != NULL:
                body = kc_get_varint(body, next_record, 5, &skip)
            if body == NULL:
                raise AssertionError("the producer's own batch does not parse")
            timestamp_ms = self.base_timestamp_ms + ts_delta
            rest = <size_t> (next_record - body)
            while True:
                if batch is not None:
                    body_size = 1 + kc_varint_size(timestamp_ms - batch.base_timestamp_ms) + kc_varint_size(batch.count) + rest
                    if <size_t> (batch.limit - batch.pos) >= body_size + kc_varint_size(<int64_t> body_size):
                        break
                    batch.close_open()
                batch = make_batch(max(target_bytes, BATCH_BYTES_MIN + <Py_ssize_t> rest + 16))
                batch.base_timestamp_ms = batch.max_timestamp_ms = timestamp_ms
                batches.append(batch)
                parts.append((index, batch.delivery))
            out = batch.ptr + batch.pos
            out = kc_put_varint(out, <int64_t> body_size)
            out[0] = 0
            out = kc_put_varint(out + 1, timestamp_ms - batch.base_timestamp_ms)
            out = kc_put_varint(out, batch.count)
            memcpy(out, body, rest)
            out += rest
            batch.pos = out - batch.ptr
            batch.max_timestamp_ms = max(batch.max_timestamp_ms, timestamp_ms)
            batch.count += 1
            index += 1
            p = next_record
        if batch is not None:
            batch.close_open()
        self.delivery.split_into(parts)
        return batches


def increment_sequence(int64_t sequence, int64_t by):
    """The sequence number `by` records later; wraps from 2^31-1 to 0 as DefaultRecordBatch.incrementSequence."""
    return (sequence + by) & 0x7fffffff


@cython.final
cdef class PartitionQueue:
    """The batches of one partition, oldest first, and the accumulator's notes about it."""

    cdef readonly str topic
    cdef readonly int32_t index
    cdef readonly object topic_partition
    cdef readonly TopicQueue owner
    cdef readonly object batches              # deque of ProducerBatch; the open one is the last
    cdef readonly ProducerBatch open
    cdef public bint muted
    cdef public int64_t closed_bytes          # bytes of closed batches since the sticky partitioner came here
    cdef object snapshot                      # the cluster view the next two are of
    cdef readonly int32_t leader              # node id, -1 when unknown
    cdef readonly int32_t leader_epoch

    def __cinit__(self, TopicQueue owner, int32_t index, topic_partition):
        self.owner = owner
        self.leader = -1
        self.leader_epoch = -1
        self.topic = owner.topic
        self.index = index
        self.topic_partition = topic_partition
        self.batches = _deque()

    def begin(self, ProducerBatch batch):
        """Makes `batch` the open one; a batch still open is closed first."""
        if self.open is not None:
            self.open.close_open()
        self.batches.append(batch)
        self.open = batch

    cdef int look_up(self, snapshot) except -1:
        """Takes leader and epoch from a cluster view; once per view."""
        if self.snapshot is not snapshot:
            node = snapshot.leader(self.topic_partition)
            self.leader = -1 if node is None else node.id
            self.leader_epoch = snapshot.leader_epoch(self.topic_partition)
            self.snapshot = snapshot
        return 0

    def close_open(self):
        """Closes the open batch, if any."""
        if self.open is not None:
            self.open.close_open()

    def __repr__(self):
        return f"<PartitionQueue {self.topic}-{self.index} batches={len(self.batches)} muted={bool(self.muted)}>"


@cython.final
cdef class TopicQueue:
    """The partitions of one topic as the producer knows them, and the sticky one records without a key go to."""

    cdef readonly str topic
    cdef readonly list partitions
    cdef readonly int32_t n                   # how many of them the topic has now
    cdef public PartitionQueue sticky
    cdef public int64_t turn                  # of the round robin partitioner
    cdef public object topic_id               # of the topic last seen under this name

    def __cinit__(self, str topic):
        self.topic = topic
        self.partitions = []

    def grow(self, Py_ssize_t count, make_topic_partition):
        """Makes it `count` partitions: more of them, or, when a smaller topic took the name over, fewer.

        The queues beyond `count` stay in `partitions` for the batches they may still hold; no record is put there any more.
        """
        while len(self.partitions) < count:
            index = len(self.partitions)
            self.partitions.append(PartitionQueue(self, index, make_topic_partition(self.topic, index)))
        self.n = <int32_t> count
        if self.n and (self.sticky is None or self.sticky.index >= self.n):
            self.sticky = self.partitions[0]


def overlook(RecordFuture future not None):
    """Takes back that somebody looks at this record's outcome: a callback of ours is on it, and none of the user's."""
    if future.looked_at:
        future.looked_at = False
        future.delivery.looked_at -= 1


def record_headers(headers):
    """A record's header array with its count, from pairs of (name, bytes-like, str or None)."""
    return encode_headers(headers)


cdef struct Slice:
    const uint8_t *p
    Py_ssize_t n              # -1: null


cdef inline int plain_slice(object o, Slice *out) except -1:
    """1 when o is bytes, str or None and out is set; 0 when it needs the buffer protocol."""
    if o is None:
        out.p = NULL
        out.n = -1
    elif type(o) is bytes:
        out.p = <const uint8_t *> PyBytes_AS_STRING(o)
        out.n = PyBytes_GET_SIZE(o)
    elif type(o) is str:
        out.p = <const uint8_t *> PyUnicode_AsUTF8AndSize(o, &out.n)
    else:
        return 0
    return 1


cdef buffer_of(object o, Py_buffer *view, Slice *out, what):
    try:
        PyObject_GetBuffer(o, view, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        raise TypeError(f"a record's {what} must be bytes-like, str or None, not {type(o).__name__}; give a {what}_serializer for other types") from None
    out.p = <const uint8_t *> view.buf
    out.n = view.len


cdef class ProducerCore:
    """The compiled half of KafkaProducer. Subclasses give `_send_general` and `_roll` (and `_accumulator`, or else `_begun`); everything else here
    is the fast path.

    `_fast` is True while the producer is open in the process that made it and has no interceptor or custom partitioner.
    """

    cdef public bint _fast
    cdef public object _key_serializer
    cdef public object _value_serializer
    cdef public bint _ignore_keys
    cdef readonly dict _topics
    cdef object _last_name
    cdef TopicQueue _last_topic
    cdef public object _keyed_partitioner     # None: murmur2; else hash(key bytes) -> int >= 0
    cdef public AccumulatorCore _accumulator  # None: `_roll` and `_begun` see to everything
    cdef public object _clock

    def __cinit__(self, *args, **kwargs):
        self._topics = {}

    def _add_topic(self, TopicQueue topic):
        self._topics[topic.topic] = topic

    def send(self, topic, value=None, key=None, *, headers=None, partition=None, timestamp_ms=None, on_delivery=None):
        """Queues one record and returns at once; the Sender thread sends it with its batch.

        Args:
            topic: topic name, or a ProducerRecord (then nothing else but on_delivery).
            value: bytes-like, str (sent as UTF-8), None (a tombstone), or what value_serializer turns into that.
            key: as value, with key_serializer. Records of one key go to one partition, where Java's producer puts them (murmur2).
            headers: iterable of (name, bytes-like, str or None), or a mapping.
            partition: number; None lets the partitioner choose.
            timestamp_ms: epoch milliseconds; None = now.
            on_delivery: on_delivery(metadata, error), run on the thread that drives the I/O: RecordMetadata or None, KafkaError or None.

        Returns:
            RecordFuture.

        Raises:
            BufferFullError: buffer_memory was not free within max_block_ms.
            KafkaTimeoutError: the topic's metadata did not come within max_block_ms; `.attempts` says why.
            RecordTooLarge: more than max_request_size or buffer_memory.
            TypeError: not bytes-like and no serializer.
            ClosedError, ForkedClientError: the producer is closed, or belongs to the parent process.

        Source: org.apache.kafka.clients.producer.KafkaProducer.doSend; KIP-480, KIP-794.
        """
        cdef TopicQueue queue
        if not self._fast:
            return self._send_general(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if topic is self._last_name:
            queue = self._last_topic
        else:
            queue = self._topics.get(topic) if type(topic) is str else None
            if queue is None:
                return self._send_general(topic, value, key, headers, partition, timestamp_ms, on_delivery)
            self._last_name = topic
            self._last_topic = queue
        if self._value_serializer is not None and value is not None:
            value = self._value_serializer(value)
        if self._key_serializer is not None and key is not None:
            key = self._key_serializer(key)
        return self._append(queue, value, key, headers, partition, timestamp_ms, on_delivery)

    def _await_partition(self, TopicQueue queue, partition):
        """Called for a partition the topic is not known to have; it may have been added since."""

    def _append_serialized(self, TopicQueue queue, value, key, headers, partition, timestamp_ms, on_delivery):
        return self._append(queue, value, key, headers, partition, timestamp_ms, on_delivery)

    cdef RecordFuture _append(self, TopicQueue queue, value, key, headers, partition, timestamp_ms, on_delivery):
        cdef Slice v, k
        cdef Py_buffer value_view, key_view
        cdef bint value_held = False, key_held = False
        cdef bytes encoded = None
        if headers is not None and headers:
            encoded = encode_headers(headers.items() if hasattr(headers, "items") else headers)
        if plain_slice(value, &v) and plain_slice(key, &k):
            return self._append_slices(queue, &v, &k, encoded, partition, timestamp_ms, on_delivery)
        try:
            if not plain_slice(value, &v):
                buffer_of(value, &value_view, &v, "value")
                value_held = True
            if not plain_slice(key, &k):
                buffer_of(key, &key_view, &k, "key")
                key_held = True
            return self._append_slices(queue, &v, &k, encoded, partition, timestamp_ms, on_delivery)
        finally:
            if value_held:
                PyBuffer_Release(&value_view)
            if key_held:
                PyBuffer_Release(&key_view)

    cdef RecordFuture _append_slices(self, TopicQueue queue, Slice *v, Slice *k, bytes headers, partition, timestamp_ms, on_delivery):
        cdef PartitionQueue chosen = None
        cdef PartitionQueue target
        cdef ProducerBatch batch
        cdef int64_t now = kc_wall_ms() if timestamp_ms is None else timestamp_ms
        cdef int64_t wanted
        cdef const uint8_t *h = NULL
        cdef Py_ssize_t h_len = 0
        cdef RecordFuture future
        if now < 0:
            raise ValueError(f"timestamp_ms must not be negative, got {now} (topic {queue.topic})")
        if partition is not None:
            wanted = partition
            if wanted >= queue.n:
                self._await_partition(queue, wanted)
            if not 0 <= wanted < queue.n:
                raise _usage_error(f"partition {wanted} of topic {queue.topic} does not exist: it has {queue.n}")
            chosen = <PartitionQueue> PyList_GET_ITEM(<PyObject *> queue.partitions, wanted)
        elif k.n >= 0 and not self._ignore_keys:
            chosen = self._of_key(queue, k)
        if headers is not None:
            h = <const uint8_t *> PyBytes_AS_STRING(headers)
            h_len = PyBytes_GET_SIZE(headers)
        future = RecordFuture.__new__(RecordFuture)
        future.own_timestamp_ms = now
        future.key_size = <int32_t> k.n
        future.value_size = <int32_t> v.n
        while True:
            target = queue.sticky if chosen is None else chosen
            batch = target.open
            if batch is not None:
                if on_delivery is not None and batch.delivery.callbacks is None:
                    batch.delivery.callbacks = []          # may run the collector: look at `open` again
                    continue
                if batch.try_append(now, k.p, k.n, v.p, v.n, h, h_len):
                    future.delivery = batch.delivery
                    future.index = batch.count - 1
                    if on_delivery is not None:
                        future.looked_at = True
                        batch.delivery.looked_at += 1
                        batch.delivery.callbacks.append(future)
                        batch.delivery.callbacks.append(on_delivery)
                    if batch.count == 1:
                        self.begin()
                    return future
            self.roll(queue, chosen, APPEND_OVERHEAD_MAX + max(v.n, 0) + max(k.n, 0) + h_len)

    cdef int roll(self, TopicQueue queue, PartitionQueue chosen, Py_ssize_t record_bytes) except -1:
        """Makes room for a record: with a buffer at hand right here, else by `_roll`, which may wait."""
        if not self._fast or self._accumulator is None or not self._accumulator.roll_kept(queue, chosen, record_bytes, time_of(self._clock)):
            self._roll(queue, chosen, record_bytes)
        return 0

    cdef int begin(self) except -1:
        """A batch has its first record."""
        if self._accumulator is None:
            self._begun()
        else:
            self._accumulator.begun(time_of(self._clock))
        return 0

    cdef PartitionQueue _of_key(self, TopicQueue queue, Slice *k):
        cdef int64_t h
        if self._keyed_partitioner is None:
            h = kc_murmur2(k.p, <size_t> k.n) & 0x7fffffff
        else:
            h = self._keyed_partitioner(k.p[:k.n])
        return <PartitionQueue> PyList_GET_ITEM(<PyObject *> queue.partitions, h % queue.n)

    def _append_many(self, TopicQueue queue, ColumnSource values, ColumnSource keys, headers, const int32_t[::1] partitions,
                     int64_t timestamp_ms, const int64_t[::1] timestamps, ManyProgress progress):
        """Appends all records in order; progress says how far it came when this raises.

        headers: None, the encoded headers of every record (bytes), or a list with one encoded array or None per record.
        """
        cdef int64_t i, n = values.count
        cdef bint choose = partitions is None and (keys is None or self._ignore_keys)
        cdef Slice v, k
        cdef PartitionQueue chosen
        cdef PartitionQueue target
        cdef ProducerBatch batch
        cdef int64_t now = kc_wall_ms() if timestamp_ms < 0 else timestamp_ms
        cdef bytes common = headers if type(headers) is bytes else None
        cdef list each = headers if type(headers) is list else None
        cdef bytes one
        cdef const uint8_t *h
        cdef Py_ssize_t h_len
        k.p = NULL
        k.n = -1
        if choose and headers is None and values.c.kind != KC_COL_LIST and (keys is None or keys.c.kind != KC_COL_LIST):
            self._append_columns(queue, values, keys, now, timestamps, progress)
            return
        for i in range(n):
            values.get(i, &v.p, &v.n)
            if keys is not None:
                keys.get(i, &k.p, &k.n)
            chosen = None
            if partitions is not None and partitions[i] >= 0:
                chosen = <PartitionQueue> PyList_GET_ITEM(<PyObject *> queue.partitions, partitions[i])
            elif k.n >= 0 and not self._ignore_keys:
                chosen = self._of_key(queue, &k)
            if timestamps is not None:
                now = timestamps[i]
            one = common if each is None else <bytes> each[i]
            h = NULL
            h_len = 0
            if one is not None:
                h = <const uint8_t *> PyBytes_AS_STRING(one)
                h_len = PyBytes_GET_SIZE(one)
            while True:
                target = queue.sticky if chosen is None else chosen
                batch = target.open
                if batch is not None and batch.try_append(now, k.p, k.n, v.p, v.n, h, h_len):
                    progress.owner[i] = progress.slot_of(batch.delivery)
                    progress.index[i] = batch.count - 1
                    progress.done = i + 1
                    if batch.count == 1:
                        self.begin()
                    break
                self.roll(queue, chosen, APPEND_OVERHEAD_MAX + max(v.n, 0) + max(k.n, 0) + h_len)
                # a column of odd objects is only good until Python code runs
                values.get(i, &v.p, &v.n)
                if keys is not None:
                    keys.get(i, &k.p, &k.n)

    cdef _append_columns(self, TopicQueue queue, ColumnSource values, ColumnSource keys, int64_t timestamp_ms,
                         const int64_t[::1] timestamps, ManyProgress progress):
        """Records for the sticky partition out of columns in memory: whole runs are written by one C loop per batch."""
        cdef int64_t i = 0, j, at, n = values.count
        cdef int bad = 0
        cdef int32_t slot, index
        cdef ProducerBatch batch
        cdef kc_batch_writer w
        cdef Slice v, k
        cdef const int64_t *ts = NULL
        k.p = NULL
        k.n = -1
        if timestamps is not None and n:
            ts = &timestamps[0]
        while i < n:
            batch = queue.sticky.open
            if batch is not None:
                slot = progress.slot_of(batch.delivery)        # may allocate: look at `open` again
                if queue.sticky.open is not batch:
                    continue
                index = batch.count
                if index == 0:
                    batch.base_timestamp_ms = batch.max_timestamp_ms = timestamp_ms if ts == NULL else ts[i]
                w.p = batch.ptr + batch.pos
                w.limit = batch.ptr + batch.limit
                w.count = w.next_delta = batch.count
                w.base_ts = batch.base_timestamp_ms
                w.max_ts = batch.max_timestamp_ms
                j = kc_append_columns(&w, &values.c, NULL if keys is None else &keys.c, ts, timestamp_ms, i, n, &bad)
                batch.pos = w.p - batch.ptr
                batch.count = w.count
                batch.max_timestamp_ms = w.max_ts
                for at in range(i, j):
                    progress.owner[at] = slot
                    progress.index[at] = index + <int32_t> (at - i)
                if index == 0 and j > i:
                    self.begin()
                i = j
                progress.done = i
                if i == n:
                    return
            values.get(i, &v.p, &v.n)                          # raises when that item is what stopped the run
            if keys is not None:
                keys.get(i, &k.p, &k.n)
            self.roll(queue, None, APPEND_OVERHEAD_MAX + max(v.n, 0) + max(k.n, 0))


_many_calls = 0


@cython.final
cdef class ManyProgress:
    """Where the records of one send_many call went: record i is number index[i] of deliveries[owner[i]]; the first `done` are set."""

    cdef int32_t[::1] owner
    cdef int32_t[::1] index
    cdef readonly list deliveries
    cdef readonly int64_t done
    cdef int64_t token

    def __cinit__(self, int32_t[::1] owner, int32_t[::1] index):
        global _many_calls
        _many_calls += 1
        self.token = _many_calls
        self.owner = owner
        self.index = index
        self.deliveries = []

    def add(self, RecordFuture future not None):
        """Notes the next record by its future."""
        self.owner[self.done] = self.slot_of(future.delivery)
        self.index[self.done] = future.index
        self.done += 1

    cdef int32_t slot_of(self, Delivery delivery) except -1:
        if delivery.many_token != self.token:              # a delivery stamped over by another call is listed twice, which does no harm
            self.deliveries.append(delivery)
            delivery.many_token = self.token
            delivery.many_slot = <int32_t> len(self.deliveries) - 1
        return delivery.many_slot
