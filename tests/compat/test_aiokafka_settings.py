"""aiokafka's settings in the form that the engine wants, and secured clusters."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import re
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from kafkacore.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafkacore.compat.aiokafka.abc import AbstractTokenProvider
from kafkacore.compat.aiokafka.admin import AIOKafkaAdminClient, NewTopic
from kafkacore.compat.aiokafka.coordinator.assignors.range import RangePartitionAssignor
from kafkacore.compat.aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafkacore.compat.aiokafka.errors import BrokerNotAvailableError, IllegalArgumentError, IllegalStateError, KafkaConnectionError
from kafkacore.compat.aiokafka.helpers import create_ssl_context
from kafkacore.net.oauth import unsecured_token
from kafkacore.testing import EmbeddedCluster
from tests.kit.free_ports import free_port
from tests.kit.inside import engine_of
from tests.kit.loops import run
from tests.kit.rows import each_row

NOWHERE = "127.0.0.1:1"
GUARD_S = 90
PACKAGES = ["kafkacore.compat.aiokafka", pytest.param("aiokafka", marks=pytest.mark.filterwarnings("ignore"))]


def engine_settings_of(**given: Any) -> dict[str, Any]:
    """What the engine of a producer gets."""

    async def made() -> dict[str, Any]:
        return AIOKafkaProducer(**{"bootstrap_servers": NOWHERE, **given})._settings

    found: dict[str, Any] = run(made())
    return found


def test_a_producer_has_aiokafkas_defaults() -> None:
    found = engine_settings_of()
    assert (found["acks"], found["enable_idempotence"], found["linger_ms"], found["compression_type"]) == (1, False, 0, "none")
    assert (found["batch_size"], found["max_block_ms"], found["delivery_timeout_ms"]) == (16_384, 40_000, 40_000)
    assert re.fullmatch(r"aiokafka-producer-\d+", found["client_id"])
    assert found["max_in_flight_requests_per_connection"] == 1  # without idempotence this keeps the order
    idempotent = engine_settings_of(enable_idempotence=True)
    assert (idempotent["max_in_flight_requests_per_connection"], idempotent["acks"]) == (5, -1)
    transactional = engine_settings_of(transactional_id="t", transaction_timeout_ms=9_000)
    assert (transactional["enable_idempotence"], transactional["transaction_timeout_ms"]) == (True, 9_000)
    assert engine_settings_of(linger_ms=500, request_timeout_ms=2_000)["delivery_timeout_ms"] == 2_500  # a request and its lingering


def test_a_consumer_has_aiokafkas_defaults() -> None:
    async def made(**given: Any) -> Any:
        async with contextlib.AsyncExitStack() as stack:
            consumer = AIOKafkaConsumer(bootstrap_servers=NOWHERE, **given)
            stack.push_async_callback(consumer.stop)
            return engine_of(consumer).config

    config = run(made(connections_max_idle_ms=None, client_rack=None))
    assert (config.session_timeout_ms, config.partition_assignment_strategy, config.auto_offset_reset) == (
        10_000,
        ("roundrobin",),
        "latest",
    )
    assert (config.connections_max_idle_ms, config.client_rack, config.max_poll_records) == (-1, "", 500)
    others = run(made(auto_offset_reset="EARLIEST", partition_assignment_strategy=[StickyPartitionAssignor, RangePartitionAssignor()]))
    assert (others.auto_offset_reset, others.partition_assignment_strategy) == ("earliest", ("sticky", "range"))
    assert run(made(auto_offset_reset="anything")).auto_offset_reset == "none"
    with pytest.raises(ValueError, match=r"kafkacore\.PartitionAssignor"):
        run(made(partition_assignment_strategy=[object()]))


def test_wrong_values_are_value_errors_with_the_engines_words() -> None:
    with pytest.raises(ValueError, match="linger_ms"):
        engine_settings_of(linger_ms=-1)
    with pytest.raises(ValueError, match=r"sasl_mechanism must be one of PLAIN, GSSAPI, .*, not 'NTLM'"):
        engine_settings_of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="NTLM")
    with pytest.raises(ValueError, match="tickets are for sasl_kerberos_service_name and the host"):
        engine_settings_of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI", sasl_kerberos_domain_name="other")
    kerberos = engine_settings_of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI", sasl_kerberos_service_name="stream")
    assert (kerberos["sasl_mechanism"], kerberos["sasl_kerberos_service_name"]) == ("GSSAPI", "stream")
    with pytest.raises(ValueError, match="sasl_oauth_token_provider"):
        engine_settings_of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: "token")


def test_a_client_belongs_to_the_loop_that_runs_or_is_given() -> None:
    with EmbeddedCluster() as cluster, contextlib.closing(asyncio.new_event_loop()) as loop:
        with pytest.warns(DeprecationWarning, match="loop"):
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, loop=loop)
        with pytest.raises(AssertionError, match="another loop"):
            run(producer.start())
        loop.run_until_complete(producer.start())
        future = loop.run_until_complete(producer.send("t", b"v"))
        assert loop.run_until_complete(future).offset == 0
        loop.run_until_complete(producer.stop())
        with pytest.warns(DeprecationWarning, match="loop"):
            consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, loop=loop, auto_offset_reset="earliest")
        loop.run_until_complete(consumer.start())
        assert loop.run_until_complete(consumer.getone()).value == b"v"
        loop.run_until_complete(consumer.stop())


# ---- secured clusters ------------------------------------------------------------------------------------------------------------------


async def round_trip(package: str, servers: str, **settings: Any) -> Any:
    """A record there and back, and a look by the admin client."""
    module, admin = importlib.import_module(package), importlib.import_module(f"{package}.admin")
    clients: list[Any] = []
    try:
        clients.append(producer := module.AIOKafkaProducer(bootstrap_servers=servers, **settings))
        await producer.start()
        sent = await producer.send_and_wait("t", b"v", partition=0)
        clients.append(consumer := module.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings))
        await consumer.start()
        consumer.assign([module.TopicPartition("t", 0)])
        consumer.seek(module.TopicPartition("t", 0), sent.offset)
        clients.append(manager := admin.AIOKafkaAdminClient(bootstrap_servers=servers, **settings))
        await manager.start()
        return (await consumer.getone()).value, await manager.list_topics()
    finally:
        for client in clients:
            await (client.stop if hasattr(client, "stop") else client.close)()


@pytest.mark.parametrize("package", PACKAGES)
def test_both_packages_authenticate_alike(package: str) -> None:
    who = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice"}
    with EmbeddedCluster(users={"alice": "secret"}) as secured:
        assert run(round_trip(package, secured.bootstrap_servers, sasl_plain_password="secret", **who)) == (b"v", ["t"])
        logging.getLogger("aiokafka").disabled = True
        try:
            with pytest.raises(importlib.import_module(f"{package}.errors").KafkaConnectionError):
                run(round_trip(package, secured.bootstrap_servers, sasl_plain_password="wrong", **who))
        finally:
            logging.getLogger("aiokafka").disabled = False


@pytest.mark.parametrize("package", PACKAGES)
def test_both_packages_ask_a_provider_for_tokens_in_the_loop(package: str) -> None:
    asked: list[Any] = []

    class Provider(importlib.import_module(f"{package}.abc").AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            asked.append(asyncio.get_running_loop())
            await asyncio.sleep(0)
            return unsecured_token({"sub": "alice"}, int(time.time() * 1000), 3_600)

        def extensions(self) -> dict[str, str]:
            return {"traceId": "123"}

    async def test(servers: str) -> None:
        found = await round_trip(
            package, servers, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider()
        )
        assert found == (b"v", ["t"])
        assert set(asked) == {asyncio.get_running_loop()}

    with EmbeddedCluster(users={"alice": "x"}, config={"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}) as secured:
        run(test(secured.bootstrap_servers))


def test_extensions_of_a_token_reach_the_engine() -> None:
    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            raise NotImplementedError

        def extensions(self) -> dict[str, str]:
            return {"traceId": '1"2\\3', "other": "4"}

    async def made() -> Any:
        settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
        client = AIOKafkaAdminClient(bootstrap_servers=NOWHERE, **settings)
        await client.close()
        return engine_of(client).config.sasl_settings()

    assert run(made()).extensions == {"traceId": '1"2\\3', "other": "4"}


def test_a_topic_has_counts_or_assignments() -> None:
    for counts in ((-1, 1), (1, -1), (-1, -1)):
        with pytest.raises(IllegalArgumentError):
            NewTopic("t", *counts)
        assert NewTopic("t", *counts, {0: [1]}).replica_assignments == {0: [1]}
    with pytest.raises(IllegalArgumentError):
        NewTopic("t", 1, 1, {0: [1]})


def test_a_context_of_the_helper_trusts_what_it_is_given(tmp_path: Path) -> None:
    authority, own = trustme.CA(), trustme.CA().issue_cert("client")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    context = create_ssl_context(cafile=tmp_path / "ca.pem", certfile=tmp_path / "own.pem")
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1
    assert engine_settings_of(security_protocol="SSL", ssl_context=context)["ssl_context"] is context
    assert "ssl_context" not in engine_settings_of(ssl_context=context)


@each_row("kind", [AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient])
def test_a_client_that_could_not_start_starts_when_there_is_a_broker(kind: Any) -> None:
    port = free_port()

    async def test() -> None:
        client = kind(bootstrap_servers=f"127.0.0.1:{port}")
        for _ in range(2):
            with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
                await client.start()
        with EmbeddedCluster(port=port):
            await client.start()
            await (client.stop if hasattr(client, "stop") else client.close)()

    run(test())


def test_an_admin_client_asks_once_it_is_started_and_shows_what_may_be_done() -> None:
    async def test(servers: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        with pytest.raises(IllegalStateError, match="start"):
            await admin.list_topics()
        await admin.start()
        for including, last in ((True, "authorized_operations"), (False, "members")):
            (answer,) = await admin.describe_consumer_groups(["g", "h"], include_authorized_operations=including)
            assert [list(each)[-1] for each in answer.to_object()["groups"]] == [last, last]
            assert repr(answer) == f"Answer({answer.to_object()})"
        with pytest.raises(IllegalArgumentError):
            await admin.list_consumer_group_offsets("g", 1)
        with pytest.raises(BrokerNotAvailableError):
            await admin.list_consumer_groups([77])
        await admin.close()

    with EmbeddedCluster() as cluster:
        run(test(cluster.bootstrap_servers))
