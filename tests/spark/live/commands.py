"""Programs of this checkout as processes of their own, for the tests that run Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def environment(**more: str) -> dict[str, str]:
    """A process's environment: this checkout, this Python."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore", **more}


def kafkacore(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`kafkacore pipeline ...` in a project."""
    command = [sys.executable, "-m", "kafkacore", "pipeline", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False)


def one(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command which succeeded printed."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line in which a command said why it failed, after those that say what it did."""
    assert done.returncode and not done.stdout and "Traceback" not in done.stderr, done
    *steps, line = done.stderr.splitlines()
    assert line.startswith("kafkacore: ") and not any(step.startswith("kafkacore: ") for step in steps)
    return line


def connect_server(warehouse: str) -> None:
    """A Connect server that others may use, until its input ends; prints its port. `python -m tests.spark.live.commands WAREHOUSE`."""
    from pyspark import SparkConf, SparkContext

    from kafkacore.spark import ensure_spark

    ensure_spark()
    conf = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": warehouse,
    }
    context = SparkContext(conf=SparkConf().setMaster("local[2]").setAll(list(conf.items())))
    service = getattr(context._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    print(getattr(service, "MODULE$").localPort(), flush=True)
    sys.stdin.read()
    context.stop()


if __name__ == "__main__":
    connect_server(sys.argv[1])
