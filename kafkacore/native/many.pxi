# Where the records of one send_many call went, and what became of them: runs of records that lie one after the other in one batch.

from libc.stdlib cimport realloc

cdef struct ManyRun:
    int64_t first             # number of its first record in the call; it ends where the next one begins
    int32_t slot              # of its delivery
    int32_t index             # of that record in the delivery

_many_calls = 0


@cython.final
cdef class ManyProgress:
    """The records of one send_many call; the first `done` of them are in batches.

    Offsets, partitions and errors are worked out when they are asked for, which is after every delivery is resolved.
    """

    cdef readonly list deliveries
    cdef readonly int64_t done
    cdef ManyRun* runs
    cdef Py_ssize_t count, capacity           # of runs
    cdef int32_t used                         # slots that have a run
    cdef int64_t token

    def __cinit__(self):
        global _many_calls
        _many_calls += 1
        self.token = _many_calls
        self.deliveries = []

    def __dealloc__(self):
        free(self.runs)

    def add(self, RecordFuture future not None):
        """Notes the next record by its future."""
        self.note(self.slot_of(future.delivery), future.index, 1)

    cdef int32_t slot_of(self, Delivery delivery) except -1:
        """The delivery's number here, with room for a run of it. Allocates nothing tracked: rule 1 of append.pxi holds around it."""
        cdef ManyRun* grown
        if self.count == self.capacity:
            grown = <ManyRun*> realloc(self.runs, (self.capacity + self.capacity // 2 + 8) * sizeof(ManyRun))
            if grown == NULL:
                raise MemoryError
            self.runs = grown
            self.capacity += self.capacity // 2 + 8
        if delivery.many_token != self.token:              # a delivery stamped over by another call is listed twice, which does no harm
            self.deliveries.append(delivery)
            delivery.many_token = self.token
            delivery.many_slot = <int32_t> len(self.deliveries) - 1
        return delivery.many_slot

    cdef void note(self, int32_t slot, int32_t index, int64_t records) noexcept:
        """The next `records` are those from `index` on in the delivery of `slot`."""
        cdef ManyRun* last = &self.runs[self.count - 1]
        if not self.count or last.slot != slot or last.index + (self.done - last.first) != index:
            self.runs[self.count] = ManyRun(self.done, slot, index)
            self.count += 1
        self.done += records
        if slot >= self.used:
            self.used = slot + 1

    cdef int unused(self, int32_t slot) except -1:
        """The batch took nothing: no future waits for its delivery, if it was not listed before."""
        if slot >= self.used:
            (<Delivery> self.deliveries.pop()).many_token = 0
        return 0

    cdef inline int64_t end_of(self, Py_ssize_t run) noexcept:
        return self.done if run == self.count - 1 else self.runs[run + 1].first

    def observe(self):
        """Notes in the deliveries that the caller looks at these records' outcome."""
        cdef Py_ssize_t run
        for run in range(self.count):
            (<Delivery> self.deliveries[self.runs[run].slot]).looked_at += <int32_t> (self.end_of(run) - self.runs[run].first)

    def errors(self):
        """{record number: KafkaError} of the failed records, ascending."""
        cdef dict failed = {}
        cdef bint all_well = True
        cdef Py_ssize_t run
        cdef int64_t at
        cdef int32_t index
        cdef Delivery delivery
        for delivery in self.deliveries:
            all_well = all_well and delivery.plain()
        if all_well:
            return failed
        for run in range(self.count):
            delivery = <Delivery> self.deliveries[self.runs[run].slot]
            if delivery.plain():
                continue
            for at in range(self.runs[run].first, self.end_of(run)):
                index = self.runs[run].index + <int32_t> (at - self.runs[run].first)
                error = error_of(leaf_of(delivery, &index), index)
                if error is not None:
                    failed[at] = error
        return failed

    def offsets(self):
        """int64 array: the offset of every record, -1 where it failed or is unknown."""
        import numpy
        out = numpy.empty(self.done, numpy.int64)
        cdef int64_t[::1] offset = out
        cdef Py_ssize_t run
        cdef int64_t at
        cdef int32_t index
        cdef Delivery delivery, leaf
        for run in range(self.count):
            delivery = <Delivery> self.deliveries[self.runs[run].slot]
            if delivery.plain():
                for at in range(self.runs[run].first, self.end_of(run)):
                    offset[at] = -1 if delivery.base_offset < 0 else delivery.base_offset + self.runs[run].index + at - self.runs[run].first
                continue
            for at in range(self.runs[run].first, self.end_of(run)):
                index = self.runs[run].index + <int32_t> (at - self.runs[run].first)
                leaf = leaf_of(delivery, &index)
                offset[at] = -1 if leaf.base_offset < 0 or error_of(leaf, index) is not None else leaf.base_offset + index
        return out

    def stretches(self):
        """{partition: (first offset, offset after the last)}; None if a record failed or has no offset: then look at `offsets`."""
        cdef dict found = {}
        cdef Py_ssize_t run
        cdef int32_t slot
        cdef int64_t first, end
        cdef Delivery delivery
        cdef int32_t[::1] at                               # of each slot: index of its first record, and after its last
        if not self.used:
            return found
        import numpy
        at = numpy.full(2 * self.used, -1, numpy.int32)
        for run in range(self.count):
            slot = self.runs[run].slot
            if at[2 * slot] < 0:
                at[2 * slot] = self.runs[run].index
            at[2 * slot + 1] = self.runs[run].index + <int32_t> (self.end_of(run) - self.runs[run].first)
        for slot in range(self.used):
            delivery = <Delivery> self.deliveries[slot]
            if not delivery.plain() or delivery.base_offset < 0:
                return None
            first, end = delivery.base_offset + at[2 * slot], delivery.base_offset + at[2 * slot + 1]
            known = found.get(delivery.queue.index)
            found[delivery.queue.index] = (first, end) if known is None else (min(first, known[0]), max(end, known[1]))
        return found

    def partitions(self):
        """int32 array: the partition of every record."""
        import numpy
        out = numpy.empty(self.done, numpy.int32)
        cdef int32_t[::1] partition = out
        cdef Py_ssize_t run
        cdef int64_t at
        cdef int32_t number
        for run in range(self.count):
            number = (<Delivery> self.deliveries[self.runs[run].slot]).queue.index
            for at in range(self.runs[run].first, self.end_of(run)):
                partition[at] = number
        return out
