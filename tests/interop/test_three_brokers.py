"""The other Python clients and three brokers of which the leader goes away while they write, and comes back."""

import gc
import threading
import warnings

import pytest

from kafkacore.testing import EmbeddedCluster
from tests.kit.plain_records import READ, WRITE, Plain
from tests.kit.waiting import until

RECORDS = [Plain(b"%d" % (nth % 7), b"%d" % nth, (("n", b"%d" % nth),), 1_700_000_000_000 + nth) for nth in range(4000)]


@pytest.fixture(autouse=True)
def _forgive_left_sockets():
    """kafka-python leaves the sockets of brokers that died to the garbage collector."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.parametrize("client", sorted(WRITE))
@pytest.mark.parametrize("death", ["stopped", "killed"])
def test_a_client_writes_through_a_change_of_leaders(client, death):
    with EmbeddedCluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        cluster.create_topic("t", partitions=1)
        begun, requests = threading.Event(), []

        def note(request):
            requests.append(request)
            if len(requests) > 3:
                begun.set()

        cluster.control(0, note)
        failures = []

        def write():
            try:
                WRITE[client](cluster.bootstrap_servers, "t", RECORDS, "none")
            except BaseException as failure:
                failures.append(failure)

        writer = threading.Thread(target=write)
        writer.start()
        begun.wait(1)  # or never, with a client that sends few large batches
        leader = cluster.leader("t", 0)
        (cluster.stop_broker if death == "stopped" else cluster.kill_broker)(leader)
        writer.join(240)
        assert not writer.is_alive() and not failures, failures
        cluster.start_broker(leader)
        until(lambda: len(cluster.isr("t", 0)) == 3, "all replicas are in sync")
        cluster.move_leader("t", 0, leader)  # what the returned broker holds is the same
        for reader in sorted(READ):
            found = READ[reader](cluster.bootstrap_servers, "t", len(RECORDS))
            assert [record.value for record in found] == [record.value for record in RECORDS], reader
