"""The controller's port: who has not the cluster's secret learns and changes nothing there."""

import contextlib
import logging
import os
import select
from pathlib import Path

import pytest
from controlling import topic_request

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.controller import ControllerHost
from kafkacore.broker.controller.access import BROKERS, MECHANISM, ControllerAddress
from kafkacore.broker.controller.log import METADATA_TOPIC_ID
from kafkacore.broker.controller.server import SERVED, ControllerServer
from kafkacore.broker.emulation import emulation
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.server import Broker
from kafkacore.clock import JumpingClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, SaslAuthentication
from kafkacore.net.authentication import SaslOpening
from kafkacore.net.sasl import PlainClient, ScramClient
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import brokers_of, host_of, thread_of
from tests.kit.waiting import until
from tests.kit.wire import Wire

CONFIG = BrokerConfig()
DIALOGUE = {17, 18, 36}


@pytest.fixture(scope="module")
def controller():
    host = ControllerHost(CONFIG, has_log=True)
    with ControllerServer(host) as server:
        yield server
    host.close()


def foreign_requests(server):
    """Everything but the dialogue, with what would do harm."""
    wanted = p.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    harm = {
        1: p.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[p.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])]),
        19: topic_request("t"),
        62: p.BrokerRegistrationRequest(broker_id=7, cluster_id=server.broker_address.cluster_id, incarnation_id=bytes(16), listeners=[]),
    }
    return [(harm.get(key) or p.APIS[key].request(), each.max_version) for key, each in SERVED.items() if key not in DIALOGUE]


def test_strangers_get_nothing_but_the_dialogue(controller, caplog):
    before = host_of(controller).end_offset()
    requests = foreign_requests(controller)
    assert {1, 2, 19, 56, 59, 62, 63} <= {request.API_KEY for request, _ in requests}
    for request, version in requests:
        caplog.clear()
        with Wire(controller.address) as wire:
            versions = wire.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
            assert {each.api_key for each in versions.api_keys} == set(SERVED)
            wire.send(request, version)
            assert wire.closed_by_peer
        [line] = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert line.startswith("controller: closing connection 127.0.0.1:") and "\n" not in line
        assert f"{p.APIS[request.API_KEY].name} came before, during or too long after SASL authentication" in line
    assert host_of(controller).end_offset() == before
    assert host_of(controller).read(lambda image: not image.brokers and not image.topics)


@pytest.mark.parametrize(("user", "known"), [(BROKERS, False), ("admin", False), ("admin", True)])
def test_a_wrong_secret_or_user_is_refused_in_one_line(controller, caplog, user, known):
    with Wire(controller.address) as wire:
        with pytest.raises(SaslAuthentication) as caught:
            wire.log_in(ScramClient(MECHANISM, user, controller.broker_address.secret if known else "guessed"))
        assert "guessed" not in str(caught.value) and wire.closed_by_peer
    [line] = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert line.startswith("controller: closing connection 127.0.0.1:")
    assert f"its authentication failed: user '{user}', mechanism {MECHANISM}: Authentication failed" in line and "guessed" not in line


def test_wrong_secrets_wait_as_wrong_passwords_do():
    clock = JumpingClock()
    host = ControllerHost(CONFIG.replace(connection_failed_authentication_delay_ms=60_000), has_log=True)
    with ControllerServer(host, clock=clock) as server, Wire(server.address) as wire:
        opening = SaslOpening(ScramClient(MECHANISM, BROKERS, "guessed"), "the controller")
        following = opening.next()
        for _ in range(3):  # versions, handshake, the first token
            following = opening.next(wire.ask(*following))
        wire.send(*following)
        with Wire(server.address) as other:
            other.log_in(server.broker_address.logins()())
        assert select.select([wire.sock], [], [], 0)[0] == []
        clock.sleep(60_000)
        server.call(lambda: None)
        assert wire.receive(p.SaslAuthenticateRequest, following[1])[1].error_code == Code.SASL_AUTHENTICATION_FAILED
        assert wire.closed_by_peer
    host.close()


def test_other_mechanisms_are_refused(controller):
    with Wire(controller.address) as wire, pytest.raises(errors.UnsupportedSaslMechanism, match=f"the broker offers {MECHANISM}"):
        wire.log_in(PlainClient(BROKERS, controller.broker_address.secret))
    with Wire(controller.address) as wire:
        wire.sock.sendall(b"".join(bytes(part) for part in p.encode_request(p.SaslAuthenticateRequest(auth_bytes=b"n"), 2, 1, "x")))
        assert wire.closed_by_peer


def test_who_has_the_secret_is_served(controller):
    with Wire(controller.address) as wire:
        wire.log_in(controller.broker_address.logins()())
        request, version = next(each for each in foreign_requests(controller) if each[0].API_KEY == 1)
        assert wire.ask(request, version).responses[0].partitions[0].high_watermark == host_of(controller).end_offset()


