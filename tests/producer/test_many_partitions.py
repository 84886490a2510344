"""The producer's work per record, batch and pass does not grow with the partitions a topic has: what is walked is counted here."""

from __future__ import annotations

import pytest
from producer_support import Bench, response

from kafkacore.errors import Code
from kafkacore.producer import retry_log

MANY = 2_000


def test_partitions_that_fail_at_once_are_not_walked_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    is_over = retry_log._Failing.is_over.fget
    assert is_over is not None

    def counted(failing: retry_log._Failing) -> bool:
        nonlocal looks
        looks += 1
        return is_over(failing)

    monkeypatch.setattr(retry_log._Failing, "is_over", property(counted))
    bench = Bench(partitions=MANY, enable_idempotence=False, acks=1)
    for outage in range(2):
        looks = 0
        for partition in range(MANY):
            bench.send("t", b"x", partition=partition)
        bench.step()
        bench.client.answer(response(*((partition, Code.NOT_LEADER_OR_FOLLOWER, -1) for partition in range(MANY))))
        bench.step()
        assert 0 < looks <= 4 * MANY, outage
        bench.step(1_000)
        bench.client.answer(response(*((partition, 0, outage) for partition in range(MANY))))
        bench.step()
    assert len(bench.sender._retry_log._failing) == MANY  # the first outage is forgotten
