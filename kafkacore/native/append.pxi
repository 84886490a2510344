# The producer's append path: one C call from KafkaProducer.send to the bytes of the open batch.
#
# Objects, outermost first
#   ProducerCore     base of KafkaProducer; send() and send_many()
#   TopicQueue       a topic seen by this producer: its PartitionQueues and the sticky one
#   PartitionQueue   FIFO deque of ProducerBatch (the accumulator's), and `open`, its last batch while records may be added
#   ProducerBatch    a pooled buffer being filled: 61 bytes left for the header, then records; later the unit of sending
#   Delivery         what is known of a batch's fate; small, and the only thing futures hold
#   RecordFuture     (delivery, index): 48 bytes, from a free list
#   ManyProgress     runs of (delivery, index): what a send_many call keeps instead of futures
#
# Rules
# 1. The append path takes no lock: the GIL is its lock, and the extension does not declare itself safe without one. So between reading
#    PartitionQueue.open and advancing ProducerBatch.pos nothing may run Python code, allocate a tracked object or release the GIL.
#    Buffers, serializers, headers and the future are therefore obtained first, and RecordFuture is untracked by the collector.
#    [test_a_kept_future_is_small_and_holds_no_buffer, test_bad_arguments_leave_the_batch_alone, test_threads_mixed_sizes_and_interrupts]
# 2. Once `open` is None for a batch, its bytes never change except the header. Closing (close_open) is one C function, so it is atomic too.
#    [test_the_records_of_a_closed_batch_stay_as_they_are]
# 3. A future never holds a buffer: kept futures would keep pages out of the pool. [test_a_kept_future_is_small_and_holds_no_buffer]
# 4. A new batch is empty until its first record: the accumulator does not see it before `_begun`, which is called right after that. Its age
#    begins with that record, not with the wait for its memory: the clock is read once the batch is there.
#    [test_a_batch_without_records_is_not_seen_and_does_not_hold_up_a_flush, test_the_age_begins_after_the_wait_for_memory]
# 5. Delivery.state goes PENDING -> RESOLVED (values readable, callbacks running) -> FINISHED, once, on whichever thread drives the I/O.
#    [test_future_tells_offset_time_and_sizes, test_callbacks_run_once_per_record_and_one_failure_stops_nobody]

cdef enum:
    APPEND_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5   # a record's framing at most: length, attributes, deltas, key, value and header counts
    APPEND_OVERHEAD_USUAL = 11                         # of a small record far down in a batch
    RUN_AHEAD = 6                                      # items of a list that are fetched into the cache ahead of the one that is written

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    bint PyLong_CheckExact(object o)
    long long PyLong_AsLongLongAndOverflow(object o, int *overflow) except? -1

cdef extern from *:
    """
    static inline void kc_prefetch(const void *p) {        /* a bytes object of some 100 bytes */
    #if defined(__GNUC__)
        __builtin_prefetch(p);
        __builtin_prefetch((const char *)p + 64);
        __builtin_prefetch((const char *)p + 128);
    #else
        (void)p;
    #endif
    }
    """
    void kc_prefetch(const void *p) noexcept


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


cdef inline int64_t given_ms(timestamp_ms) except? -1:
    """A time as a caller gave it; whole numbers, the usual ones, without a call."""
    cdef int overflow = 0
    cdef int64_t ms
    if PyLong_CheckExact(timestamp_ms):
        ms = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
        if not overflow:
            return ms
    from kafkacore.epoch import epoch_ms
    return epoch_ms(timestamp_ms, "timestamp_ms")


cdef inline int64_t given_partition(TopicQueue queue, partition) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_CheckExact(partition):
        if type(partition) is bool or not hasattr(partition, "__index__"):
            raise TypeError(f"partition must be a whole number, not {partition!r} (topic {queue.topic})")
        partition = partition.__index__()
    number = PyLong_AsLongLongAndOverflow(partition, &overflow)
    if overflow:
        raise _usage_error(f"partition {partition} of topic {queue.topic} does not exist: it has {queue.n}")
    return number


