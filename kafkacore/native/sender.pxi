# One pass of the producer's I/O, compiled bases of producer/sender.py and producer/txn.py, which tell the rules: what may leave, who drives,
# how sequence numbers are given. Everything that goes wrong is settled there; here is the path of a batch that goes well.

from libc.stdint cimport int16_t
from cpython.pythread cimport PyThread_get_thread_ident

from kafkacore.errors import ForkedClientError, KafkaTimeoutError

cdef extern from "<unistd.h>" nogil:
    int c_getpid "getpid"()

cdef enum:
    PRODUCE_ADDS_PARTITIONS = 12  # from this version on Produce takes its partitions into the transaction (KIP-890)
    PRODUCE_BY_ID = 13            # Produce names topics by id from this version on
    COMPRESSED_PER_PASS = 256 * 1024  # after so many bytes, and the request they end in, the network has its turn
    TOPIC_USE_MS = 1_000          # how exactly the metadata knows when a topic was last used: it forgets topics after minutes

cdef object BOOKS_READY = None                # txn.State.READY
cdef object PRODUCE_REQUEST = None
cdef object PRODUCE_RESPONSE = None
cdef object TOPIC_PRODUCE_DATA = None
cdef object PARTITION_PRODUCE_DATA = None
cdef str NO_NAME_ON_WIRE = ""


def _bind_books_state(ready):
    """Gives the pass the state in which batches may be numbered; called once by kafkacore.producer.txn."""
    global BOOKS_READY
    BOOKS_READY = ready


def _bind_produce(request, topic, partition, response):
    """Gives the pass the classes it fills and reads by position; called once by kafkacore.producer.sender."""
    global PRODUCE_REQUEST, TOPIC_PRODUCE_DATA, PARTITION_PRODUCE_DATA
    global PRODUCE_RESPONSE
    for kind, fields in (
        (request, ("transactional_id", "acks", "timeout_ms", "topic_data")),
        (topic, ("name", "topic_id", "partition_data")),
        (partition, ("index", "records")),
        (response, ("responses", "throttle_time_ms", "node_endpoints")),
    ):
        if tuple(kind.FIELDS) != fields:
            raise InternalError(f"{kind.__name__} has fields {tuple(kind.FIELDS)}, the producer's pass knows {fields}")
    PRODUCE_REQUEST, TOPIC_PRODUCE_DATA, PARTITION_PRODUCE_DATA = request, topic, partition
    PRODUCE_RESPONSE = response


cdef object struct_of(object cls, tuple fields):
    """A message struct from all its fields in order."""
    cdef PlanType* kind = <PlanType*><PyObject*> cls
    cdef Py_ssize_t i, n = len(fields)
    cdef PyObject* made = plan_new_tuple(kind, n)
    struct = <object> made
    plan_xdecref(made)
    for i in range(n):
        value = fields[i]
        plan_incref(<PyObject*> value)
        plan_tuple_set(made, i, <PyObject*> value)
    return struct


@cython.final
cdef class PartitionBooks:
    """Sequence numbers of one partition."""

    cdef public int64_t producer_id
    cdef public int epoch
    cdef public int64_t next_sequence
    cdef public int64_t last_acked_sequence
    cdef public int64_t last_acked_offset
    cdef public list in_flight                # drained and unanswered (on the wire or waiting for a retry), by sequence

    def __cinit__(self, int64_t producer_id, int epoch):
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.in_flight = []


