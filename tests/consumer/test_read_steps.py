"""What a call that reads does beside reading: steps only when one is due, and when the next fetch is sent."""

import pytest
from produce_raw import produce

from kafkacore import errors
from kafkacore.admin import KafkaAdminClient
from kafkacore.clock import ManualClock
from kafkacore.consumer import KafkaConsumer
from kafkacore.types import TopicPartition
from tests.kit.inside import fetcher_of, group_of, loop_of

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def reader(broker, clock):
    """A consumer that waits for more at the end of A, in front of which it has read one record."""
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 1_000}
    with KafkaConsumer(bootstrap_servers=broker.address, clock=clock, **settings) as consumer:
        consumer.assign([A])
        produce(broker.address, "t", 0, [b"0"])
        assert values(consumer.poll(30)) == [b"0"]
        yield consumer


def values(records):
    return [record.value for found in records.values() for record in found]


def steps_of(consumer):
    """Counts the steps from now on."""
    taken = []
    step = loop_of(consumer).step

    def counted(now_ms):
        taken.append(now_ms)
        step(now_ms)

    loop_of(consumer).step = counted
    return taken


def test_records_reach_a_caller_that_comes_straight_back_before_the_next_fetch_is_sent(broker, reader):
    for nth in range(1, 4):
        produce(broker.address, "t", 0, [b"%d" % nth])
        assert values(reader.poll(30)) == [b"%d" % nth]
        assert not fetcher_of(reader).in_flight
    assert reader.poll(0) == {}
    assert fetcher_of(reader).in_flight == {1}


def test_the_next_fetch_is_on_its_way_while_a_slow_caller_works(broker, clock, reader):
    for nth in range(1, 4):
        clock.advance(2)
        produce(broker.address, "t", 0, [b"%d" % nth])
        assert values(reader.poll(30)) == [b"%d" % nth]
        assert fetcher_of(reader).in_flight == {1}


def test_the_next_fetch_is_sent_first_where_much_has_come(broker, reader):
    for nth in range(2):
        produce(broker.address, "t", 0, [b"x" * 20_000])
        assert len(values(reader.poll(30))) == 1
        assert fetcher_of(reader).in_flight == {1}, nth


def test_polls_in_a_row_take_no_step_before_one_is_due(broker, clock, reader):
    produce(broker.address, "t", 0, [b"1"])
    assert reader.poll(30)
    taken = steps_of(reader)
    for nth in range(2, 12):
        clock.advance(nth % 3)  # hasty and slow
        produce(broker.address, "t", 0, [b"%d" % nth])
        assert values(reader.poll(30)) == [b"%d" % nth]
        assert reader.poll(0) == {}
    assert not taken


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.position(A),
        lambda consumer: consumer.pause(),
        lambda consumer: consumer.seek(A, 1),
        lambda consumer: consumer.end_offsets([A]),
        lambda consumer: consumer.assign([A]),
    ],
)
def test_a_poll_after_another_call_takes_a_step(broker, reader, call):
    produce(broker.address, "t", 0, [b"1"])
    assert reader.poll(30)
    call(reader)
    taken = steps_of(reader)
    assert reader.poll(0) == {}
    assert taken


def test_a_poll_after_one_that_raised_takes_a_step(broker, reader):
    reader.wakeup()  # nobody waits: the next wait ends
    with pytest.raises(errors.WakeupError):
        reader.poll(0)
    taken = steps_of(reader)
    reader.poll(0)
    assert taken


def test_a_fetch_is_on_its_way_when_an_error_is_raised(broker, clock):
    """The partitions that it is not about are served, however often it is raised."""
    settings = {"auto_offset_reset": "none", "fetch_max_wait_ms": 1_000}
    with KafkaConsumer(bootstrap_servers=broker.address, clock=clock, **settings) as consumer:
        consumer.assign([A, B])
        consumer.seek(A, 0)
        consumer.seek(B, 0)
        for index in (0, 1):  # until nothing is in flight
            produce(broker.address, "t", index, [b"0"])
            assert consumer.poll(30)
        produce(broker.address, "t", 1, [b"1", b"2"])
        with KafkaAdminClient(bootstrap_servers=broker.address) as admin:
            admin.delete_records({B: 3}).check()
        produce(broker.address, "t", 0, [b"1"])
        assert values(consumer.poll(30)) == [b"1"]
        sent = fetcher_of(consumer).metrics.fetches
        with pytest.raises(errors.OffsetOutOfRange):
            consumer.poll(30)
        assert fetcher_of(consumer).metrics.fetches == sent + 1


def test_a_loop_over_little_chunks_takes_no_step_before_one_is_due(broker, reader):
    reader.assign([A, B])
    for index in (1, 0):  # until nothing is in flight
        produce(broker.address, "t", index, [b"poll"])
        assert reader.poll(30)
    assert not fetcher_of(reader).in_flight
    for index in (0, 1):
        produce(broker.address, "t", index, [b"loop"])
    taken = steps_of(reader)
    seen = []
    for record in reader:
        seen.append((record.partition, record.value))
        if len(seen) == 2:
            produce(broker.address, "t", 0, [b"last"])
        if record.value == b"last":
            break
    assert sorted(seen) == [(0, b"last"), (0, b"loop"), (1, b"loop")]
    assert not taken


def test_heartbeats_are_sent_when_due_by_polls_that_take_no_step(broker, clock):
    settings = {"auto_offset_reset": "earliest", "group_id": "g", "fetch_max_wait_ms": 10, "enable_auto_commit": False}
    with KafkaConsumer("t", bootstrap_servers=broker.address, clock=clock, **settings) as member:
        while not member.assignment():
            member.poll(0)
        produce(broker.address, "t", 0, [b"0"])
        while not member.poll(0):
            pass
        for _ in range(3):
            beats = group_of(member).membership.heartbeats
            clock.advance(3_000)
            while group_of(member).membership.heartbeats == beats:
                member.poll(0)
