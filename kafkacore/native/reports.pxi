# The short cut of `produce` in a producer whose delivery callbacks are served by the threads that call `poll` (compat/confluent/producer.py).
#
#   ReportedSend  what a producer holds for it: queues records, counts those without a served report, serves the reports.
#   Reports       the messages of one batch whose callbacks are to be served. It hangs on the batch's Delivery while records are added;
#                 when the batch has its outcome it goes to the queue of those to be served, once for all its records.
#
# Rules
# 1. A message for a callback is made when its record is queued: its offset is the record's number in the batch until it is served.
#    [test_both_ways_report_the_same, test_each_message_has_its_callback_whether_they_are_all_the_same_or_not]
# 2. The GIL is the lock. Between the look at Delivery.state and the addition to its Reports nothing tracked is allocated and no Python code
#    runs, so no record is added to Reports that are being served. Where the outcome came first, the record has Reports of its own.
#    [test_many_threads_produce_while_others_poll, test_the_rest_of_a_batch_comes_before_the_next_batch]
# 3. A callback that raises ends its `serve`: the rest of the batch is first in the queue for the next one, as after librdkafka's yield.
#    [test_the_rest_of_a_batch_comes_before_the_next_batch]
# 4. `waiting` counts a record from its produce() until its callback has returned, or until its batch is served.
#    [test_each_message_has_its_callback_whether_they_are_all_the_same_or_not]
# 5. A latency ends with the report. The fine clock, a tenth of what a report costs, is read when a batch begins to be served, and again
#    whenever the coarse clock has ticked. [test_a_latency_ends_with_its_report]

from libc.stdlib cimport free, realloc

cdef tuple PRODUCE_NAMES = ("topic", "value", "key", "partition", "callback", "on_delivery", "timestamp", "headers")
cdef object AUTO_PARTITION = -1               # both are small numbers, of which there is one object each
cdef object NO_TIMESTAMP = 0


cdef inline object as_bytes(item):
    """What a callback gets of what was given."""
    if item is None or type(item) is bytes:
        return item
    return (<str> item).encode() if type(item) is str else bytes(item)


@cython.final
cdef class Reports:
    """What is to be reported of the records of one batch.

    Attributes:
        count: how many records; not all have a callback.
    """

    cdef readonly Delivery delivery
    cdef readonly int64_t count
    cdef list messages                        # those with a callback; None once it is served
    cdef object callback                      # of all of them, as long as it is the same one
    cdef list callbacks                       # of each message, since there are different ones; else empty
    cdef double *began_s                      # of each message
    cdef Py_ssize_t capacity
    cdef Py_ssize_t at                        # the next one to be served

    def __cinit__(self):
        self.messages = []
        self.callbacks = []

    def __dealloc__(self):
        free(self.began_s)

    cdef int add(self, ConsumerRecord message, report, double began_s) except -1:
        cdef Py_ssize_t n = PyList_GET_SIZE(<PyObject*> self.messages)
        cdef double *grown
        if n == self.capacity:
            grown = <double *> realloc(self.began_s, (2 * n + 8) * sizeof(double))
            if grown == NULL:
                raise MemoryError
            self.began_s = grown
            self.capacity = 2 * n + 8
        self.began_s[n] = began_s
        if n == 0:
            self.callback = report
        elif self.callback is not report:
            while PyList_GET_SIZE(<PyObject*> self.callbacks) < n:
                self.callbacks.append(self.callback)
            self.callbacks.append(report)
        elif PyList_GET_SIZE(<PyObject*> self.callbacks):
            self.callbacks.append(report)
        self.messages.append(message)
        return 0