def test_of_brokers_that_wait_for_the_log_one_that_goes_leaves_the_other_its_answer():
    host = ControllerHost(CONFIG, has_log=True)
    with ControllerServer(host) as server, Wire(server.address) as stays:
        wanted = p.FetchPartition(partition=0, fetch_offset=host.end_offset(), partition_max_bytes=1 << 20)
        request = p.FetchRequest(max_wait_ms=600_000, min_bytes=0, topics=[p.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])])
        entity = p.ClientQuotaEntityPart(entity_type="user", entity_name="u")
        quota = p.ClientQuotaAlteration(entity=[entity], ops=[p.ClientQuotaOp(key="producer_byte_rate", value=1.0, remove=False)])
        with Wire(server.address) as goes:
            for wire in (goes, stays):
                wire.log_in(server.broker_address.logins()())
                wire.send(request, 17)
            until(lambda: server.call(lambda: len(server.state.waiting)) == 2)
        host.submit(p.AlterClientQuotasRequest(entries=[quota]), 1)
        assert stays.receive(p.FetchRequest, 17)[1].responses[0].partitions[0].high_watermark == host.end_offset()
    host.close()


def test_secrets_differ_and_are_not_shown(controller):
    host = ControllerHost(CONFIG, has_log=True)
    other = ControllerServer(host).broker_address
    own = controller.broker_address
    assert len({own.secret, other.secret}) == 2 and len(own.secret) == 43
    for shown in (repr(own), str(own), f"{own!r}", repr(controller.authentication), repr(controller)):
        assert own.secret not in shown
    assert "127.0.0.1" in repr(own)
    host.close()


def test_a_broker_with_a_wrong_secret_ends(controller, caplog):
    stranger = Broker(CONFIG, 9, controller.broker_address._replace(secret="guessed"))
    stranger.start()
    thread_of(stranger).join(60)
    assert not stranger.running
    stranger.stop()
    assert "broker 9 ends: the controller" in caplog.text and "guessed" not in caplog.text
    assert host_of(controller).read(lambda image: 9 not in image.brokers)


def test_a_broker_does_not_believe_a_controller_without_the_secret():
    """A process that has taken the controller's port."""
    host = ControllerHost(CONFIG, has_log=True)
    with ControllerServer(host) as thief:
        fooled = Broker(CONFIG, 3, ControllerAddress(thief.host, thief.port, host.cluster_id, "the true one"))
        fooled.start()
        thread_of(fooled).join(60)
        assert not fooled.running and host.read(lambda image: not image.brokers)
        fooled.stop()
    host.close()


def texts_of_process(pid):
    """What other processes of the machine may read of one."""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            yield Path(f"/proc/{pid}/{name}").read_bytes()


@pytest.mark.slow
def test_processes_get_the_secret_where_nobody_else_reads_it_and_come_back_with_it(tmp_path, caplog):
    with EmbeddedCluster(brokers=2, processes=True, data_dir=tmp_path) as cluster:
        server = cluster._server
        secret = server.broker_address.secret.encode()
        pids = [life.pid for life in cluster.processes().values()]
        for pid in [os.getpid(), *pids]:
            assert all(secret not in text for text in texts_of_process(pid))
        for path in tmp_path.rglob("*"):
            assert path.is_dir() or secret not in path.read_bytes()
        epoch = host_of(server).read(lambda image: image.brokers[1].epoch)
        with Wire(server.address) as wire:  # another process would see the same port
            wire.send(p.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, want_fence=True), 0)
            assert wire.closed_by_peer
        cluster.kill_broker(1)
        cluster.start_broker(1)
        assert cluster._read(lambda image: sorted(image.nodes)) == [1, 2]
        assert host_of(server).read(lambda image: image.brokers[1].epoch) > epoch
        cluster.stop_broker(2)
        cluster.start_broker(2)
        cluster.create_topic("t", replication_factor=2)
        assert sorted(cluster.isr("t", 0)) == [1, 2]
    assert secret.decode() not in caplog.text


# ---- what brokers serve each other beyond the release they play


def newer_than(release):
    """A request in a version that the release does not have, and today's brokers have."""
    versions = emulation(release).versions
    assert versions is not None
    return next(
        (key, API_VERSIONS[key][1]) for key in (23, 2, 1) if key in API_VERSIONS and API_VERSIONS[key][1] > versions.get(key, (0, -1))[1]
    )


@pytest.mark.parametrize("user, served", [("broker", True), ("alice", False)])
def test_versions_for_brokers_alone_need_the_brokers_user_where_there_are_users(user, served):
    users = {"alice": "a"}
    with EmbeddedCluster(emulate="2.x", users=users) as cluster:
        broker = brokers_of(cluster)[1]
        own = broker.authentication.own_user
        password = broker.config.plain_users()[1] if user == "broker" else "a"
        key, version = newer_than("2.x")
        request = p.APIS[key].request()
        with Wire(cluster.bootstrap_servers) as wire:
            wire.log_in(PlainClient(own if user == "broker" else user, password))
            wire.sock.sendall(b"".join(bytes(part) for part in p.encode_request(request, version, 9, "broker-1")))
            if served:
                assert wire.receive(type(request), version)[0] == 9
            else:
                assert wire.closed_by_peer
