"""What Kafka 4.3.1 has of KIP-939: why TwoPhaseClient goes by DescribeTransactions and EndTxn, and that it ends such transactions, too.

Version 6 of InitProducerId is not stable, and not in our tables: its bytes are written here. A Kafka that passes less or more than this
says that docs/transactions.md has to change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from kafkacore import KafkaAdminClient, NewTopic, PreparedState, PreparedTransaction, TopicPartition, TwoPhaseClient, errors
from kafkacore import protocol as p
from kafkacore.errors import Code
from tests.broker.wire import Wire
from tests.interop.accepting import fresh, until
from tests.interop.kafka_server import KafkaServer
from tests.interop.test_our_transactions import ours
from tests.interop.test_two_phase_commit import write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120), pytest.mark.slow]

UNLIMITED_MS = 2**31 - 1
MAX_TIMEOUT_MS = 900_000


@pytest.fixture(scope="module")
def unstable() -> Iterator[KafkaServer]:
    """Kafka with all that it has of two-phase commit."""
    with KafkaServer(unstable_api_versions_enable="true", transaction_two_phase_commit_enable="true") as server:
        with Wire(server.bootstrap_servers) as wire:  # makes the topic of transactions
            ask = p.FindCoordinatorRequest(key_type=1, coordinator_keys=["any"])
            until(lambda: not wire.ask(ask, 6).coordinators[0].error_code, "there is a coordinator")
        yield server


def highest(servers: str) -> int:
    with Wire(servers) as wire:
        answer = wire.ask(p.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
        return {each.api_key: each.max_version for each in answer.api_keys}[p.InitProducerIdRequest.API_KEY]


def init(servers: str, transactional_id: str, *, enable_2pc: bool, keep_prepared: bool) -> tuple[int, int, int]:
    """InitProducerId v6: error code, producer id, epoch."""
    name = transactional_id.encode()
    body = bytes([len(name) + 1]) + name + struct.pack(">iqh??", 60_000, -1, -1, enable_2pc, keep_prepared) + b"\0"
    message = struct.pack(">hhih", p.InitProducerIdRequest.API_KEY, 6, 1, -1) + b"\0" + body

    def asked() -> tuple[int, int, int]:
        with Wire(servers) as wire:
            wire.sock.sendall(struct.pack(">i", len(message)) + message)
            with wire.sock.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                answer = stream.read(size)
        code, producer_id, epoch = struct.unpack_from(">hqh", answer, 9)  # behind correlation id, tags and throttle time
        return code, producer_id, epoch

    passing = (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.CONCURRENT_TRANSACTIONS)
    return until(lambda: found if (found := asked())[0] not in passing else None, "the coordinator answers")


def test_it_is_not_there_by_default(real_kafka: KafkaServer, unstable: KafkaServer) -> None:
    assert highest(real_kafka.bootstrap_servers) == 5 == p.InitProducerIdRequest.MAX_VERSION
    assert highest(unstable.bootstrap_servers) == 6


@pytest.mark.parametrize("enable_2pc", [True, False])
def test_a_prepared_transaction_cannot_be_kept(unstable: KafkaServer, enable_2pc: bool) -> None:
    code, _, _ = init(unstable.bootstrap_servers, fresh("tx"), enable_2pc=enable_2pc, keep_prepared=True)
    assert code == Code.UNSUPPORTED_VERSION


def test_a_transaction_without_a_timeout_is_ended_as_all_are(unstable: KafkaServer) -> None:
    """The one half that is there: the timeout is about 25 days, above the brokers' limit."""
    servers, topic, name = unstable.bootstrap_servers, fresh("t"), fresh("tx")
    with KafkaAdminClient(bootstrap_servers=servers) as admin, TwoPhaseClient(bootstrap_servers=servers) as client:
        admin.create_topics([NewTopic(topic, 1, 1)]).check()
        code, producer_id, epoch = init(servers, name, enable_2pc=True, keep_prepared=False)
        assert code == 0
        assert admin.describe_transactions([name])[name].timeout_ms == UNLIMITED_MS > MAX_TIMEOUT_MS
        with Wire(servers) as wire:
            blank = PreparedTransaction(name, producer_id, epoch)
            until(lambda: write(wire, topic, blank, b"kept", 0) == Code.NONE, "the topic's leader takes records")
        found = admin.describe_transactions([name])[name]
        prepared = PreparedTransaction(
            name, found.producer_id, found.producer_epoch, found.start_time_ms, found.timeout_ms, 2, (TopicPartition(topic, 0),)
        )
        assert client.states([prepared]) == [PreparedState.OPEN]
        assert client.commit(prepared)
        assert not client.commit(prepared)
        with pytest.raises(errors.PreparedTransactionCommitted):
            client.abort(prepared)
    assert ours(servers, topic, 1) == [b"kept"]
