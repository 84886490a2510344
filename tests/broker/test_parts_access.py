"""Long requests under an authorizer: the parts of a request are refused and served as the whole would be."""

from __future__ import annotations

import pytest
from test_acl_enforcement import ALICE, Secured

from kafkacore import protocol as p
from kafkacore.broker import authorizer as a
from kafkacore.broker.handlers import SERVED
from kafkacore.broker.slices import PartsJob, Slices
from kafkacore.broker.state import Call
from kafkacore.errors import Code
from tests.kit.batches import batch

PARTITIONS = 250


class InParts(Secured):
    """A broker whose authorizer notes what it is asked, and whose long requests are carried out in parts."""

    def __init__(self):
        super().__init__()
        self.topic("wide", PARTITIONS)
        self.asked = []
        self.allows = self.state.authorizer.allows
        self.state.authorizer.allows = self._note

    def _note(self, principal, host, operation, resource_type, name):
        self.asked.append((operation, resource_type, name))
        return self.allows(principal, host, operation, resource_type, name)

    def now(self):
        return self.clock.now_ms(), self.clock.wall_ms()

    def in_parts(self, request, between=lambda: None):
        """The answer, and what the authorizer is asked; `between` is called after the first part."""
        self.asked.clear()
        served, answers, slices = SERVED[request.API_KEY], [], Slices()
        call = Call(9, "bench", self.clock.now_ms(), self.clock.wall_ms(), answers.append, self.fail, "/127.0.0.1")
        call.principal, call.elements = ALICE, PARTITIONS + 1
        [parts] = [each for each in served.parts if each.is_for(call)]
        handled = []

        def handler(*args):
            handled.append(args)
            return served.handler(*args)

        job = PartsJob(parts, handler, self.state, call, request, slices, self.now, answers.append)
        while not handled:
            assert job.step()
        between()
        while job.step():
            assert not answers
        [answer] = answers
        return codes(answer)


def produce(transactional=range(0), transactional_id="mine"):
    """A batch for each partition, some of them of a transaction."""
    plain, other = batch(), batch(is_transactional=True, producer_id=1, epoch=0, sequence=0)
    parts = [
        p.PartitionProduceData(index=nth, records=memoryview(bytes(other if nth in transactional else plain))) for nth in range(PARTITIONS)
    ]
    return p.ProduceRequest(
        transactional_id=transactional_id, acks=1, timeout_ms=9, topic_data=[p.TopicProduceData(name="wide", partition_data=parts)]
    )


def codes(answer):
    [topic] = answer.responses
    return [each.error_code for each in sorted(topic.partition_responses, key=lambda each: each.index)]


@pytest.fixture
def bench():
    return InParts()


@pytest.mark.parametrize("transactional_id", ["mine", None])
@pytest.mark.parametrize("transactional", [0, PARTITIONS - 1], ids=["first", "last"])
def test_one_batch_of_a_foreign_transaction_refuses_all_partitions(bench, transactional, transactional_id):
    bench.allow(bench.entry(a.WRITE, "wide"))
    found = bench.in_parts(produce(range(transactional, transactional + 1), transactional_id))
    assert found == [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * PARTITIONS
    assert bench.asked == ([(a.WRITE, a.TRANSACTIONAL_ID, "mine")] if transactional_id else [])


def test_each_check_is_made_once_for_a_request(bench):
    bench.allow(bench.entry(a.WRITE, "wide"), bench.entry(a.WRITE, "mine", resource_type=a.TRANSACTIONAL_ID))
    assert bench.in_parts(produce()) == [0] * PARTITIONS
    assert bench.asked == [(a.WRITE, a.TOPIC, "wide")]
    bench.in_parts(produce(range(PARTITIONS), "mine"))
    assert sorted(bench.asked) == [(a.WRITE, a.TOPIC, "wide"), (a.WRITE, a.TRANSACTIONAL_ID, "mine")]


def test_an_acl_that_goes_between_the_parts_counts_from_the_next_request_on(bench):
    bench.allow(bench.entry(a.WRITE, "wide"))
    assert bench.in_parts(produce(), lambda: bench.forbid(a.WRITE)) == [0] * PARTITIONS
    assert bench.in_parts(produce()) == [Code.TOPIC_AUTHORIZATION_FAILED] * PARTITIONS
