# Which partition comes next for records that name none and have no key.
#
# Keyed records (the hash of the key bytes, modulo the partition count) are placed in append.pxi. Records without a key stick
# to one partition until it has had batch.size bytes, so that batches fill; then StickyPartitioner is asked for the next partition.
#
# Rules
# 1. A choice does not get slower with the partitions of the topic. Which of them are available is kept in the TopicQueue until the cluster
#    says something else; how long a queue is, is read off the queue that was drawn.
#    [test_choices_walk_the_partitions_once_per_view_of_the_topic, test_what_is_available_follows_the_cluster_and_slow_brokers]
# 2. Weights without a table: a partition drawn uniformly is kept with the probability its weight / the largest weight, else another is
#    drawn. That is exactly the weighted draw, and takes 1 + (mean queue length) draws at most in the mean, which buffer.memory bounds.
#    Few partitions with long queues would need many draws: after as many as there are partitions they are weighed one by one.
#    [test_the_weight_of_a_partition_is_the_longest_queue_plus_one_minus_its_own, test_choices_among_many_loaded_partitions_take_few_draws,
#    test_few_partitions_with_long_queues_are_weighed_after_a_bounded_number_of_draws]
# 3. `TopicQueue.longest` may be too large until the Sender's next pass: then the weights are flatter for that long. Too small it is only
#    until a longer queue is drawn. [test_the_longest_queue_is_known_at_once_and_forgotten_with_the_next_pass]


@cython.final
cdef class StickyPartitioner:
    """Chooses the next sticky partition of a topic: uniformly at random over the available partitions, or, adaptively, with the weight
    (longest queue + 1 - own queue), in batches, so that a slow broker gets fewer records. The longest queue still gets a little.

    Args:
        snapshot: gives the cluster as known now.
        adaptive: weigh partitions by the length of their queues.
        unavailable: gives the ids of brokers that take no batches for partitioner_availability_timeout_ms; None = there are never any.
        rack: partitions whose leader is in this rack come first; None = they are all alike.
        rng: source of randomness.

    Source: KIP-480, KIP-794, KIP-1123; org.apache.kafka.clients.producer.internals.BuiltInPartitioner.
    """

    cdef object _snapshot
    cdef bint _adaptive
    cdef object _unavailable
    cdef str _rack
    cdef object _random

    def __init__(self, snapshot, *, bint adaptive, unavailable=None, str rack=None, rng=None):
        from random import Random
        self._snapshot = snapshot
        self._adaptive = adaptive
        self._unavailable = unavailable
        self._rack = rack
        self._random = (rng or Random()).random

    def __call__(self, TopicQueue topic not None):
        """The next partition for `topic`."""
        cdef list queues = self.candidates(topic)
        cdef PartitionQueue queue
        cdef Py_ssize_t n = len(queues), size, i
        cdef double at
        if n == 1:
            return queues[0]
        for _ in range(n):
            at = <double> self._random() * n
            i = min(<Py_ssize_t> at, n - 1)
            queue = <PartitionQueue> queues[i]
            size = len(queue.batches) if self._adaptive else 0
            if size > topic.longest:
                topic.longest = size                   # the weights are others: draw again
            elif size == 0 or (at - i) * (topic.longest + 1) < topic.longest + 1 - size:
                return queue                           # what is left of `at` is as random as a second number
        return self.weighed(queues)

    cdef PartitionQueue weighed(self, list queues):
        """The same draw by the weights of all."""
        cdef list sizes = [len((<PartitionQueue> queue).batches) for queue in queues]
        cdef int64_t longest = max(sizes), left = 0
        cdef Py_ssize_t size, i = 0
        for size in sizes:
            left += longest + 1 - size
        left = <int64_t> (<double> self._random() * left)
        for i, size in enumerate(sizes):
            left -= longest + 1 - size
            if left < 0:
                break
        return <PartitionQueue> queues[i]

    cpdef list candidates(self, TopicQueue topic):
        """Partitions with a leader that takes batches; failing that with a leader; failing that all. Of these the ones in the rack, if there
        are any. Not to be changed."""
        cdef AvailablePartitions available = topic.available_in(self._snapshot())
        cdef AvailablePartitions near = available if self._rack is None else available.in_rack(self._rack)
        slow = None if self._unavailable is None else self._unavailable()
        if not slow:
            return near.queues
        return near.without(slow) or available.without(slow) or near.queues
