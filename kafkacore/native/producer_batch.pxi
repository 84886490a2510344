# A producer's batch while it is filled and sent, and the queues it is in. The rules are in append.pxi.

from cpython.bytearray cimport PyByteArray_AS_STRING

from collections import deque as _deque

cdef extern from "wire.h":
    size_t kc_record_body_size(int64_t, int32_t, int64_t, int64_t, size_t) nogil
    uint8_t *kc_put_record(uint8_t *, size_t, int64_t, int32_t, const void *, int64_t, const void *, int64_t) nogil

cdef enum:
    BATCH_BYTES_MIN = KC_BATCH_HEADER + KC_SLACK
    LEADER_HURRIES = 2

BATCH_OVERHEAD_BYTES = BATCH_BYTES_MIN                 # bytes of a batch's buffer that hold no records


@cython.final
@cython.no_gc                                  # there may be thousands at a time: its cycle, through its queue, ends when it is drained
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
    cdef public int64_t created_ms             # when its first record came: linger and delivery timeout begin then
    cdef public int64_t last_attempt_ms
    cdef public int64_t drained_ms
    cdef public int attempts
    cdef public int64_t backoff_ms
    cdef public int leader_epoch
    cdef int hurries                           # tries that went before their time because the leader had changed
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
        return self.wire_size()

    cdef inline Py_ssize_t wire_size(self) except -1:
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

    cdef inline int64_t backing_off_ms(self, int64_t now_ms) noexcept:
        """How long this batch still waits for its next try. A new leader ends the wait, but not more than LEADER_HURRIES times: brokers that
        name a newer leader each time would be asked without a pause. Relies on PartitionQueue.look_up."""
        cdef int64_t left
        if self.attempts == 0:
            return 0
        left = self.backoff_ms - (now_ms - self.last_attempt_ms)
        return 0 if left <= 0 or (self.hurries < LEADER_HURRIES and self.queue.leader_epoch > self.leader_epoch >= 0) else left

    cdef void begin_try(self, int64_t now_ms) noexcept:
        """It leaves for the leader that is known now."""
        if self.attempts and now_ms - self.last_attempt_ms < self.backoff_ms:
            self.hurries += 1
        self.leader_epoch = self.queue.leader_epoch
        self.drained_ms = now_ms

    cdef void close_open(self) noexcept:
        if not self.closed:
            self.closed = True
            self.delivery.count = self.count
            if self.count:
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
        cdef uint8_t *h
        cdef uint32_t crc
        cdef Py_ssize_t body_bytes
        cdef const uint8_t[::1] view
        if body is None:
            return [self.sealed_plain(transactional)]
        view = body
        body_bytes = view.shape[0]
        self._header = bytearray(KC_BATCH_HEADER)
        self._body = body
        h = <uint8_t *> PyByteArray_AS_STRING(self._header)
        self.put_header(h, body_bytes, codec, transactional)
        crc = kc_crc32c(0, h + 21, KC_BATCH_HEADER - 21)
        if body_bytes:
            crc = kc_crc32c(crc, &view[0], <size_t> body_bytes)
        kc_put32(h + 17, <int32_t> crc)
        return [self._header, body]

    cdef BufferStart sealed_plain(self, bint transactional):
        """`seal` without compression: the one piece of its gather list."""
        self._header = None
        self._body = None
        self.put_header(self.ptr, self.pos - KC_BATCH_HEADER, 0, transactional)
        kc_put32(self.ptr + 17, <int32_t> kc_crc32c(0, self.ptr + 21, <size_t> (self.pos - 21)))
        return buffer_start(self.buffer, self.pos)

    cdef void put_header(self, uint8_t *h, Py_ssize_t body_bytes, int codec, bint transactional) noexcept:
        """All of the header but the CRC-32C."""
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

    def wire(self):
        """The gather list of the batch as sealed last."""
        if self._header is None:
            return [buffer_start(self.buffer, self.pos)]
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
        cdef bint alone = False                # else what is left over of a large record's buffer could take the rest, and nothing be split
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
                    if batch.count == 0 or not alone and <size_t> (batch.limit - batch.pos) >= body_size + kc_varint_size(<int64_t> body_size):
                        break
                    batch.close_open()
                alone = BATCH_BYTES_MIN + <Py_ssize_t> rest + 16 > target_bytes
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
    cdef object snapshot                      # the cluster view the next three are of
    cdef readonly int32_t leader              # node id, -1 when unknown
    cdef readonly int32_t leader_epoch
    cdef object topic_id                      # None when the topic is not known

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
        """Takes leader, epoch and topic id from a cluster view; once per view."""
        if self.snapshot is not snapshot:
            info = snapshot.topics.get(self.topic)
            found = None if info is None else partition_of(info, self.index)
            self.leader = -1 if found is None or found[1] not in snapshot.nodes else found[1]
            self.leader_epoch = -1 if found is None else found[2]
            self.topic_id = None if info is None else info.topic_id
            self.snapshot = snapshot
        return 0

    def close_open(self):
        """Closes the open batch, if any."""
        if self.open is not None:
            self.open.close_open()

    def __repr__(self):
        return f"<PartitionQueue {self.topic}-{self.index} batches={len(self.batches)} muted={bool(self.muted)}>"


