"""Frameworks that import aiokafka themselves run over its names here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore.testing import EmbeddedCluster

GUARD_S = 120


def test_faststream_runs_unchanged() -> None:
    """Consumers, replies and `publish_batch`; records published right after the start reach subscribers that begin at the end."""
    pytest.importorskip("faststream")
    program = Path(__file__).with_name("faststream_on_alias.py")
    with EmbeddedCluster(config={"group_initial_rebalance_delay_ms": 0}) as cluster:
        for topic in ("orders", "answers", "batches"):
            cluster.create_topic(topic, partitions=2)
        ran = subprocess.run(
            [sys.executable, str(program), cluster.bootstrap_servers], capture_output=True, text=True, timeout=GUARD_S, check=False
        )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "orders": [[0, "h0"], [1, "h1"], [2, "h2"]],
        "answers": [0, 10, 20],
        "batches": [1, 2, 3],
        "members": 3,
        "named": True,
        "alive": True,
    }
