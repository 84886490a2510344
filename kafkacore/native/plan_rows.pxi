# What replaces structs in a message that is to be encoded: none are made.
#
# NumberRow: a request may name thousands of partitions that differ in a few numbers. A row is in a message for such a struct: it keeps the
# numbers that vary, every other field has its default. Which bytes they become is known to the plan alone, so a row is written in every version
# that the struct has.
#
# PlanRows: stands for a whole list of structs, with fields of any type that are kept elsewhere.

cdef enum:
    ROW_SLOTS = 16                        # fields that the struct may have
    ROW_NUMBERS = 4                       # of which a row keeps the values

@cython.final
cdef class RowKind:
    """What rows of one kind stand for.

    Args:
        struct: The struct, whose fields have a fixed size.
        numbers: The fields that a row keeps, in the order of its values.
    """

    cdef PlanType* cls
    cdef object keep
    cdef signed char[ROW_SLOTS] number    # per slot the place among the values, -1 for the default

    def __cinit__(self, struct, tuple numbers not None):
        cdef Py_ssize_t i
        cdef list names = list(struct.FIELDS)
        if len(names) > ROW_SLOTS or len(numbers) > ROW_NUMBERS:
            raise InternalError(f"{struct!r} has more fields than a row")
        for i in range(ROW_SLOTS):
            self.number[i] = -1
        for i in range(len(numbers)):
            self.number[names.index(numbers[i])] = <signed char>i
        self.keep = struct
        self.cls = <PlanType*><PyObject*>struct


cdef class NumberRow:
    """A struct of numbers in a message that is to be encoded."""

    cdef RowKind kind
    cdef int64_t[ROW_NUMBERS] values


cdef inline bint row_stands_for(PlanCode* code, PyObject* value):
    """Whether it is a row of the struct."""
    return isinstance(<object>value, NumberRow) and (<NumberRow><object>value).kind is not None \
        and (<NumberRow><object>value).kind.cls == code.cls


cdef Py_ssize_t row_measure(PlanCode* code, NumberRow row, PlanWalk* w, int level) except -1:
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops + code.ntagged + code.nabsent
    while op < stop:
        if op.type >= W_STRING or (op >= code.ops + code.nops and row.kind.number[op.slot] >= 0 and not op.ignorable):
            w.steps[level].op = op
            w.steps[level].index = -1
            walk_misuse(w, level, "not a field that a row can have")
        op += 1
    return code.fixed + (1 if code.ntagged else 0)


cdef int row_write(PlanCode* code, NumberRow row, PlanWalk* w, int level) except -1:
    """Writes the fields in the order of the plan; tagged ones have their default and are left out."""
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
    cdef int number
    cdef int64_t value
    walk_room(w, level, code.fixed + (1 if code.ntagged else 0))
    while op < stop:
        number = row.kind.number[op.slot]
        w.steps[level].op = op
        w.steps[level].index = -1
        if number < 0:
            walk_write_fixed(op.type, op.default, w, level)
        elif op.type == W_INT64:
            kc_put64(w.out, row.values[number])
            w.out += 8
        elif op.type == W_INT32:
            value = row.values[number]
            if value != <int32_t>value:
                walk_misuse(w, level, f"{value} is outside {-0x80000000}..{0x7FFFFFFF}")
            kc_put32(w.out, <int32_t>value)
            w.out += 4
        else:
            walk_misuse(w, level, "not a number that a row can have")
        op += 1
    if code.flexible:
        w.out[0] = 0
        w.out += 1
    return 0


cdef enum:
    PLAN_ROW_SLOTS = 16           # fields that a struct of PlanRows may have


cdef class PlanRows:
    """An array of structs for which no objects are made: the encoder asks for the fields of one row after the other.

    To Python it is a sequence that makes the structs. Subclasses give `fill`, and call `rows_of` before they are used.
    """

    cdef PlanType* kind                   # the struct's class, which its module keeps
    cdef Py_ssize_t nslots
    cdef readonly Py_ssize_t count

    cdef int rows_of(self, cls, Py_ssize_t count) except -1:
        """Says which struct the rows are, and how many there are."""
        self.nslots = len(cls.FIELDS)
        if self.nslots > PLAN_ROW_SLOTS:
            raise InternalError(f"{cls.__name__} has more than {PLAN_ROW_SLOTS} fields")
        self.kind, self.count = <PlanType*><PyObject*>cls, count
        return 0

    cdef int fill(self, Py_ssize_t i, PyObject** slots) except -1:
        """Puts the fields of row i into their slots: borrowed references, good until the next call."""
        raise NotImplementedError

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        cdef PyObject* slots[PLAN_ROW_SLOTS]
        cdef Py_ssize_t at
        cdef PyObject* made
        if not 0 <= i < self.count:
            raise IndexError(f"row {i} of {self.count}")
        self.fill(i, slots)
        made = plan_new_tuple(self.kind, self.nslots)
        struct = <object>made
        plan_xdecref(made)
        for at in range(self.nslots):
            value = <object>slots[at]
            if isinstance(value, PlanRows):
                value = list(value)       # may be filled with the next row's
            plan_incref(<PyObject*>value)
            plan_tuple_set(made, at, <PyObject*>value)
        return struct