@cython.final
cdef class AvailablePartitions:
    """The partitions of one topic that have a leader, all when none has. Never changes but for `taking`, which is replaced as a whole."""

    cdef object snapshot                      # the cluster view it was last found true for
    cdef object infos                         # the view's list of partitions, its brokers, the topic's count
    cdef object nodes
    cdef int32_t n
    cdef list queues
    cdef list leaders                         # the node id of each, empty when no partition has a leader
    cdef tuple taking                         # (brokers that take nothing, the queues that others lead)
    cdef AvailablePartitions nearby           # those with a leader in the client's rack, or all; made when it is asked for
    cdef object numbers                       # the partitions' numbers as an array, made when it is asked for

    cdef AvailablePartitions in_rack(self, rack):
        """The partitions whose leader is in the rack; all when there is none. Always asked for the same rack."""
        cdef AvailablePartitions near = self.nearby
        if near is None:
            near = AvailablePartitions.__new__(AvailablePartitions)
            near.queues, near.leaders = [], []
            for queue, leader in zip(self.queues, self.leaders):
                if self.nodes[leader].rack == rack:
                    near.queues.append(queue)
                    near.leaders.append(leader)
            if not near.queues:
                near = self
            self.nearby = near
        return near

    cdef list without(self, slow):
        """The partitions whose leader is not in `slow`."""
        cdef tuple known = self.taking
        if known is None or known[0] != slow:
            known = (slow, [queue for queue, leader in zip(self.queues, self.leaders) if leader not in slow])
            self.taking = known
        return <list> known[1]


@cython.final
cdef class TopicQueue:
    """The partitions of one topic as the producer knows them, and the sticky one records without a key go to."""

    cdef readonly str topic
    cdef readonly list partitions
    cdef readonly int32_t n                   # how many of them the topic has now
    cdef public PartitionQueue sticky
    cdef public int64_t turn                  # of the round robin partitioner
    cdef public object topic_id               # of the topic last seen under this name
    cdef bint known                           # to the accumulator
    cdef int64_t listed                       # the last request that lists it, see SenderCore._request
    cdef readonly Py_ssize_t longest          # batches of its longest queue: raised at once, brought down by the Sender's next pass
    cdef int64_t longest_of                   # that pass
    cdef int64_t used_ms                      # when the metadata heard last that the topic is in use
    cdef AvailablePartitions _available
    cdef readonly int64_t many_limit_bytes    # send_many begins no larger batch; see refused()
    cdef readonly TopicStats stats

    def __cinit__(self, str topic):
        self.stats = TopicStats()
        self.topic = topic
        self.partitions = []
        self.used_ms = -(<int64_t> 1 << 62)   # never
        self.many_limit_bytes = INT64_MAX

    cdef inline void has_batches(self, Py_ssize_t batches) noexcept:
        if batches > self.longest:
            self.longest = batches

    cdef AvailablePartitions available_in(self, snapshot):
        """Its available partitions; walks them only when the cluster view says something else of this topic, or of the brokers."""
        cdef AvailablePartitions known = self._available
        cdef PartitionQueue queue
        cdef int64_t index
        if known is not None and known.snapshot is snapshot and known.n == self.n:
            return known
        info = snapshot.topics.get(self.topic)
        infos = () if info is None else info.partitions
        nodes = snapshot.nodes
        if known is not None and known.infos is infos and known.n == self.n and known.nodes == nodes:
            known.snapshot = snapshot
            return known
        known = AvailablePartitions.__new__(AvailablePartitions)
        known.snapshot, known.infos, known.nodes, known.n = snapshot, infos, nodes, self.n
        known.queues = []
        known.leaders = []
        for found in infos:
            index = found.index
            leader = found.leader
            if index < known.n and leader in nodes:
                known.queues.append(self.partitions[index])
                known.leaders.append(leader)
        if not known.queues:
            known.queues = self.partitions[:known.n]
        self._available = known
        return known

    def available(self, snapshot):
        """The partitions that have a leader, all when none has; the list is shared, and not to be changed."""
        return self.available_in(snapshot).queues

    def available_numbers(self, snapshot):
        """The numbers of these partitions, as an int32 array."""
        cdef AvailablePartitions known = self.available_in(snapshot)
        if known.numbers is None:
            import numpy
            known.numbers = numpy.array([(<PartitionQueue> queue).index for queue in known.queues], numpy.int32)
        return known.numbers

    def refused(self, Py_ssize_t nbytes):
        """A broker found a batch of `nbytes` uncompressed bytes too large: the next ones are cut to the power of two below."""
        cdef int64_t below = 1
        while 2 * below < nbytes:
            below *= 2
        self.many_limit_bytes = min(self.many_limit_bytes, below)

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