cdef inline serialized(serializer, item):
    return item if serializer is None or item is None else serializer(item)


cdef enum:
    KEY_MURMUR2 = 0                                    # Java's
    KEY_CRC32 = 1                                      # librdkafka's default
    KEY_FNV1A = 2

# How keys choose partitions, by the name of the partitioner: the hash, and the bytes of the shortest key that it is for (-1: a null key is
# hashed as an empty one). Records with shorter keys go to the sticky partition.
KEY_PLACES = {
    "murmur2": (KEY_MURMUR2, 0),
    "murmur2_random": (KEY_MURMUR2, 0),
    "murmur2_null_too": (KEY_MURMUR2, -1),
    "consistent_random": (KEY_CRC32, 1),
    "consistent": (KEY_CRC32, -1),
    "fnv1a_random": (KEY_FNV1A, 0),
    "fnv1a": (KEY_FNV1A, -1),
}


cdef object NO_NAME = object()                # is no topic's name


cdef class ProducerCore:
    """The compiled half of KafkaProducer. Subclasses give `_send_general` and `_roll` (and `_accumulator`, or else `_begun`); everything else here
    is the fast path.

    `_fast` is True while the producer is open in the process that made it and has no interceptor or custom partitioner.
    """

    cdef public bint _fast
    cdef public object _key_serializer
    cdef public object _value_serializer
    cdef readonly dict _topics
    cdef object _last_name
    cdef TopicQueue _last_topic
    cdef int _key_hash
    cdef Py_ssize_t _least_key                # see KEY_PLACES
    cdef public TransactionGate _gate         # None: not transactional
    cdef public AccumulatorCore _accumulator  # None: `_roll` and `_begun` see to everything
    cdef public object _clock

    def __cinit__(self, *args, **kwargs):
        self._topics = {}
        self._last_name = NO_NAME

    def _place_by(self, str partitioner, bint ignore_keys):
        """Lets keys choose partitions as the partitioner of this name has it ("murmur2" when it has no say in keys), or not at all."""
        self._key_hash, self._least_key = KEY_PLACES.get(partitioner, KEY_PLACES["murmur2"])
        if ignore_keys:
            self._least_key = PY_SSIZE_T_MAX

    def _add_topic(self, TopicQueue topic):
        self._topics[topic.topic] = topic

    def send(self, topic, value=None, key=None, *, headers=None, partition=None, timestamp_ms=None, on_delivery=None, **unknown):
        """Queues one record and returns at once; the Sender thread sends it with its batch.

        Args:
            topic: topic name, or a ProducerRecord (then nothing else but on_delivery).
            value: bytes-like, str (sent as UTF-8), None (a tombstone), or what value_serializer turns into that.
            key: as value, with key_serializer. Records of one key go to one partition, where Java's producer puts them (murmur2).
            headers: iterable of (name, bytes-like, str or None), or a mapping.
            partition: number; None lets the partitioner choose.
            timestamp_ms: epoch milliseconds, a datetime (without a zone: local time) or a datetime64 (UTC); None = now.
            on_delivery: on_delivery(metadata, error), run on the thread that drives the I/O: RecordMetadata or None, KafkaError or None.

        Returns:
            RecordFuture.

        Raises:
            BufferFullError: buffer_memory was not free within max_block_ms.
            KafkaTimeoutError: the topic's metadata did not come within max_block_ms; `.attempts` says why.
            RecordTooLarge: more than max_request_size or buffer_memory.
            TypeError: not bytes-like and no serializer; a timestamp_ms or partition that is none.
            UsageError: no such partition; on_delivery has its parameters in confluent-kafka's order.
            ClosedError, ForkedClientError: the producer is closed, or belongs to the parent process.

        Source: org.apache.kafka.clients.producer.KafkaProducer.doSend; KIP-480, KIP-794.
        """
        if unknown:
            from kafkacore.elsewhere import refuse_arguments
            refuse_arguments("send()", unknown)
        try:
            return self.send_parsed(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        except Exception as error:
            self.refuse(error)
            raise

    @cython.final
    cdef int refuse(self, error) except -1:
        if self._gate is not None and self._gate.is_open():
            self._refuse(error)
        return 0

    @cython.final
    cdef object send_parsed(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        cdef TopicQueue queue
        if not self._fast or (self._gate is not None and not self._gate.is_open()):
            return self._send_general(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if topic is self._last_name:
            queue = self._last_topic
        else:
            queue = self._topics.get(topic) if type(topic) is str else None
            if queue is None:
                return self._send_general(topic, value, key, headers, partition, timestamp_ms, on_delivery)
            self._last_name = topic
            self._last_topic = queue
        if self._value_serializer is None and self._key_serializer is None:
            return self._append(queue, value, key, headers, partition, timestamp_ms, on_delivery, 0)
        return self._append(queue, serialized(self._value_serializer, value), serialized(self._key_serializer, key), headers, partition,
                            timestamp_ms, on_delivery, 0)

    def _refuse(self, error):
        """A record of an open transaction was refused with this error: without it the transaction must not be committed."""

    def _await_partition(self, TopicQueue queue, partition, waited_ms):
        """Called for a partition the topic is not known to have; it may have been added since. Returns how long it waited, ms."""
        return 0

    def _roll_within(self, TopicQueue queue, PartitionQueue chosen, record_bytes, waited_ms):
        """`_roll` for a send that has waited already, `waited_ms` of its max_block_ms. Both may return how long they waited, ms."""
        return self._roll(queue, chosen, record_bytes)

    def _roll_many(self, TopicQueue queue, PartitionQueue chosen, record_bytes, waited_ms, left_bytes):
        """`_roll_within` for send_many, which has about `left_bytes` of records to come, this one among them."""
        return self._roll_within(queue, chosen, record_bytes, waited_ms)

    def _append_serialized(self, TopicQueue queue, value, key, headers, partition, timestamp_ms, on_delivery, int64_t waited_ms=0):
        return self._append(queue, value, key, headers, partition, timestamp_ms, on_delivery, waited_ms)

    @cython.final
    cdef RecordFuture _append(self, TopicQueue queue, value, key, headers, partition, timestamp_ms, on_delivery, int64_t waited_ms):
        cdef Slice v, k
        cdef Py_buffer value_view, key_view
        cdef bint value_held = False, key_held = False
        cdef bytes encoded = None
        if headers is not None and headers:
            encoded = encode_headers(headers.items() if hasattr(headers, "items") else headers)
        if plain_slice(value, &v) and plain_slice(key, &k):
            return self._append_slices(queue, &v, &k, encoded, partition, timestamp_ms, on_delivery, waited_ms)
        try:
            if not plain_slice(value, &v):
                buffer_of(value, &value_view, &v, "value")
                value_held = True
            if not plain_slice(key, &k):
                buffer_of(key, &key_view, &k, "key")
                key_held = True
            return self._append_slices(queue, &v, &k, encoded, partition, timestamp_ms, on_delivery, waited_ms)
        finally:
            if value_held:
                PyBuffer_Release(&value_view)
            if key_held:
                PyBuffer_Release(&key_view)

    @cython.final
    cdef RecordFuture _append_slices(self, TopicQueue queue, Slice *v, Slice *k, bytes headers, partition, timestamp_ms, on_delivery,
                                     int64_t waited_ms):
        cdef PartitionQueue chosen = None
        cdef PartitionQueue target
        cdef ProducerBatch batch
        cdef int64_t now = wall_of(self._clock) if timestamp_ms is None else given_ms(timestamp_ms)
        cdef int64_t wanted, started_ms = 0
        cdef bint timed = False
        cdef const uint8_t *h = NULL
        cdef Py_ssize_t h_len = 0
        cdef RecordFuture future
        if now < 0:
            raise ValueError(f"timestamp_ms must not be negative, got {now} (topic {queue.topic})")
        if partition is not None:
            wanted = given_partition(queue, partition)
            if wanted >= queue.n:
                waited_ms += self._await_partition(queue, wanted, waited_ms)
            if not 0 <= wanted < queue.n:
                raise _usage_error(f"partition {wanted} of topic {queue.topic} does not exist: it has {queue.n}")
            chosen = <PartitionQueue> PyList_GET_ITEM(<PyObject *> queue.partitions, wanted)
        elif k.n >= self._least_key:
            chosen = self._of_key(queue, k)
        if headers is not None:
            h = <const uint8_t *> PyBytes_AS_STRING(headers)
            h_len = PyBytes_GET_SIZE(headers)
        if on_delivery is not None:
            check_order(on_delivery)
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
                if batch.count == 0:
                    if not timed:
                        started_ms = self.start_of(batch)  # may run Python code: look at `open` again
                        timed = True
                        continue
                    batch.created_ms = started_ms
                if batch.try_append(now, k.p, k.n, v.p, v.n, h, h_len):
                    future.delivery = batch.delivery
                    future.index = batch.count - 1
                    if on_delivery is not None:
                        future.looked_at = True
                        batch.delivery.looked_at += 1
                        batch.delivery.callbacks.append(future)
                        batch.delivery.callbacks.append(on_delivery)
                    if batch.count == 1:
                        self.begin(started_ms)
                    return future
            self.roll(queue, chosen, APPEND_OVERHEAD_MAX + max(v.n, 0) + max(k.n, 0) + h_len, &waited_ms, 0)
            timed = False

    @cython.final
    cdef int roll(self, TopicQueue queue, PartitionQueue chosen, Py_ssize_t record_bytes, int64_t *waited_ms, int64_t left_bytes) except -1:
        """Makes room for a record: with a buffer at hand right here, else by `_roll`, which may wait. Adds that to what its send has waited.

        left_bytes: about what a send_many call has to write yet; 0 for a single record.
        """
        if left_bytes > 0 and (self._accumulator is None or left_bytes > self._accumulator.batch_size < self._accumulator.many_bytes):
            waited = self._roll_many(queue, chosen, record_bytes, waited_ms[0], left_bytes)
            if waited is not None:
                waited_ms[0] += <int64_t> waited
            return 0
        if self._fast and self._accumulator is not None and self._accumulator.roll_kept(queue, chosen, record_bytes, time_of(self._clock)):
            return 0
        if waited_ms[0] == 0:
            waited = self._roll(queue, chosen, record_bytes)
        else:
            waited = self._roll_within(queue, chosen, record_bytes, waited_ms[0])
        if waited is not None:
            waited_ms[0] += <int64_t> waited
        return 0

    @cython.final
    cdef int64_t start_of(self, ProducerBatch batch) except? -1:
        """The time, for a batch that gets its first record; once per batch."""
        return batch.created_ms if self._clock is None else time_of(self._clock)

    @cython.final
    cdef int begin(self, int64_t started_ms) except -1:
        """A batch has its first record."""
        if self._accumulator is None:
            self._begun()
        else:
            self._accumulator.begun(started_ms)
        return 0

    @cython.final
    cdef PartitionQueue _of_key(self, TopicQueue queue, Slice *k):
        cdef size_t n = <size_t> max(k.n, 0)
        cdef uint32_t h
        if self._key_hash == KEY_MURMUR2:
            h = <uint32_t> kc_murmur2(k.p, n) & 0x7fffffff
        elif self._key_hash == KEY_CRC32:
            h = kc_crc32(k.p, n)
        else:
            h = kc_fnv1a(k.p, n)
        return <PartitionQueue> PyList_GET_ITEM(<PyObject *> queue.partitions, h % <uint32_t> queue.n)

    def _append_many(self, TopicQueue queue, ColumnSource values, ColumnSource keys, headers, const int32_t[::1] partitions,
                     int64_t timestamp_ms, const int64_t[::1] timestamps, ManyProgress progress, int64_t waited_ms=0):
        """Appends the records from number `progress.done` on, in order; progress says how far it came when this raises.

        headers: None, the encoded headers of every record (bytes), a list with one encoded array or None per record, or a HeaderColumn.
        waited_ms: what the first record has waited for already.
        """
        cdef int64_t i, taken, n = values.count
        cdef bint run                                          # of plain items, for one batch: written by one loop
        cdef bint choose = partitions is None and (self._least_key == PY_SSIZE_T_MAX or (keys is None and self._least_key >= 0))
        cdef Slice v, k
        cdef PartitionQueue chosen
        cdef PartitionQueue target
        cdef ProducerBatch batch
        cdef int64_t now = wall_of(self._clock) if timestamp_ms < 0 else timestamp_ms
        cdef bytes common = headers if type(headers) is bytes else None
        cdef list each = headers if type(headers) is list else None
        cdef ColumnSource column = (<HeaderColumn> headers).encoded if type(headers) is HeaderColumn else None
        cdef bytes one
        cdef const uint8_t *h
        cdef Py_ssize_t h_len
        cdef int32_t slot, wanted
        cdef int64_t started_ms = 0
        cdef bint timed
        k.p = NULL
        k.n = -1
        if choose and headers is None and values.c.kind != KC_COL_LIST and (keys is None or keys.c.kind != KC_COL_LIST):
            self._append_columns(queue, values, keys, now, timestamps, progress, waited_ms)
            return
        run = choose and headers is None and keys is None and values.c.kind == KC_COL_LIST
        i = progress.done - 1
        while i + 1 < n:
            i += 1
            if run and queue.sticky.open is not None and queue.sticky.open.count:
                taken = self._append_run(queue.sticky.open, values, i, now, timestamps, progress)
                if taken:
                    i += taken
                    waited_ms = 0
                    if i == n:
                        break
            values.get(i, &v.p, &v.n)
            if keys is not None:
                keys.get(i, &k.p, &k.n)
            chosen = None
            wanted = -1 if partitions is None else partitions[i]
            if wanted >= 0:
                if wanted >= queue.n:                          # checked before, but another topic may have the name since
                    raise _usage_error(f"partition {wanted} of topic {queue.topic} does not exist: it has {queue.n}")
                chosen = <PartitionQueue> PyList_GET_ITEM(<PyObject *> queue.partitions, wanted)
            elif k.n >= self._least_key:
                chosen = self._of_key(queue, &k)
            if timestamps is not None:
                now = timestamps[i]
            one = common if each is None else <bytes> each[i]
            h = NULL
            h_len = 0
            if column is not None:
                column.get(i, &h, &h_len)
            elif one is not None:
                h = <const uint8_t *> PyBytes_AS_STRING(one)
                h_len = PyBytes_GET_SIZE(one)
            timed = False
            while True:
                target = queue.sticky if chosen is None else chosen
                batch = target.open
                if batch is not None:
                    if batch.count == 0:
                        if not timed:
                            started_ms = self.start_of(batch)
                            timed = True
                            continue
                        batch.created_ms = started_ms
                    slot = progress.slot_of(batch.delivery)
                    if batch.try_append(now, k.p, k.n, v.p, v.n, h, h_len):
                        progress.note(slot, batch.count - 1, 1)
                        if batch.count == 1:
                            self.begin(started_ms)
                        break
                    progress.unused(slot)
                self.roll(queue, chosen, APPEND_OVERHEAD_MAX + max(v.n, 0) + max(k.n, 0) + h_len, &waited_ms,
                          left_of_many(values, i, v.n, max(k.n, 0) + h_len))
                timed = False
                # a column of odd objects is only good until Python code runs
                values.get(i, &v.p, &v.n)
                if keys is not None:
                    keys.get(i, &k.p, &k.n)
            waited_ms = 0                                      # each record has max_block_ms
        self.hurry_full(progress)

    cdef int64_t _append_run(self, ProducerBatch batch, ColumnSource values, int64_t first, int64_t timestamp_ms,
                             const int64_t[::1] timestamps, ManyProgress progress) except -1:
        """Writes items from `first` on into an open batch that has records: as many as are bytes and fit. Returns how many.

        Runs no Python code; what the general loop does for each record it does once.
        """
        cdef int32_t slot = progress.slot_of(batch.delivery), index = batch.count
        cdef int64_t i = first, n = min(values.count, PyList_GET_SIZE(values.items) if values.is_list else values.count)
        cdef kc_batch_writer w
        cdef PyObject *item
        cdef const uint8_t *p
        cdef Py_ssize_t size
        w.p = batch.ptr + batch.pos
        w.limit = batch.ptr + batch.limit
        w.count = w.next_delta = index
        w.base_ts = batch.base_timestamp_ms
        w.max_ts = batch.max_timestamp_ms
        while i < n:
            if i + RUN_AHEAD < n:
                kc_prefetch(values.at(i + RUN_AHEAD))
            item = values.at(i)
            if not PyBytes_CheckExact(<object> item):
                break
            p = <const uint8_t *> PyBytes_AS_STRING(<object> item)
            size = PyBytes_GET_SIZE(<object> item)
            if size > COLUMN_ITEM_MAX or not kc_write_record(&w, timestamp_ms if timestamps is None else timestamps[i], NULL, -1, NULL,
                                                             p, size, p + size, NULL, 0):
                break
            i += 1
        batch.pos = w.p - batch.ptr
        batch.count = w.count
        batch.max_timestamp_ms = w.max_ts
        if i > first:
            progress.note(slot, index, i - first)
        else:
            progress.unused(slot)
        return i - first

    cdef _append_columns(self, TopicQueue queue, ColumnSource values, ColumnSource keys, int64_t timestamp_ms,
                         const int64_t[::1] timestamps, ManyProgress progress, int64_t waited_ms):
        """Records for the sticky partition out of columns in memory: whole runs are written by one C loop per batch."""
        cdef int64_t i = progress.done, j, n = values.count, started_ms = 0
        cdef bint timed = False
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
                if batch.count == 0:
                    if not timed:
                        started_ms = self.start_of(batch)
                        timed = True
                        continue
                    batch.created_ms = started_ms
                slot = progress.slot_of(batch.delivery)
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
                if j > i:
                    progress.note(slot, index, j - i)
                    if index == 0:
                        self.begin(started_ms)
                    waited_ms = 0
                else:
                    progress.unused(slot)
                i = j
                if i == n:
                    self.hurry_full(progress)
                    return
            values.get(i, &v.p, &v.n)                          # raises when that item is what stopped the run
            if keys is not None:
                keys.get(i, &k.p, &k.n)
            self.roll(queue, None, APPEND_OVERHEAD_MAX + max(v.n, 0) + max(k.n, 0), &waited_ms, left_of_many(values, i, v.n, max(k.n, 0)))
            timed = False

    @cython.final
    cdef int hurry_full(self, ManyProgress progress) except -1:
        """A send_many call ends. An open batch that has batch_size bytes lingers no longer: the Sender hears of it."""
        cdef Delivery delivery
        cdef ProducerBatch batch
        if self._accumulator is None:
            return 0
        for delivery in progress.deliveries:
            batch = delivery.queue.open
            if batch is not None and batch.delivery is delivery and batch.pos >= self._accumulator.batch_size:
                self._accumulator._look_at_all = True
                self._accumulator.wake(time_of(self._clock), True)
                return 0
        return 0


cdef int64_t left_of_many(ColumnSource values, Py_ssize_t i, Py_ssize_t value_bytes, Py_ssize_t more_bytes):
    """About what the records of a send_many call from number i on will take, that one having `more_bytes` of key and headers."""
    return values.bytes_after(i, max(value_bytes, 0)) + (values.count - i) * (APPEND_OVERHEAD_USUAL + more_bytes)