@cython.final
cdef class ReportedSend:
    """Queues records, and serves what becomes of them when it is asked to.

    Args:
        producer: the engine's.
        message_type: a subclass of ConsumerRecord, made by `recastable`: what callbacks get.
        report: called as f(error, message) for records that name no callback of their own; or None.
        most: records that may wait; more take the general way.
        only_errors: delivered records are not reported.
        failed: failed(error, topic, value, key, headers, partition, timestamp, report) with what the engine raised; returns or raises.
        put: takes Reports that are to be served; called on the thread that drives the I/O.
        error_of: what a callback gets for an error of the engine.

    Attributes:
        waiting: records without a served report.
    """

    cdef ProducerCore producer
    cdef type message_type
    cdef object report, failed, put, error_of, ended_by
    cdef int64_t most
    cdef readonly int64_t waiting
    cdef bint only_errors

    def __init__(self, ProducerCore producer not None, type message_type not None, report, int64_t most, bint only_errors, failed, put,
                 error_of):
        check_recast(message_type, ConsumerRecord)
        self.producer = producer
        self.message_type = message_type
        self.report = report
        self.most = most
        self.only_errors = only_errors
        self.failed = failed
        self.put = put
        self.error_of = error_of
        self.ended_by = self.ended

    @property
    def full(self):
        """True when as many records wait as may."""
        return self.waiting >= self.most

    def append(self, topic, value, key, headers, partition, timestamp_ms, report):
        """Queues a record: the general way.

        Args:
            topic: its name.
            value, key: bytes, str or None.
            headers: pairs of (str, bytes or None), or None.
            partition: number, or None.
            timestamp_ms: epoch milliseconds; None is now.
            report: its callback; None for that of all.

        Raises:
            KafkaError: as the engine's `send`.
        """
        future = self.producer.send_parsed(topic, value, key, headers, partition, timestamp_ms, None)
        self.note(future, self.report if report is None else report, value, key, kc_steady_s())

    def held(self, int64_t count):
        """So many records more wait elsewhere for their topic; below 0: they do no longer."""
        self.waiting += count

    def place(self, TopicQueue queue not None, records not None):
        """Queues the first one of `records`, a deque of `unplaced.HeldRecord`, and takes it out. No Python code of a signal comes in between.

        Raises:
            KafkaError: as the engine's `send`; the record is still there.
        """
        value, key, headers, partition, timestamp_ms, report, began_s, _, _ = records[0]
        future = self.producer._append(queue, value, key, headers, partition, timestamp_ms, None, 0)
        self.note(future, report, value, key, began_s)
        self.waiting -= 1
        records.popleft()

    cdef int note(self, RecordFuture future, report, value, key, double began_s) except -1:
        """Sees to the report of a record that was queued."""
        cdef Delivery d = future.delivery
        cdef Reports batch = None
        cdef ConsumerRecord message = None
        cdef Reports fresh = None
        if report is not None:
            message = ConsumerRecord.__new__(ConsumerRecord)
            message.offset = future.index
            message.timestamp_ms = future.own_timestamp_ms
            message.key = as_bytes(key)
            message.value = as_bytes(value)
            kc_recast(<PyObject*> message, <PlanType*><PyObject*> self.message_type)
            future_look(future)                                # else a failure is for the next flush
        if d.state != DELIVERY_PENDING or d.reports is None:
            fresh = Reports.__new__(Reports)                   # may run the collector: what follows looks once more
        if d.state == DELIVERY_PENDING:
            if d.reports is None:
                d.reports = fresh
            else:
                fresh = None
            batch = <Reports> d.reports
        else:
            if fresh is None:                                  # cannot be: nothing ran in between
                raise InternalError("a batch had its outcome between two steps of one call")
            batch = fresh
        batch.delivery = d
        if message is not None:
            batch.add(message, report, began_s)
        batch.count += 1
        self.waiting += 1
        if fresh is not None:
            d.add_done_callback(batch, self.ended_by)
        return 0

    def ended(self, Reports batch not None):
        """A batch has its outcome; on the thread that drives the I/O."""
        if batch.delivery.reports is batch:
            batch.delivery.reports = None
        if self.only_errors and batch.delivery.plain():
            self.waiting -= batch.count
        else:
            self.put(batch)

    def serve(self, Reports batch not None):
        """Runs the callbacks of a batch, in the order of its records. What one of them raises is raised: the rest is for another call."""
        cdef ConsumerRecord message
        cdef Delivery d = batch.delivery, leaf
        cdef RecordContext created = record_context(d.queue.topic, d.queue.index, -1, 0)
        cdef RecordContext failed = record_context(d.queue.topic, d.queue.index, -1, -1)
        cdef RecordContext appended = None                     # the same, where the broker's time counts
        cdef double now_s = kc_steady_s()
        cdef int64_t ticks = kc_steady_ms(), ticked
        cdef int32_t index
        cdef Py_ssize_t at
        report = batch.callback
        while batch.at < PyList_GET_SIZE(<PyObject*> batch.messages):
            at = batch.at
            message = <ConsumerRecord> batch.messages[at]
            batch.messages[at] = None
            if PyList_GET_SIZE(<PyObject*> batch.callbacks):
                report = batch.callbacks[at]
                batch.callbacks[at] = None
            batch.at = at + 1
            index = <int32_t> message.offset
            leaf = d if d.parts is None else leaf_of(d, &index)
            error = None if leaf.error is None and leaf.record_errors is None else error_of(leaf, index)
            ticked = kc_steady_ms()
            if ticked != ticks:
                ticks = ticked
                now_s = kc_steady_s()
            message.headers = now_s - batch.began_s[at]
            message.context = created
            try:
                if error is None:
                    message.offset = -1 if leaf.base_offset < 0 else leaf.base_offset + index
                    if leaf.log_append_time_ms >= 0:
                        if appended is None:
                            appended = record_context(d.queue.topic, d.queue.index, -1, 1)
                        message.context = appended
                        message.timestamp_ms = leaf.log_append_time_ms
                    if not self.only_errors:
                        report(None, message)
                else:
                    message.context = failed
                    message.offset = message.timestamp_ms = -1
                    notes_of(message).error = failure = self.error_of(error)
                    report(failure, message)
            finally:
                batch.count -= 1
                self.waiting -= 1
        batch.callback = None
        self.waiting -= batch.count                            # those without a callback
        batch.count = 0


