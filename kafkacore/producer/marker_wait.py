"""MarkerWait: whether a transaction that follows the last one at once should look for that one's markers before it writes.

A coordinator answers EndTxn before the markers of the transaction are written, and takes the next transaction up after that. With
transaction.version 2 the partition's leader waits for it, within Produce: Kafka's asks the coordinator again every
add.partitions.to.txn.retry.backoff.ms, 20 ms, where markers take about 1 ms. So a producer that begins at once waits 20 ms or more. Looking
itself (DescribeTransactions), each millisecond at first, it waits as long as the markers take.

Rules
1. It looks only where it has seen such a wait: a transaction that began within HASTE_MS after the last one's end, and whose first answer to
   Produce took SLOW_MS or more. A leader that hears of the markers by itself, as kafkacore's brokers do, is never looked for.
   [test_it_looks_after_a_hasty_transaction_whose_first_answer_was_slow, test_a_slow_answer_without_haste_says_nothing]
2. After LOOKS transactions it goes without for one, to see whether the wait is still there.
   [test_after_many_looks_one_transaction_goes_without]
3. How long the answer to EndTxn took counts as time since the end: what follows takes as long to get there.
   [test_far_away_brokers_are_not_asked]

Source: KIP-890; of the broker, Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

from kafkacore._codec import TransactionGate

HASTE_MS = 20
SLOW_MS = 15
LOOKS = 200


class MarkerWait:
    """See the top of the file. `ended` is called by the thread that drives the I/O, `begins` while no transaction is open."""

    def __init__(self, gate: TransactionGate) -> None:
        """Has seen nothing.

        Args:
            gate: knows how long the first answer to Produce in a transaction took.
        """
        self._gate = gate
        self._hasty_until_ms = -1
        self._looks_left = 0
        self._watches = False                                     # the last transaction was hasty, and did not look

    def ended(self, now_ms: int, latency_ms: int) -> None:
        """EndTxn was answered.

        Args:
            now_ms: the time.
            latency_ms: how long the answer took.
        """
        self._hasty_until_ms = now_ms + HASTE_MS - latency_ms

    def begins(self, now_ms: int) -> bool:
        """A transaction begins: True when it should look for the markers of the last one.

        Args:
            now_ms: the time.
        """
        if self._watches and self._gate.first_answer_ms >= SLOW_MS:
            self._looks_left = LOOKS
        hasty = now_ms < self._hasty_until_ms
        looks = hasty and self._looks_left > 0
        if looks:
            self._looks_left -= 1
        self._watches = hasty and not looks
        return looks