cdef class TransactionsCore:
    """The compiled half of TransactionManager: numbering a batch, and ticking it off."""

    cdef public object state
    cdef public int64_t producer_id
    cdef public int epoch
    cdef public dict _partitions
    cdef public set _unresolved
    cdef public set _bump_for
    cdef public TransactionGate gate          # None: not transactional

    cdef inline bint quiet(self):
        """True when `resolve`, InitProducerId and the transaction have nothing to do."""
        if self.gate is not None and self.gate.busy:
            return False
        return self.state is BOOKS_READY and not self._unresolved and not self._bump_for

    cpdef bint may_drain(self, ProducerBatch batch):
        """True when the first batch of a partition may leave now (rules 1, 2 and 5)."""
        cdef PartitionBooks books
        cdef ProducerBatch first = None
        if self.producer_id == -1:
            return False
        books = self._partitions.get(batch.queue)
        if books is None:
            return self.gate is None or self.gate.lets(batch.queue)
        if books.in_flight:
            first = <ProducerBatch> books.in_flight[0]
        if batch.base_sequence >= 0:
            return (first is None or first is batch) and (self.gate is None or self.gate.lets(batch.queue))
        if batch.queue in self._unresolved or batch.queue in self._bump_for:
            return False
        if first is not None and (books.producer_id != self.producer_id or books.epoch != self.epoch):
            return False
        if first is not None and books.last_acked_sequence < 0:
            return False                          # rule 5
        # A batch waiting for its retry is ahead in sequence: it has to go first.
        if first is not None and first.in_retry and not first.in_flight:
            return False
        return self.gate is None or self.gate.lets(batch.queue)

    cpdef on_drain(self, ProducerBatch batch):
        """Numbers a batch that leaves for the first time."""
        cdef PartitionBooks books
        if batch.base_sequence >= 0:
            return
        books = self._partitions.get(batch.queue)
        if books is None:
            books = self._partitions[batch.queue] = PartitionBooks(self.producer_id, self.epoch)
        elif (books.producer_id != self.producer_id or books.epoch != self.epoch) and not books.in_flight:
            self._restart(books)
        batch.set_producer_state(books.producer_id, books.epoch, <int> books.next_sequence)
        books.next_sequence = (books.next_sequence + batch.count) & 0x7fffffff
        books.in_flight.append(batch)

    cpdef on_success(self, ProducerBatch batch, int64_t base_offset):
        """The broker has the batch."""
        cdef PartitionBooks books = self._partitions.get(batch.queue)
        cdef int64_t last
        if books is None:
            return
        if batch.producer_id == books.producer_id and batch.producer_epoch == books.epoch:
            last = (<int64_t> batch.base_sequence + batch.count - 1) & 0x7fffffff
            if last > books.last_acked_sequence or books.last_acked_sequence - last > 1 << 30:
                books.last_acked_sequence = last
            if base_offset >= 0:
                books.last_acked_offset = max(books.last_acked_offset, base_offset + batch.count - 1)
        if books.in_flight and books.in_flight[0] is batch:
            del books.in_flight[0]
        elif batch in books.in_flight:
            books.in_flight.remove(batch)

    cpdef _remove(self, ProducerBatch batch):
        cdef PartitionBooks books = self._partitions.get(batch.queue)
        if books is not None and batch in books.in_flight:
            books.in_flight.remove(batch)


@cython.final
cdef class ProducePartitions(PlanRows):
    """The partitions of a topic in a Produce request, a batch each."""

    cdef list batches, wires                  # of all topics
    cdef Py_ssize_t first                     # of this topic
    cdef object number

    cdef int fill(self, Py_ssize_t i, PyObject **slots) except -1:
        self.number = (<ProducerBatch> self.batches[self.first + i]).queue.index
        slots[0] = <PyObject *> self.number
        slots[1] = PyList_GET_ITEM(<PyObject *> self.wires, self.first + i)
        return 0


@cython.final
cdef class ProduceTopics(PlanRows):
    """The topics of a Produce request. The partitions are always the same object, set to those of the topic asked for last."""

    cdef ProduceAttempt attempt
    cdef ProducePartitions parts
    cdef bint by_id

    cdef int fill(self, Py_ssize_t i, PyObject **slots) except -1:
        self.parts.first = self.attempt.starts[i]
        self.parts.count = self.attempt.starts[i + 1] - self.parts.first
        if self.by_id:
            slots[0] = <PyObject *> NO_NAME_ON_WIRE
            slots[1] = PyList_GET_ITEM(<PyObject *> self.attempt.ids, i)
        else:
            slots[0] = <PyObject *> (<ProducerBatch> self.attempt.batches[self.parts.first]).queue.topic
            slots[1] = <PyObject *> NO_TOPIC_ID
        slots[2] = <PyObject *> self.parts
        return 0