cdef extern from *:
    """
    /* Whether a call can take the short cut. Puts None where the partitioner and the clock decide; borrows everything. */
    static inline int kc_is_plain_or_none(PyObject *o) {
        return o == Py_None || PyBytes_CheckExact(o) || PyUnicode_CheckExact(o);
    }
    static inline int kc_produce_plain(PyObject **given, PyObject *auto_partition, PyObject *no_timestamp) {
        if (given[7] != Py_None || !PyUnicode_CheckExact(given[0]) || !kc_is_plain_or_none(given[1]) || !kc_is_plain_or_none(given[2])
                || !PyLong_CheckExact(given[3]) || !PyLong_CheckExact(given[6]))
            return 0;
        if (given[3] == auto_partition)
            given[3] = Py_None;
        if (given[6] == no_timestamp)
            given[6] = Py_None;
        return 1;
    }
    static inline PyObject *kc_send_borrowed(PyObject *producer, PyObject **given) {
        return kc_send_parsed(producer, given[0], given[1], given[2], Py_None, given[3], given[6], Py_None);
    }
    """
    bint kc_produce_plain(PyObject **given, PyObject *auto_partition, PyObject *no_timestamp) noexcept
    PyObject *kc_send_borrowed(PyObject *producer, PyObject **given) noexcept


cdef object reported_send(object function, object producer, object held, PyObject **given):
    # References are borrowed, since counting those of None is a good part of what a call costs.
    cdef ReportedSend sends = <ReportedSend> held
    cdef PyObject *report = given[4] if given[4] != PLAN_NONE else given[5] if given[5] != PLAN_NONE else <PyObject *> sends.report
    cdef PyObject *made
    cdef RecordFuture future
    if sends.waiting >= sends.most or not kc_produce_plain(given, <PyObject *> AUTO_PARTITION, <PyObject *> NO_TIMESTAMP):
        return NotImplemented
    made = kc_send_borrowed(<PyObject *> sends.producer, given)
    if made == NULL:
        return reported_failed(sends, given, report)
    future = <RecordFuture> <object> made
    plan_xdecref(made)
    if report == PLAN_NONE and future.delivery.state == DELIVERY_PENDING and future.delivery.reports is not None:
        (<Reports> future.delivery.reports).count += 1         # as `note` does it
        sends.waiting += 1
    else:
        sends.note(future, <object> report, <object> given[1], <object> given[2], 0.0 if report == PLAN_NONE else kc_steady_s())
    return None


cdef object reported_failed(ReportedSend sends, PyObject **given, PyObject *report):
    try:
        kc_raised()
    except Exception as error:
        sends.failed(error, <object> given[0], <object> given[1], <object> given[2], None, <object> given[3], <object> given[6], <object> report)
    return None
