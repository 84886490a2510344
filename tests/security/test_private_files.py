"""What brokers and pipelines write, other users of the machine may not read."""

import json
import os
import stat

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer
from kafkacore.private_files import make_directory, open_file, write_file
from kafkacore.testing import EmbeddedCluster


@pytest.fixture(autouse=True)
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory):
    """Of everything below a directory, and the directory: what others may do with it."""
    found = {directory: stat.S_IMODE(directory.stat().st_mode)}
    for each in directory.rglob("*"):
        found[each] = stat.S_IMODE(each.stat().st_mode)
    return {str(each.relative_to(directory)): oct(mode) for each, mode in found.items() if mode & 0o077}


@pytest.mark.parametrize("processes", [False, True])
def test_the_files_of_brokers(processes, tmp_path):
    data = tmp_path / "above" / "data"
    settings = {
        "log.segment.bytes": 1_048_576, "transaction.state.log.replication.factor": 1, "offsets.topic.replication.factor": 1,
        "transaction.state.log.min.isr": 1, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
        "metadata.log.max.record.bytes.between.snapshots": 100,
    }  # fmt: skip
    with EmbeddedCluster(data_dir=data, config={name: str(value) for name, value in settings.items()}, processes=processes) as cluster:
        servers = cluster.bootstrap_servers
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.alter_user_scram_credentials({("alice", "SCRAM-SHA-256"): "secret"}).check()
        with KafkaProducer(bootstrap_servers=servers, transactional_id="x", batch_size=600_000, max_request_size=700_000) as producer:
            producer.init_transactions()
            for end in (producer.abort_transaction, producer.commit_transaction):  # with an index of what was aborted
                producer.begin_transaction()
                for _ in range(3):
                    producer.send("t", bytes(500_000))
                producer.flush()
                end()
    written = {each.suffix or each.name for each in data.rglob("*") if each.is_file()}
    assert {".log", ".index", ".timeindex", ".lock", ".properties"} <= written, written
    assert modes(data.parent) == {}


def test_a_mode_that_is_there_is_left(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(0o750)
    (shared / "file").write_bytes(b"")
    (shared / "file").chmod(0o640)
    make_directory(shared / "in" / "it")
    write_file(shared / "file", b"x")
    with open_file(shared / "new", "a", encoding="utf-8") as file:
        file.write("é")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750
    assert [oct(stat.S_IMODE((shared / name).stat().st_mode)) for name in ("in", "in/it", "file", "new")] == [
        "0o700", "0o700", "0o640", "0o600",
    ]  # fmt: skip
    make_directory(shared)


def test_the_state_of_a_pipeline(tmp_path):
    from kafkacore.spark.pipeline.status import Status

    path = tmp_path / "status.json"
    Status(pipeline="p").write(path)
    assert json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
