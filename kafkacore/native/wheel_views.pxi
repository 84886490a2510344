# Looking into a wheel: its levels and buckets as the fields of Kafka's classes.
#
# A view is a wheel and two numbers. It keeps the wheel alive, levels are never taken away, and nothing is kept of what a view has read: so
# it may be read at any time, and always shows the present.


cdef tuple buckets_of(TimingWheel wheel, int32_t level):
    return tuple([TimerTaskListView(wheel, level, slot) for slot in range(wheel.wheel.size)])


cdef object overflow_of(TimingWheel wheel, int32_t level):
    return OverflowWheel(wheel, level) if level < wheel.wheel.levels else None


cdef tuple queue_of(TimingWheel wheel):
    cdef int32_t level, slot
    found = []
    for level in range(wheel.wheel.levels):
        for slot in range(wheel.wheel.size):
            if wheel.wheel.nodes[wheel.wheel.level[level].first + slot].expiration != KW_IDLE:
                found.append(TimerTaskListView(wheel, level, slot))
    found.sort(key=lambda bucket: bucket.expiration)
    return tuple(found)


cdef int add_overflow(TimingWheel wheel, int32_t level) except -1:
    """Makes a level, unless it is there."""
    cdef kw_level *below = &wheel.wheel.level[level - 1]
    if level < wheel.wheel.levels:
        return 0
    if level == KW_MAX_LEVELS or below.interval > KW_FOREVER // wheel.wheel.size:
        raise ValueError(f"{wheel!r} has all the levels that there are times for")
    if kw_new_level(&wheel.wheel, below.interval, below.now) < 0:
        raise MemoryError
    return 0


@cython.final
@cython.no_gc_clear                                       # a view without a wheel is never seen; wheels break the cycles
cdef class OverflowWheel:
    """A level of a `TimingWheel` above the first, as `TimingWheel.overflow_wheel` gives it. Equal to every other view of the level.

    Args:
        wheel: the `TimingWheel`.
        level: 1 for the first overflow wheel.

    Raises:
        ValueError: the wheel has no such level yet.

    Source: org.apache.kafka.server.util.timer.TimingWheel.
    """
    cdef TimingWheel wheel
    cdef int32_t level

    def __cinit__(self, TimingWheel wheel not None, int32_t level):
        if not 1 <= level < wheel.wheel.levels:
            raise ValueError(f"{wheel!r} has no level {level}")
        self.wheel = wheel
        self.level = level

    @property
    def tick_ms(self):
        """Milliseconds of a tick: the interval of the level below."""
        return self.wheel.wheel.level[self.level].tick

    @property
    def wheel_size(self):
        """Buckets of a level."""
        return self.wheel.wheel.size

    @property
    def interval(self):
        """Milliseconds that the level covers: tick_ms x wheel_size."""
        return self.wheel.wheel.level[self.level].interval

    @property
    def current_time(self):
        """The level's time in milliseconds: the start of its current tick."""
        return self.wheel.wheel.level[self.level].now

    @property
    def start_ms(self):
        """The time of the level below when this one was made."""
        return self.wheel.wheel.level[self.level].start

    @property
    def task_counter(self):
        """The `TaskCounter` of all levels."""
        return self.wheel.counter

    @property
    def buckets(self):
        """The buckets of the level, a `TimerTaskListView` each."""
        return buckets_of(self.wheel, self.level)

    @property
    def overflow_wheel(self):
        """The next level; None while no timer has needed it."""
        return overflow_of(self.wheel, self.level + 1)

    @property
    def queue(self):
        """The delay queue of all levels, as `TimingWheel.queue`."""
        return queue_of(self.wheel)

    def add_overflow_wheel(self):
        """Makes the next level, as `TimingWheel.add_overflow_wheel`."""
        add_overflow(self.wheel, self.level + 1)

    def __eq__(self, other):
        if not isinstance(other, OverflowWheel):
            return NotImplemented
        return self.wheel is (<OverflowWheel>other).wheel and self.level == (<OverflowWheel>other).level

    def __hash__(self):
        return hash((id(self.wheel), self.level))

    def __repr__(self):
        return f"<OverflowWheel {self.tick_ms} ms x {self.wheel_size} of {self.wheel!r}>"


@cython.final
@cython.no_gc_clear                                       # as above
cdef class TimerTaskListView:
    """A bucket of a `TimingWheel`, to be read: how many timers it holds, which, and when it is due. Equal to every other view of it.

    Args:
        wheel: the `TimingWheel`.
        level: 0 for the wheel itself, 1 for its first overflow wheel.
        slot: of the level's buckets.

    Raises:
        ValueError: the wheel has no such bucket yet.

    Source: org.apache.kafka.server.util.timer.TimerTaskList.
    """
    cdef TimingWheel wheel
    cdef int32_t level
    cdef int32_t slot

    def __cinit__(self, TimingWheel wheel not None, int32_t level, int32_t slot):
        if not (0 <= level < wheel.wheel.levels and 0 <= slot < wheel.wheel.size):
            raise ValueError(f"{wheel!r} has no bucket {slot} on level {level}")
        self.wheel = wheel
        self.level = level
        self.slot = slot

    cdef int32_t root(self):
        return self.wheel.wheel.level[self.level].first + self.slot

    @property
    def expiration(self):
        """When the bucket is due, in milliseconds: the start of its tick; -1 when it is idle."""
        cdef int64_t expiration = self.wheel.wheel.nodes[self.root()].expiration
        return -1 if expiration == KW_IDLE else expiration

    def get_expiration(self):
        """As `expiration`."""
        return self.expiration

    def get_delay_ms(self, now_ms):
        """Milliseconds until the bucket is due, not below 0."""
        return max(self.expiration - now_ms, 0)

    @property
    def task_counter(self):
        """The `TaskCounter` of the whole wheel."""
        return self.wheel.counter

    def __len__(self):
        cdef int32_t root = self.root(), at = self.wheel.wheel.nodes[root].next
        cdef Py_ssize_t count = 0
        while at != root:
            count += 1
            at = self.wheel.wheel.nodes[at].next
        return count

    def __iter__(self):
        """What it holds as it stands now, first first: the entry of a task; the handle of a timer of `call_at` or `add_many`."""
        return iter(self.wheel.timers_of(self.root()))

    def __eq__(self, other):
        if not isinstance(other, TimerTaskListView):
            return NotImplemented
        return self.wheel is (<TimerTaskListView>other).wheel and self.root() == (<TimerTaskListView>other).root()

    def __hash__(self):
        return hash((id(self.wheel), self.level, self.slot))

    def __repr__(self):
        return f"<TimerTaskListView {self.slot} of level {self.level}: {len(self)} at {self.expiration} ms>"