@cython.final
cdef class ProduceAttempt:
    """One Produce request: makes the message when the version is known, and takes the answer."""

    cdef SenderCore sender
    cdef list batches                         # those of one topic next to each other
    cdef list ids                             # of the topics, in their order
    cdef Py_ssize_t *starts                   # the first batch of each topic, and where the last one ends
    cdef int64_t generation

    def __dealloc__(self):
        PyMem_Free(self.starts)

    cdef int take(self, list batches, Py_ssize_t topics) except -1:
        """Takes the batches of so many topics, those of a topic next to each other; the caller sees to `ids`."""
        cdef ProducerBatch batch
        cdef TopicQueue topic = None
        cdef Py_ssize_t at, n = 0
        self.batches = batches
        self.starts = <Py_ssize_t *> PyMem_Malloc((topics + 1) * sizeof(Py_ssize_t))
        if self.starts == NULL:
            raise MemoryError
        for at, batch in enumerate(batches):
            if batch.queue.owner is not topic:
                if n == topics:
                    raise InternalError(f"more than {topics} topics in a Produce request")
                topic = batch.queue.owner
                self.starts[n] = at
                n += 1
        if n != topics or len(self.ids) != topics:
            raise InternalError(f"{n} topics in a Produce request for {topics}, {len(self.ids)} ids")
        self.starts[n] = len(batches)
        return 0

    def build(self, int version):
        """The ProduceRequest, with its batches sealed."""
        cdef ProduceTopics topics = ProduceTopics.__new__(ProduceTopics)
        cdef ProducePartitions parts = ProducePartitions.__new__(ProducePartitions)
        cdef ProducerBatch batch
        cdef SenderCore sender = self.sender
        cdef bint transactional = sender._transactional_id is not None
        parts.batches = self.batches
        parts.wires = []
        for batch in self.batches:
            parts.wires.append(batch.sealed_plain(transactional) if sender._codec == 0 and batch._body is None else sender._sealed(batch))
        parts.rows_of(PARTITION_PRODUCE_DATA, 0)
        topics.attempt = self
        topics.parts = parts
        topics.by_id = version >= PRODUCE_BY_ID
        topics.rows_of(TOPIC_PRODUCE_DATA, len(self.ids))
        return struct_of(PRODUCE_REQUEST, (sender._transactional_id, sender._acks, sender._request_timeout_ms, topics))

    cdef dict ids_by_name(self):
        """{topic: id}."""
        cdef Py_ssize_t at
        return {(<ProducerBatch> self.batches[self.starts[at]]).queue.topic: self.ids[at] for at in range(len(self.ids))}

    def answered(self, ClientResponse response not None):
        """Settles the batches."""
        cdef ProducerStats stats = self.sender.stats
        cdef int64_t now_ms = response.request.sent_ms + response.latency_ms
        cdef TransactionsCore books = self.sender.transactions
        if type(response.response) is PRODUCE_RESPONSE:
            stats.latency_ms.put(response.latency_ms, now_ms)
            stats.throttle_ms.put((<tuple> response.response)[1], now_ms)
            if books is not None and books.gate is not None and books.gate.first_answer_ms < 0:
                books.gate.first_answer_ms = response.latency_ms
        if self.generation != self.sender._generation:
            return
        if not self.all_well(response):
            self.sender._on_produce_response(response, self.batches, self.ids_by_name())

    cdef bint all_well(self, ClientResponse response) except -1:
        """True when every partition was answered, in the order of the request, without an error and without news of a leader; then its
        batches are settled. Nothing has been done when it returns False."""
        cdef Py_ssize_t n = len(self.batches)
        cdef Produced *found
        body = response.response
        if response.error is not None or response.disconnected or type(body) is not PRODUCE_RESPONSE:
            return False
        topics = (<tuple> body)[0]
        if type(topics) is not ProducedTopics:
            return False
        found = <Produced *> PyMem_Malloc(n * sizeof(Produced) + 1)
        if found == NULL:
            raise MemoryError
        try:
            if not (<ProducedTopics> topics).all_taken(self.batches, self.ids, self.starts, found):
                return False
            self.sender.settle_all(self.batches, found)
            return True
        finally:
            PyMem_Free(found)


cdef int open_gate(gate) except -1:
    """Ends the wait for a held lock; no Python code runs here, so that Ctrl+C cannot lose the wake-up."""
    if gate.locked():
        _release_quietly(gate)                                       # another thread may have opened it since
    return 0


