"""Consumers and multiprocessing: each process makes its own, whatever started it; one that came from the parent is refused."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.consumer import KafkaConsumer
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.programs import run_python
from tests.kit.records import fill, numbered

RECORDS = 20

PROGRAM = """
    import multiprocessing, os, sys
    from kafkacore.consumer import KafkaConsumer

    def settings(topic):
        return {"bootstrap_servers": sys.argv[1], "group_id": f"g-{topic}", "auto_offset_reset": "earliest"}

    def read(consumer, count):
        found = 0
        while found < count:
            found += sum(map(len, consumer.poll(1).values()))
        return found

    def ends(address, topic):
        sys.argv[1:] = [address]
        global consumer
        consumer = KafkaConsumer(topic, **settings(topic))
        read(consumer, 20)
        consumer.commit()

    if __name__ == "__main__":
        _, address, topic, method = sys.argv
        with KafkaConsumer(topic, **{**settings(topic), "group_id": "parents"}) as own:  # the parent is a member, too
            read(own, 20)
            child = multiprocessing.get_context(method).Process(target=ends, args=(address, topic))
            child.start()
            child.join()
            own.commit()
        sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "fork", pytest.param("forkserver", marks=pytest.mark.night)])
def test_a_child_makes_its_own(shared: EmbeddedCluster, tmp_path: Path, method: str) -> None:
    """Also one that does not close it leaves the group: multiprocessing ends its children by os._exit, for which atexit is not called."""
    topic = method
    shared.create_topic(topic)
    fill(shared.bootstrap_servers, topic, numbered(RECORDS))
    left: list[str] = []

    def leave_group(request: Any) -> None:
        if request.group_id == f"g-{topic}":
            left.extend(member.member_id for member in request.members)

    shared.control("LeaveGroup", leave_group)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = run_python(str(program), shared.bootstrap_servers, topic, method)
    shared.control("LeaveGroup", None)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(left) == 1
    with KafkaConsumer(bootstrap_servers=shared.bootstrap_servers, group_id=f"g-{topic}") as observer:
        assert observer.committed(TopicPartition(topic, 0)).offset == RECORDS


def test_a_consumer_does_not_travel(shared: EmbeddedCluster) -> None:
    """spawn and forkserver pickle what a child is given."""
    with KafkaConsumer(bootstrap_servers=shared.bootstrap_servers) as consumer:
        with pytest.raises(errors.UsageError, match="KafkaConsumer belongs to the process that made it; make one in each process"):
            pickle.dumps(consumer)
    with KafkaProducer(bootstrap_servers=shared.bootstrap_servers) as producer:
        with pytest.raises(errors.UsageError, match="KafkaProducer belongs to the process that made it; make one in each process"):
            pickle.dumps(producer)
