# What a transaction asks of each batch and of send(): may a record be taken, may a batch leave, is there something for the engine to do.
#
# `at` is the whole state of the transaction, a tuple that is exchanged, never changed: a step that Ctrl+C cuts short has happened or has not.
# producer/transactions.py makes the tuples (`Standing`); here only its first three fields are read.

cdef enum:
    STANDING_PHASE = 0
    STANDING_ADDS_BY_WRITING = 1              # transaction.version 2: Produce itself takes partitions into the transaction
    STANDING_ADDED = 2                        # the PartitionQueues the transaction has

cdef object PHASE_OPEN = None
cdef object PHASE_COMMITTING = None


def _bind_transaction_phases(is_open, committing):
    """Gives the gate the two phases in which batches may leave; called once by kafkacore.producer.transactions."""
    global PHASE_OPEN, PHASE_COMMITTING
    PHASE_OPEN, PHASE_COMMITTING = is_open, committing


@cython.final
cdef class TransactionGate:
    """The open transaction as batches see it."""

    cdef object _at                           # transactions.Standing
    cdef public dict wanted                   # partitions with batches ready that the transaction does not have yet, in order
    cdef public object refused                # the error for the next call: send() has refused a record of the transaction; None
    cdef public bint busy                     # the engine wants to be asked in the next pass
    cdef public bint holds                    # transaction.version 2: batches wait until the markers of the last transaction are written
    cdef public bint held                     # a batch waits for that
    cdef public int64_t first_answer_ms       # how long the first answer to Produce in the transaction took, -1 before it
    cdef bint fresh                           # `wanted` has grown, or a batch was held back, since the last `take_fresh`

    def __cinit__(self, at):
        self.at = at
        self.wanted = {}
        self.busy = True
        self.first_answer_ms = -1

    @property
    def at(self):
        """Where the transaction stands (transactions.Standing)."""
        return self._at

    @at.setter
    def at(self, at):
        if not isinstance(at, tuple) or len(at) <= STANDING_ADDED or type(at[STANDING_ADDED]) is not set:
            raise TypeError(f"{at!r} is no standing of a transaction")
        self._at = at

    cdef inline bint is_open(self):
        """True when send() may take records."""
        return (<tuple> self._at)[STANDING_PHASE] is PHASE_OPEN and self.refused is None

    @property
    def takes_records(self):
        """True when send() may take records."""
        return self.is_open()

    cdef inline void batches_done(self):
        """No batch is left without an outcome: a commit may have waited for that."""
        if self.is_committing():
            self.busy = True

    cdef inline bint is_committing(self):
        return (<tuple> self._at)[STANDING_PHASE] is PHASE_COMMITTING

    cdef inline bint adds_by_writing(self):
        return (<tuple> self._at)[STANDING_ADDS_BY_WRITING]

    cdef bint lets(self, PartitionQueue queue) except -1:
        """True when a batch of this partition may leave now, and then does; else the engine hears what is missing."""
        cdef tuple at = <tuple> self._at
        cdef set added = <set> at[STANDING_ADDED]
        if at[STANDING_PHASE] is not PHASE_OPEN and at[STANDING_PHASE] is not PHASE_COMMITTING:
            return False
        if queue in added:
            return True
        if at[STANDING_ADDS_BY_WRITING]:
            if self.holds:
                if not self.held:
                    self.held = self.fresh = self.busy = True
                return False
            added.add(queue)
            return True
        if queue not in self.wanted:
            self.wanted[queue] = None
            self.fresh = True
            self.busy = True
        return False

    cdef bint take_fresh(self):
        cdef bint fresh = self.fresh
        self.fresh = False
        return fresh
