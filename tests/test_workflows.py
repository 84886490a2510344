"""What CI says it does: jobs have time limits, what they run exists, and what only a variable switches on runs each night."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NIGHTLY = ROOT / ".github" / "workflows" / "nightly.yml"
PLACES = {"KAFKACORE_CACHE", "KAFKACORE_KAFKA_JARS", "KAFKACORE_PARALLELISM", "KAFKACORE_BOOTSTRAP_SERVERS"}
"""Variables that change nothing of what is tested."""
READ = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\(|^SWITCH = )["'](KAFKACORE_\w+)|["'](KAFKACORE_\w+)["'] in os\.environ""", re.M)
LONGEST_MINUTES = 360


def jobs_of(workflow: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def commands() -> str:
    steps = [step for workflow in WORKFLOWS for job in jobs_of(workflow).values() for step in job["steps"]]
    return "\n".join([*(step["run"] for step in steps if "run" in step), (ROOT / ".ci" / "run").read_text()])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_every_job_has_a_time_limit(workflow: Path) -> None:
    limits = {name: job.get("timeout-minutes") for name, job in jobs_of(workflow).items()}
    assert limits
    assert all(isinstance(limit, int) and 0 < limit < LONGEST_MINUTES for limit in limits.values()), limits


def test_what_jobs_run_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    run = set(re.findall(r"^(?:\S+=\S+ )*make ([a-z-]+)", commands(), re.M))
    steps = re.search(r"for step in (.*); do", (ROOT / ".ci" / "run").read_text())
    assert steps
    assert {"lint", "test", "load"} <= run
    assert (run | set(steps[1].split())) - targets == set()
    tools = set(re.findall(r"\btools/[\w./]+", commands()))
    assert tools
    assert all((ROOT / tool).exists() for tool in tools), tools


def test_every_switch_of_the_tests_is_on_in_some_job_of_the_night() -> None:
    read = {name for file in (ROOT / "tests").rglob("*.py") for found in READ.findall(file.read_text()) for name in found if name}
    assert {"KAFKACORE_FACES", "KAFKACORE_SEEDS", "KAFKACORE_SAME_EXAMPLES", "KAFKACORE_EXPECTED_SKIPS"} <= read
    given = set()
    for job in jobs_of(NIGHTLY).values():
        given |= set(job.get("env", {}))
        given |= {name for step in job["steps"] for name in re.findall(r'echo "(KAFKACORE_\w+)=.*GITHUB_ENV', step.get("run", ""))}
    assert read - PLACES - given == set()
    assert given - read == set(), "no test reads it"


def test_the_night_leaves_nothing_out_on_kafka() -> None:
    kafka = [job for job in jobs_of(NIGHTLY).values() if any("-m kafka" in step.get("run", "") for step in job["steps"])]
    assert kafka
    assert all(job["env"].get(name) == "all" for job in kafka for name in ("KAFKACORE_FACES", "KAFKACORE_KAFKA"))


def test_a_change_is_judged_by_the_same_examples_and_expected_skips() -> None:
    switches = {"KAFKACORE_SAME_EXAMPLES", "KAFKACORE_EXPECTED_SKIPS"}
    assert set(yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["env"]) == switches
    assert set(re.findall(r"(KAFKACORE_\w+)=1", (ROOT / ".ci" / "run").read_text())) == switches


def test_some_job_of_the_night_tries_new_examples() -> None:
    def runs_tests(job: dict[str, Any]) -> bool:
        return any(step.get("run", "").startswith("make test ") for step in job["steps"])

    jobs = jobs_of(NIGHTLY)
    assert any(runs_tests(job) and "KAFKACORE_SAME_EXAMPLES" not in job.get("env", {}) for job in jobs.values())
