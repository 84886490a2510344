# What clients measure, once per request, answer or batch: sums and maxima of a moving window, as Kafka's metrics give them. Nothing is computed
# before it is read, and reading takes no lock: a method here runs no Python code, so the GIL makes each call one step.
#
# A SampledStat holds two samples of 30 s, as Kafka's do with metrics.num.samples and metrics.sample.window.ms. A value goes into the current
# one; when that is 30 s old the next value begins another. A sample counts until 60 s after it began.
#
# Latencies are also counted by size: 8 buckets for each power of two, so that a percentile is at most 1/8 too high.
#
# Source: Kafka's SampledStat, Rate, Max, Avg.

from libc.math cimport NAN
from libc.stdlib cimport calloc as stat_calloc, free as stat_free

cdef enum:
    STAT_WINDOW_MS = 30_000
    STAT_SAMPLES = 2
    STAT_BUCKETS = 144            # 0..7 one by one, then 8 for each power of two; the last takes all from 15 * 2^16 on (16 minutes in ms)


cdef struct StatSample:
    int64_t begin_ms
    int64_t count
    double sum
    double max


cdef inline int stat_bucket(double given) noexcept nogil:
    cdef int power = 3
    cdef int64_t value
    if given >= 1 << 20:
        return STAT_BUCKETS - 1
    value = <int64_t> given if given > 0 else 0
    if value < 8:
        return <int> value
    while value >> (power + 1):
        power += 1
    return (power - 3) * 8 + 8 + <int> (value >> (power - 3) & 7)


cdef inline int64_t stat_bucket_end(int index) noexcept nogil:
    """The largest value in a bucket."""
    cdef int power
    if index < 8:
        return index
    power = (index - 8) // 8 + 3
    return ((<int64_t> ((index - 8) % 8 + 9)) << (power - 3)) - 1


@cython.final
cdef class SampledStat:
    """Values of the last 30 to 60 s: average, maximum, rate; and how many there were in all.

    Args:
        percentiles: count the values by size as well (1.2 kB); for latencies in ms.

    Attributes:
        count: values since the start.
        total: their sum.
        last_ms: time of the last `mark`, -1 before the first.

    Source: Kafka's SampledStat.
    """

    cdef StatSample samples[STAT_SAMPLES]
    cdef int at
    cdef int32_t *buckets         # STAT_BUCKETS for each sample
    cdef readonly int64_t count
    cdef readonly double total
    cdef readonly int64_t last_ms

    def __cinit__(self, bint percentiles=False):
        self.last_ms = -1
        if percentiles:
            self.buckets = <int32_t *> stat_calloc(STAT_SAMPLES * STAT_BUCKETS, sizeof(int32_t))
            if self.buckets == NULL:
                raise MemoryError

    def __dealloc__(self):
        stat_free(self.buckets)

    cdef void put(self, double value, int64_t now_ms) noexcept:
        cdef StatSample *sample = &self.samples[self.at]
        if sample.count and now_ms - sample.begin_ms >= STAT_WINDOW_MS:
            self.at = (self.at + 1) % STAT_SAMPLES
            sample = &self.samples[self.at]
            sample.count = 0
        if not sample.count:
            sample.begin_ms = now_ms
            sample.sum = 0
            sample.max = value
            if self.buckets != NULL:
                memset(self.buckets + self.at * STAT_BUCKETS, 0, STAT_BUCKETS * sizeof(int32_t))
        sample.count += 1
        sample.sum += value
        if value > sample.max:
            sample.max = value
        if self.buckets != NULL:
            self.buckets[self.at * STAT_BUCKETS + stat_bucket(value)] += 1
        self.count += 1
        self.total += value

    def record(self, double value, int64_t now_ms):
        """Takes a value in."""
        self.put(value, now_ms)

    def mark(self, int64_t now_ms):
        """Takes in how long ago the last mark was; the first only begins."""
        if self.last_ms >= 0:
            self.put(now_ms - self.last_ms, now_ms)
        self.last_ms = now_ms

    cdef StatSample window(self, int64_t now_ms) noexcept:
        """The samples that count, as one; begin_ms is that of the oldest."""
        cdef StatSample found
        cdef StatSample *sample
        cdef int i
        found.begin_ms, found.count, found.sum, found.max = now_ms, 0, 0, 0
        for i in range(STAT_SAMPLES):
            sample = &self.samples[i]
            if not sample.count or now_ms - sample.begin_ms >= STAT_SAMPLES * STAT_WINDOW_MS:
                continue
            if not found.count or sample.max > found.max:
                found.max = sample.max
            found.count += sample.count
            found.sum += sample.sum
            found.begin_ms = min(found.begin_ms, sample.begin_ms)
        return found

    def avg(self, int64_t now_ms):
        """The average of the window, NaN without values."""
        cdef StatSample found = self.window(now_ms)
        return found.sum / found.count if found.count else NAN

    def max(self, int64_t now_ms):
        """The largest value of the window, NaN without values."""
        cdef StatSample found = self.window(now_ms)
        return found.max if found.count else NAN

    def rate(self, int64_t now_ms):
        """The sum of the values per second. The window counts as 30 s while it is shorter: a first value makes no peak."""
        cdef StatSample found = self.window(now_ms)
        return found.sum * 1000 / max(now_ms - found.begin_ms, <int64_t> STAT_WINDOW_MS)

    def count_rate(self, int64_t now_ms):
        """How many values per second; see `rate`."""
        cdef StatSample found = self.window(now_ms)
        return found.count * 1000.0 / max(now_ms - found.begin_ms, <int64_t> STAT_WINDOW_MS)

    def percentile(self, double part, int64_t now_ms):
        """The value that `part` (0 to 1) of the window's values do not exceed, at most 1/8 too high; NaN without values.

        Raises:
            ValueError: values are not counted by size here.
        """
        cdef StatSample found = self.window(now_ms)
        cdef int64_t left, counted
        cdef int index, i
        if self.buckets == NULL:
            raise ValueError("this SampledStat was made without percentiles")
        if not found.count:
            return NAN
        left = max(<int64_t> 1, <int64_t> (part * found.count + 0.999999))
        for index in range(STAT_BUCKETS):
            counted = 0
            for i in range(STAT_SAMPLES):
                if self.samples[i].count and now_ms - self.samples[i].begin_ms < STAT_SAMPLES * STAT_WINDOW_MS:
                    counted += self.buckets[i * STAT_BUCKETS + index]
            left -= counted
            if left <= 0 and index < STAT_BUCKETS - 1:
                return min(<double> stat_bucket_end(index), found.max)
        return found.max