cdef class SenderCore:
    """The compiled half of Sender."""

    cdef public object client
    cdef public object metadata
    cdef public AccumulatorCore accumulator
    cdef public TransactionsCore transactions
    cdef public dict counters
    cdef readonly ProducerStats stats
    cdef public object config
    cdef public object _clock
    cdef public object _on_metadata
    cdef public object _metadata_version
    cdef public int _codec
    cdef int64_t _request                     # number of the request that is being put together
    cdef Py_ssize_t _turn                     # which node's batches are compressed first
    cdef public bint _in_order
    cdef public object _acks
    cdef public str _transactional_id
    cdef public object _request_timeout_ms
    cdef public int64_t _availability_timeout_ms
    cdef public int _min_version
    cdef public dict _in_flight
    cdef public int64_t _in_flight_expiry_ms
    cdef public int64_t _generation
    cdef public int64_t pid
    cdef public object _io
    cdef public object _owner
    cdef public object _callers
    cdef public int64_t _calls
    cdef public object _nap_gate
    cdef public bint _closing
    cdef public bint _forced
    cdef public bint _disorder                # a pass was cut short, and `_recover` has not put things in order yet
    cdef public object errand                 # something that a pass is to do first: see Sender.do_first
    cdef public object unplaced               # records of topics that are not known yet, of a face that never waits: see unplaced.py
    cdef public bint _watching                # the Sender thread sleeps until `_io` is free
    cdef Delivery _awaited                    # what the caller that drives waits for
    cdef public object awaited                # called with an event loop that is about to wait for a delivery
    cdef public object pass_asked             # the event loop that has a pass to make already
    cdef object _passing                      # the event loop that makes a pass now
    cdef list _finished                       # in that pass: what its own tasks wait for
    cdef readonly int64_t _passes_by          # passes made by event loops

    def __cinit__(self, *args, **kwargs):
        self.stats = ProducerStats()

    # ---- one pass

    cpdef run_once(self, int64_t now_ms, int64_t max_wait_ms=LOOKING):
        """Sends what can be sent, then waits for answers.

        Args:
            now_ms: the time.
            max_wait_ms: bound of the wait.
        """
        cdef int64_t timeout_ms
        if self._disorder:
            self._recover()
        if self.errand is not None:
            self._run_errand()
        self.accumulator.poll_until_ms = LOOKING
        timeout_ms = min(self.send_producer_data(now_ms), max_wait_ms)
        if not self.accumulator.sleeping(now_ms + timeout_ms) or (self._closing and self._done()):      # something came in just now
            timeout_ms = 0
        elif self._awaited is not None and self._awaited.state == DELIVERY_FINISHED:                    # it expired, or was refused
            timeout_ms = 0
        self.client.poll(timeout_ms, now_ms)
        self.accumulator.poll_until_ms = AWAKE

    cpdef guarded_pass(self, int64_t now_ms, int64_t max_wait_ms=LOOKING):
        """`run_once`; what a step raises is logged, and things are put in order: the next pass goes on."""
        try:
            self.run_once(now_ms, max_wait_ms)
        except Exception as error:
            self._disorder = True
            self._pass_failed(error)
        except BaseException:
            self._disorder = True
            raise

    cpdef int64_t send_producer_data(self, int64_t now_ms) except? -1:
        """Drains ready batches into requests.

        Returns:
            Milliseconds until there may be more to do without an event.
        """
        cdef AccumulatorCore accumulator = self.accumulator
        cdef int64_t wait_ms = LOOKING
        cdef Ready ready
        cdef list batches
        cdef bint sent = False
        cdef dict drained
        cdef ProducerBatch batch
        cdef Py_ssize_t compressed_bytes = 0, first
        metadata = self.metadata
        version = metadata.version
        if version != self._metadata_version:
            self._metadata_version = version
            self._on_metadata()
        if self.transactions is not None and not self.transactions.quiet():
            wait_ms = self._prepare_producer_id(now_ms)
        if self.unplaced is not None:
            wait_ms = min(wait_ms, <int64_t> self.unplaced.step(now_ms))
        snapshot = metadata.snapshot
        ready = accumulator.ready(snapshot, now_ms)
        wait_ms = min(wait_ms, ready.next_check_ms)
        if ready.unknown_leader_topics:
            metadata.add_topics(ready.unknown_leader_topics, now_ms)
            metadata.request_update()
        if ready.nodes:
            nodes = []
            for node_id in ready.nodes:
                node = snapshot.nodes[node_id]
                can_drain = self.client.ready(node, now_ms)
                if self._availability_timeout_ms:
                    self._note_node(node_id, can_drain, now_ms)
                if can_drain:
                    nodes.append(node_id)
                    continue
                refused = self.client.authentication_exception(node)
                if refused is not None:
                    self._fail_refused(refused)
                wait_ms = min(wait_ms, <int64_t> self.client.poll_delay_ms(node, now_ms))
            turns = [nodes]
            if self._codec and len(nodes) > 1:                       # compressing takes time: one node at a time, and I/O in between
                self._turn += 1
                first = self._turn % len(nodes)
                turns = [[node_id] for node_id in nodes[first:] + nodes[:first]]
            for turn in turns:
                drained = accumulator.drain(turn, now_ms)
                for node_id, batches in drained.items():
                    sent = True
                    if self._codec:
                        for batch in batches:
                            compressed_bytes += batch.pos
                    self._send_produce_request(node_id, batches, now_ms)
                if compressed_bytes >= COMPRESSED_PER_PASS:
                    break
            if sent and accumulator.has_queued():
                wait_ms = 0                                          # what is left gets a look of its own
            if self._transactional_id is not None and self.transactions.gate.take_fresh():
                wait_ms = 0                                          # partitions are to be added to the transaction first
        if now_ms >= accumulator.next_expiry_ms or now_ms >= self._in_flight_expiry_ms:
            self._expire(now_ms)
        return max(0, min(wait_ms, accumulator.next_expiry_ms - now_ms, self._in_flight_expiry_ms - now_ms))

    def _send_produce_request(self, node_id, list batches not None, int64_t now_ms):
        cdef ProduceAttempt attempt = ProduceAttempt.__new__(ProduceAttempt)
        cdef ProducerBatch batch
        cdef int min_version = self._min_version, max_version = PRODUCE_REQUEST.MAX_VERSION
        cdef PartitionQueue queue
        cdef TopicQueue topic = None
        cdef bint scattered = False
        cdef dict by_topic
        cdef list of_topic, used = []
        cdef ClientRequest request
        snapshot = self.metadata.snapshot
        attempt.sender = self
        attempt.generation = self._generation
        attempt.ids = []
        self._request += 1
        for batch in batches:
            self._in_flight[batch] = None
            batch.in_flight = True
            self._in_flight_expiry_ms = min(self._in_flight_expiry_ms, batch.created_ms + self.accumulator.delivery_timeout_ms)
            queue = batch.queue
            if self._in_order:
                queue.muted = True
            if queue.owner is topic:
                continue
            topic = queue.owner
            if topic.listed == self._request:
                scattered = True
                continue
            topic.listed = self._request
            if now_ms - topic.used_ms >= TOPIC_USE_MS:
                used.append(topic.topic)
                topic.used_ms = now_ms
            queue.look_up(snapshot)
            attempt.ids.append(queue.topic_id or NO_TOPIC_ID)
            if queue.topic_id is None or queue.topic_id == NO_TOPIC_ID:
                max_version = PRODUCE_BY_ID - 1
        if scattered:                                                # those of a topic together, as the request lists them
            by_topic = {}
            for batch in batches:
                (<list> by_topic.setdefault(batch.queue.owner, [])).append(batch)
            batches = [batch for of_topic in by_topic.values() for batch in of_topic]
        if used:
            self.metadata.add_topics(used, now_ms)                   # in use: send() itself does not say so
        if self._transactional_id is not None:
            if self.transactions.gate.adds_by_writing():
                min_version = max(min_version, PRODUCE_ADDS_PARTITIONS)
            else:
                max_version = min(max_version, PRODUCE_ADDS_PARTITIONS - 1)
        attempt.take(batches, len(attempt.ids))
        self.counters["requests"] += 1
        request = ClientRequest(node_id, PRODUCE_REQUEST, attempt.build, now_ms, self._acks != 0, self._request_timeout_ms,
                                attempt.answered, min_version, max_version, PRODUCED_CLASS)
        self.client.send(request, now_ms)
        if request.version >= 0:                                     # else no version fits, and nothing went out
            self.count_sent(batches, now_ms)

    cdef int count_sent(self, list batches, int64_t now_ms) except -1:
        """Metrics of batches that have just been sealed and sent."""
        cdef ProducerStats stats = self.stats
        cdef TopicStats of_topic
        cdef ProducerBatch batch
        cdef Py_ssize_t wire_bytes
        cdef int64_t records = 0
        for batch in batches:
            wire_bytes = batch.wire_size()
            records += batch.count
            stats.queue_time_ms.put(batch.drained_ms - batch.created_ms, now_ms)
            stats.batch_bytes.put(wire_bytes, now_ms)
            stats.compression.put(wire_bytes / <double> batch.pos, now_ms)
            of_topic = batch.queue.owner.stats
            of_topic.records.put(batch.count, now_ms)
            of_topic.bytes.put(wire_bytes, now_ms)
            of_topic.uncompressed_bytes += batch.pos
        stats.records.put(records, now_ms)
        return 0

    cdef int settle_all(self, list batches, Produced *found) except -1:
        """The broker has these batches."""
        cdef ProducerBatch batch
        cdef Py_ssize_t at
        cdef int64_t settled = 0, records = 0, nbytes = 0
        counters = self.counters
        try:
            for at, batch in enumerate(batches):
                settled += 1
                records += batch.count
                nbytes += batch.wire_size()
                self.land(batch)
                if self.transactions is not None:
                    self.transactions.on_success(batch, found[at].base_offset)
                batch.delivery.resolve(found[at].base_offset, found[at].log_append_time_ms, None)
                self.accumulator.give_back(batch)
        finally:
            counters["batches"] += settled
            counters["records"] += records
            counters["bytes"] += nbytes
        return 0

    cpdef _settle(self, ProducerBatch batch, int64_t base_offset, int64_t log_append_time_ms):
        """The broker has the batch."""
        cdef Produced found = Produced(base_offset, log_append_time_ms)
        self.settle_all([batch], &found)

    cpdef _landed(self, ProducerBatch batch):
        """The batch is not on the wire any more."""
        self.land(batch)

    cdef int land(self, ProducerBatch batch) except -1:
        self._in_flight.pop(batch, None)
        if not self._in_flight:
            self._in_flight_expiry_ms = LOOKING
        batch.in_flight = False
        if self._in_order:
            batch.queue.muted = False
        return 0

    # ---- waiting, from any thread

    @property
    def in_io_thread(self):
        """True in a callback: the thread that must not wait for itself."""
        return self._owner is not None and self._owner == PyThread_get_thread_ident()

    def wait(self, Delivery delivery not None, timeout):
        """Waits until a delivery is finished, driving the I/O if no other thread does.

        Args:
            delivery: what to wait for.
            timeout: seconds, None = no limit.

        Raises:
            KafkaTimeoutError: the time has passed.
            IllegalStateError: called from a delivery callback.
            ForkedClientError: called in a child process.
        """
        cdef int64_t deadline_ms = LOOKING
        cdef bint ended = False
        if c_getpid() != self.pid:
            raise ForkedClientError("this future belongs to a producer of the parent process")
        if self.in_io_thread:
            raise IllegalStateError("a delivery callback cannot wait for a delivery: the thread that would bring it is this one")
        if timeout is not None:
            deadline_ms = min(time_of(self._clock) + <int64_t> (min(max(0.0, <double> timeout), 1e12) * 1000), LOOKING)
        self._calls += 1
        try:
            if delivery.state != DELIVERY_FINISHED:
                if not self._forced and self._io.acquire(False):
                    try:
                        ended = self.drive(delivery, deadline_ms)
                    finally:
                        self._io.release()
                if not ended:
                    self._wait_in_line(delivery, deadline_ms)
        finally:
            self._leave()
        if delivery.state != DELIVERY_FINISHED:
            raise KafkaTimeoutError(
                f"no outcome within {timeout} s; the records are still on their way",
                topic=delivery.topic,
                partition=delivery.partition,
                attempts=delivery.attempts() + self.metadata.attempts,
            )

    cdef int _wait_in_line(self, Delivery delivery, int64_t deadline_ms) except -1:
        """Waits while another thread drives. Compiled: Ctrl+C between two steps would leave `_io` held, or a gate that no thread waits at."""
        cdef bint ended
        cdef int64_t left_ms
        gate = _allocate_lock()
        gate.acquire()
        self._callers.append(gate)
        try:
            if not delivery.add_waiter(gate):
                return 0
            while delivery.state != DELIVERY_FINISHED:
                if not self._forced and self._io.acquire(False):
                    try:
                        ended = self.drive(delivery, deadline_ms)
                    finally:
                        self._io.release()
                    if ended:
                        return 0
                    continue                           # forced close: the thread ends the I/O and fails what is left
                if deadline_ms >= LOOKING:
                    gate.acquire()
                    continue
                left_ms = deadline_ms - time_of(self._clock)
                if left_ms <= 0 or not gate.acquire(True, min(left_ms / 1000.0, _TIMEOUT_MAX)):
                    return 0
        finally:
            self._callers.remove(gate)
            delivery.remove_waiter(gate)
        return 0

    cdef bint drive(self, Delivery delivery, int64_t deadline_ms) except -1:
        """Makes passes until the delivery is finished or its time has passed (`_io` held); False when a forced close cut that short."""
        cdef int64_t now_ms
        self._owner = PyThread_get_thread_ident()
        self._awaited = delivery
        self.counters["driven_by_callers"] += 1
        try:
            while delivery.state != DELIVERY_FINISHED and not self._forced:
                now_ms = time_of(self._clock)
                if now_ms >= deadline_ms:
                    return True
                self.guarded_pass(now_ms, deadline_ms - now_ms if deadline_ms < LOOKING else LOOKING)
        except BaseException as error:
            self.put_in_order(error)
            raise
        finally:
            self._awaited = None
            self._owner = None
        return delivery.state == DELIVERY_FINISHED

    cdef int put_in_order(self, error) except -1:
        """After an error that is raised to the driving caller."""
        self._disorder = True
        while self._disorder:
            try:
                self._put_in_order(error)
                break
            except KeyboardInterrupt:                  # again: things are put in order first, then the first one goes on
                pass
        return 0

    def pass_by(self, loop):
        """One pass, which waits for nothing, by a thread that may not wait: that of an event loop.

        Returns:
            What the loop is to `finish_on_loop` when it has left the pass, a list; None when another thread drives, and no pass was made.
        """
        cdef list finished
        if self._forced or not self._io.acquire(False):
            return None
        self._calls += 1
        self._passes_by += 1
        self._passing = loop
        self._finished = []
        self._owner = PyThread_get_thread_ident()
        try:
            self.guarded_pass(time_of(self._clock), 0)
        except BaseException as error:
            self.put_in_order(error)
            loop.call_soon(finish_on_loop, loop, self._finished)
            raise
        finally:
            finished, self._finished = self._finished, None
            self._passing = None
            self._owner = None
            self._io.release()
        if self._callers or self._watching:
            self._leave()
        return finished

    cdef bint finishes(self, loop, list items) except -1:
        """Takes what waits for a delivery in the loop that makes this pass; False for any other loop, or thread."""
        if loop is not self._passing or self._owner is None or self._owner != PyThread_get_thread_ident():
            return False
        self._finished += items
        return True

    def stand_in_line(self, gate not None):
        """Has gate.release() called when another thread may drive, for a thread that cannot wait for that. It looks at `_io` ONCE MORE after it."""
        self._calls += 1
        self._callers.append(gate)

    def leave_line(self, gate not None):
        """Ends what `stand_in_line` began."""
        self._callers.remove(gate)

    cpdef _leave(self):
        """After `_io` was released (or not needed): makes sure that a thread goes on."""
        if self._io.locked():
            return
        if self._callers:
            open_gate(self._callers[0])
        elif self._watching or self.accumulator._incomplete or self.has_transaction_work():
            open_gate(self._nap_gate)

    cpdef bint has_transaction_work(self):
        """True when the next pass has something to do for a transaction."""
        return self._transactional_id is not None and self.transactions.gate.busy
