"""What Kafka 4.3.1 has of KIP-939, and the producer takes of it: why TwoPhaseClient goes by DescribeTransactions and EndTxn.

A Kafka that passes less or more than this says that docs/transactions.md has to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic, TwoPhaseClient, errors
from kafkacore import protocol as p
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import KafkaServer
from tests.kit.records import read_committed
from tests.kit.waiting import fresh, until
from tests.kit.wire import Wire

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


def init(servers: str, transactional_id: str, *, enable_2pc: bool, keep_prepared: bool) -> Any:
    request = p.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, enable2_pc=enable_2pc, keep_prepared_txn=keep_prepared
    )
    passing = (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.CONCURRENT_TRANSACTIONS)
    with Wire(servers) as wire:
        return until(lambda: found if (found := wire.ask(request, 6)).error_code not in passing else None, "the coordinator answers")


def test_it_is_not_there_by_default(real_kafka: KafkaServer, unstable: KafkaServer) -> None:
    assert highest(real_kafka.bootstrap_servers) == 5
    assert highest(unstable.bootstrap_servers) == 6 == p.InitProducerIdRequest.MAX_VERSION


@pytest.mark.parametrize("enable_2pc", [True, False])
def test_a_prepared_transaction_cannot_be_kept(unstable: KafkaServer, enable_2pc: bool) -> None:
    answer = init(unstable.bootstrap_servers, fresh("tx"), enable_2pc=enable_2pc, keep_prepared=True)
    assert answer.error_code == Code.UNSUPPORTED_VERSION
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)


def test_a_transaction_without_a_timeout(unstable: KafkaServer) -> None:
    """The one half that is there: the timeout is about 25 days, above the brokers' limit."""
    servers, topic, name = unstable.bootstrap_servers, fresh("t"), fresh("tx")
    with (
        KafkaAdminClient(bootstrap_servers=servers) as admin,
        TwoPhaseClient(bootstrap_servers=servers) as client,
        KafkaProducer(bootstrap_servers=servers, transactional_id=name, transaction_two_phase_commit_enable=True) as producer,
    ):
        admin.create_topics([NewTopic(topic, 1, 1)]).check()
        producer.init_transactions()
        for nth in range(2):  # the second one begins with the epoch that the first one's end gave
            producer.begin_transaction()
            producer.send(topic, f"kept {nth}", partition=0)
            prepared = producer.prepare_transaction()
            assert prepared.timeout_ms == UNLIMITED_MS > MAX_TIMEOUT_MS
            assert admin.describe_transactions([name])[name].timeout_ms == UNLIMITED_MS
            assert client.commit(prepared)
            assert not client.commit(prepared)
            with pytest.raises(errors.PreparedTransactionCommitted):
                client.abort(prepared)
            producer.commit_transaction()
    assert read_committed(servers, topic, 2) == [b"kept 0", b"kept 1"]


def test_a_kafka_without_it_says_so(real_kafka: KafkaServer, embedded: EmbeddedCluster) -> None:
    for servers in (real_kafka.bootstrap_servers, embedded.bootstrap_servers):
        with KafkaProducer(bootstrap_servers=servers, transactional_id=fresh("tx"), transaction_two_phase_commit_enable=True) as producer:
            with pytest.raises(errors.UnsupportedVersion, match="InitProducerId") as refused:
                producer.init_transactions()
            assert refused.value.fatal
