"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from kafkacore.testing import EmbeddedCluster
from tests.kit.commands import Commands


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


@pytest.fixture
def at(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file's cluster, known to every command through the environment."""
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    return cluster.bootstrap_servers
