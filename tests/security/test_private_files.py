"""What brokers and pipelines write, other users of the machine may not read."""

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer
from kafkacore.private_files import OwnedDirectory, make_directory, open_file, write_file
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


# ---- temporary directories with keys

HOLDS = """
import sys, time
from kafkacore.private_files import OwnedDirectory
held = OwnedDirectory(sys.argv[1])
(held.path / "a.key").write_text("secret")
print(held.path, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(tmp_path, prefix="keys-"):
    """A process with a temporary directory, and that directory."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-c", HOLDS, prefix]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        yield process, Path(process.stdout.readline().strip())
        process.stdin.close()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_by_the_next_one(temporary):
    with holder(temporary) as (alive, alive_path), holder(temporary) as (killed, killed_path), holder(temporary, "other-") as (_, other):
        assert (killed_path / "a.key").exists() and stat.S_IMODE(killed_path.stat().st_mode) == 0o700
        killed.kill()
        killed.wait()
        assert killed_path.exists()
        with contextlib.closing(OwnedDirectory("keys-")) as held:
            assert not killed_path.exists()
            assert held.path.is_dir() and (alive_path / "a.key").exists() and (other / "a.key").exists()
            assert alive.poll() is None
        assert not held.path.exists()
    assert not alive_path.exists()  # ended as a program does


def test_nothing_else_is_removed(temporary, tmp_path_factory):
    """Directories without a lock file, files, and what links lead to."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "owner.lock").touch()
    (temporary / "keys-link").symlink_to(elsewhere)
    (temporary / "keys-empty").mkdir()
    (temporary / "keys-linked").mkdir()
    (temporary / "keys-linked" / "owner.lock").symlink_to(elsewhere / "owner.lock")
    (temporary / "keys-file").touch()
    before = sorted(temporary.rglob("*"))
    OwnedDirectory("keys-").close()
    assert sorted(temporary.rglob("*")) == before and (elsewhere / "owner.lock").exists()


def test_a_directory_that_is_taken_for_one_that_is_left_is_made_again(temporary, monkeypatch):
    """Another process looks between the making of the lock file and the lock."""
    flock, taken = fcntl.flock, []

    def late(descriptor, how):
        if not taken:
            [made] = temporary.iterdir()
            taken.append(made)
            shutil.rmtree(made)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with contextlib.closing(OwnedDirectory("keys-")) as held:
        assert held.path.is_dir() and held.path not in taken
