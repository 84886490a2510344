"""What authenticates is in no `repr`, no message and no process list."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore import KafkaAdminClient, errors, protocol
from kafkacore.admin import ConfigResource
from kafkacore.cli.app import run
from kafkacore.config_security import SaslSettings, parse_jaas
from kafkacore.config_text import holds_secret
from kafkacore.net.sasl import scram_credential
from kafkacore.protocol.schema import Struct
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row

HUSH = "hunter2"
LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="{HUSH}" user_b="{HUSH}";'


@each_row(
    "shown",
    [
        protocol.SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2"),
        protocol.SaslAuthenticateResponse(error_code=0, auth_bytes=b"hunter2"),
        protocol.ScramCredentialUpsertion(name="alice", mechanism=1, iterations=4096, salt=b"s", salted_password=b"hunter2"),
        protocol.AlterUserScramCredentialsRequest(upsertions=[protocol.ScramCredentialUpsertion(salted_password=b"hunter2")]),
        protocol.CreateDelegationTokenResponse(hmac=b"hunter2"),
        protocol.RenewDelegationTokenRequest(hmac=b"hunter2"),
        protocol.IncrementalAlterableConfig(name="listener.name.sasl.plain.sasl.jaas.config", value=LINE),
        protocol.IncrementalAlterableConfig(name="ssl.keystore.password", value=HUSH),
        parse_jaas(LINE),
        scram_credential("SCRAM-SHA-256", b"hunter2" * 4, b"hunter2", 4096),
        SaslSettings("OAUTHBEARER", extensions={"key": HUSH}),
        SaslSettings("PLAIN", "alice", HUSH),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_no_repr_shows_a_secret(shown):
    assert HUSH not in repr(shown)
    assert HUSH not in str(shown)
    assert HUSH not in f"{shown!r:>10}"


def test_every_field_that_authenticates_is_hidden():
    """All structs of the protocol: a field of bytes whose name says what it is."""
    found, pending = {}, [Struct]
    while pending:
        struct = pending.pop()
        pending += struct.__subclasses__()
        words = ("password", "auth_bytes", "hmac", "secret", "stored_key", "server_key")
        found |= {name: struct(**{name: b"hunter2"}) for name in struct.FIELDS if any(word in name for word in words)}
    assert [name for name, shown in found.items() if "hunter2" in repr(shown)] == []
    assert {"auth_bytes", "salted_password", "hmac"} <= found.keys()


def test_other_settings_and_absent_values_are_shown():
    assert "value='1000'" in repr(protocol.IncrementalAlterableConfig(name="retention.ms", value="1000"))
    assert "value=None" in repr(protocol.IncrementalAlterableConfig(name="ssl.key.password", value=None))
    assert repr(protocol.SaslAuthenticateRequest(auth_bytes=b"abc")) == "SaslAuthenticateRequest(auth_bytes=<3 bytes>)"


@each_row("name", ["sasl.jaas.config", "sasl_jaas_config", "ssl.keystore.key", "listener.x.ssl.key.password", "my.secret"])
def test_names_of_secrets(name):
    assert holds_secret(name)
    assert not holds_secret(f"{name}.file")


def test_alter_configs_does_not_repeat_a_value_of_another_type():
    with EmbeddedCluster() as cluster, KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(errors.UsageError) as caught:
            admin.alter_configs({ConfigResource("broker", "1"): {"sasl.jaas.config": HUSH.encode()}})
    assert HUSH not in str(caught.value)


# ---- the command line


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["broker", "--set", f"sasl.jaas.config {HUSH}"], "'sasl.jaas.config' is not KEY=VALUE"),
        (["topics", "list", "-X", f"={HUSH}"], "'=' is not KEY=VALUE"),
        (["broker", "--set", "sasl.jaas.config=secret://env/NOWHERE"], "the environment variable NOWHERE is not set"),
        (["broker", "--set", "num.partitions=secret://env/HUSH"], "messages may show this one"),
        (["broker", "--set", "sasl.jaas.config=secret://env/HUSH"], "sasl_jaas_config"),
        (["configs", "set", "retention.ms=secret://env/HUSH", "--topic", "t"], "messages may show this one"),
    ],
)
def test_messages_repeat_no_word_that_may_be_a_secret(command, why, monkeypatch, capsys):
    monkeypatch.setenv("HUSH", HUSH)
    assert run(command) != 0
    shown = capsys.readouterr()
    assert why in shown.err
    assert HUSH not in shown.out + shown.err


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_a_brokers_passwords_are_in_no_process_list(tmp_path):
    (tmp_path / "line").write_text(LINE + "\n")
    command = [sys.executable, "-m", "kafkacore", "broker", "-p", "0", "--json", "--processes"]
    command += ["--set", "security.inter.broker.protocol=SASL_PLAINTEXT", "--set", f"sasl.jaas.config=secret://file{tmp_path}/line"]
    root = Path(__file__).resolve().parents[2]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}, cwd=tmp_path)
    try:
        servers = json.loads(started.stdout.readline())["bootstrap_servers"]
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "b", "sasl.password": HUSH}
        with KafkaAdminClient({"bootstrap.servers": servers, **given}) as admin:
            assert admin.list_topics() == []
        family = [started.pid]
        for pid in family:
            for task in Path(f"/proc/{pid}/task").iterdir():
                family += [int(word) for word in (task / "children").read_text().split()]
        assert len(family) > 1
        for pid in family:
            assert HUSH.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=30)