@cython.final
cdef class NodeStats:
    """What goes to and comes from one node; outlives its connections.

    Attributes:
        latency_ms: from a request to its answer.
        throttle_ms: the throttle times in answers, 0 included.
        sent_bytes: per request.
        received_bytes: per answer.
        connections_opened, connections_closed: so far; their difference is open.
        failed_authentications: attempts that the node refused.
    """

    cdef readonly SampledStat latency_ms
    cdef readonly SampledStat throttle_ms
    cdef readonly SampledStat sent_bytes
    cdef readonly SampledStat received_bytes
    cdef readonly SampledStat opened
    cdef public int64_t connections_closed
    cdef public int64_t failed_authentications

    def __cinit__(self):
        self.latency_ms = SampledStat(True)
        self.throttle_ms = SampledStat()
        self.sent_bytes = SampledStat()
        self.received_bytes = SampledStat()
        self.opened = SampledStat()

    @property
    def connections_opened(self):
        return self.opened.count


@cython.final
cdef class ProducerStats:
    """What a producer measures, beside the counters of its Sender.

    Attributes:
        queue_time_ms: per batch, from its first record until it was taken out to be sent.
        batch_bytes: per batch as sent, compressed if it is.
        compression: per batch, bytes sent / bytes before compression.
        records: per request.
        latency_ms, throttle_ms: per answer to a Produce.
        retried, failed: records, per batch that is sent again or given up.
        splits: batches that were too large.
    """

    cdef readonly SampledStat queue_time_ms
    cdef readonly SampledStat batch_bytes
    cdef readonly SampledStat compression
    cdef readonly SampledStat records
    cdef readonly SampledStat latency_ms
    cdef readonly SampledStat throttle_ms
    cdef readonly SampledStat retried
    cdef readonly SampledStat failed
    cdef readonly SampledStat splits

    def __cinit__(self):
        self.queue_time_ms = SampledStat()
        self.batch_bytes = SampledStat()
        self.compression = SampledStat()
        self.records = SampledStat()
        self.latency_ms = SampledStat(True)
        self.throttle_ms = SampledStat()
        self.retried = SampledStat()
        self.failed = SampledStat()
        self.splits = SampledStat()


@cython.final
cdef class TopicStats:
    """What a producer sent to one topic.

    Attributes:
        records, bytes: per batch sent, bytes compressed if they are.
        uncompressed_bytes: the same batches before compression, since the start.
        retried, failed: records.
    """

    cdef readonly SampledStat records
    cdef readonly SampledStat bytes
    cdef readonly int64_t uncompressed_bytes
    cdef readonly SampledStat retried
    cdef readonly SampledStat failed

    def __cinit__(self):
        self.records = SampledStat()
        self.bytes = SampledStat()
        self.retried = SampledStat()
        self.failed = SampledStat()
