"""The Dockerfile, as far as it can be looked at without Docker: what it copies is there, and what its container runs serves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

from kafkacore import KafkaAdminClient

ROOT = Path(__file__).parent.parent
LINES = [line.split(maxsplit=1) for line in (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines() if line and line[0] != "#"]


def words(instruction: str) -> list[str]:
    """The JSON words of the last such instruction."""
    found: list[str] = json.loads([rest for name, rest in LINES if name == instruction][-1])
    return found


def test_what_is_copied_is_there_and_not_left_out() -> None:
    copied = [word for name, rest in LINES if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]]
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied and set(copied) == sent
    assert all((ROOT / each).exists() for each in copied)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert {"setup.py", "pyproject.toml", *build["backend-path"]} <= sent


def test_the_container_runs_as_no_root_and_serves() -> None:
    assert int([rest for name, rest in LINES if name == "USER"][-1]) > 0
    program, arguments = words("ENTRYPOINT"), words("CMD")
    assert program == ["kafkacore"]
    command = [sys.executable, "-m", *program, *arguments, "-p", "0", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            servers = json.loads(process.stdout.readline())["bootstrap_servers"]
            with KafkaAdminClient(bootstrap_servers=servers) as admin:
                assert admin.list_topics() == []
        finally:
            process.send_signal(signal.SIGTERM)  # docker stop
        assert process.wait(60) == 0
