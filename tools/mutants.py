"""Mutation testing: changes one operator, number or condition of a room's code at random and runs the room's tests; survivors are printed.

A survivor is a change that no test of the room notices. Some are no faults (a log line, a size hint); those that are want a test.

    make mutants ARGS="--room net --count 40 --seed 7"

Everything happens in a copy of the tracked files and the built extension, so that the checkout stays as it is. Only Python is changed, no
native code, no annotations. The sample depends on the seed and the code alone.

Source: cosmic-ray, whose operators these are.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_NO_TESTS = 5  # pytest's exit code
# A room: its files, and the tests that run for each mutant.
ROOMS = {
    "producer": (["kafkacore/producer"], ["tests/producer"]),
    "consumer": (["kafkacore/consumer"], ["tests/consumer"]),
    "net": (["kafkacore/net"], ["tests/net"]),
    "log": (["kafkacore/broker/log"], ["tests/broker/test_log*.py", "tests/broker/test_compaction.py", "tests/broker/test_validate.py"]),
    "partition": (
        ["kafkacore/broker/partition.py"],
        ["tests/broker/test_partition.py", "tests/broker/test_handlers.py", "tests/broker/test_replication_model.py"],
    ),
}
# "int | None" in an annotation is never run; the sign of a type is no operator.
SKIPPED_OPERATORS = ("BitOr", "RemoveDecorator")


def copy_of_the_checkout(target: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    built = [str(path.relative_to(ROOT)) for path in (ROOT / "kafkacore").glob("*.so")]
    for name in [*filter(None, listed.split("\0")), *built]:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def sample(copy: Path, files: list[str], count: int, seed: int) -> list[Any]:
    """`count` mutations of the files, drawn from all there are."""
    from cosmic_ray.commands.init import init
    from cosmic_ray.modules import find_modules
    from cosmic_ray.work_db import WorkDB, use_db

    with use_db(str(copy / "mutants.sqlite"), WorkDB.Mode.create) as work:
        init(find_modules([copy / file for file in files]), work, {})
        found = [
            mutation
            for item in work.work_items
            for mutation in item.mutations
            if not any(part in mutation.operator_name for part in SKIPPED_OPERATORS)
        ]
    # By the file and the place, so that the draw is the same wherever the copy is.
    found.sort(key=lambda each: (str(each.module_path.relative_to(copy)), each.start_pos, each.operator_name, each.occurrence))
    return random.Random(seed).sample(found, min(count, len(found)))


def test_command(copy: Path, tests: list[str], limit_s: int, marks: str) -> str:
    names = [str(path) for pattern in tests for path in sorted(copy.glob(pattern))]
    return (
        f"env PYTHONPATH={copy} PYTHONDONTWRITEBYTECODE=1 {sys.executable} -m pytest -x -q -n 0 -p no:cacheprovider --benchmark-disable"
        f" --timeout {limit_s} -m 'not kafka and {marks}' {' '.join(names)}"
    )


def run(room: str, count: int, seed: int, limit_s: int) -> Iterator[dict[str, Any]]:
    """Tests the mutants of a room, one after the other.

    Yields:
        For each mutant its file, line, operator, outcome (killed, survived, incompetent), seconds and diff.
    """
    from cosmic_ray.mutating import mutate_and_test

    files, tests = ROOMS[room]
    with tempfile.TemporaryDirectory(prefix="kafkacore-mutants-") as directory:
        copy = Path(directory)
        copy_of_the_checkout(copy)
        # First the quick tests; what survives them meets the slow ones. Each run has a limit, since a mutant may loop outside of any test:
        # three times the run without a mutant, and a minute, is enough for all others.
        runs: list[tuple[str, float]] = []
        for marks in ("not slow", "slow"):
            command = test_command(copy, tests, limit_s, marks)
            began = time.monotonic()
            unchanged = subprocess.run(command, shell=True, cwd=copy, capture_output=True, text=True)
            if unchanged.returncode not in (0, _NO_TESTS):
                raise SystemExit(f"{room}: the tests fail without a mutant\n{unchanged.stdout[-3000:]}")
            if unchanged.returncode == 0:
                runs.append((command, 3 * (time.monotonic() - began) + 60))
        for mutation in sample(copy, files, count, seed):
            began = time.monotonic()
            for command, most_s in runs:
                result = mutate_and_test([mutation], command, most_s)
                if result.test_outcome is None or result.test_outcome.value != "survived":
                    break
            yield {
                "room": room,
                "file": str(mutation.module_path.relative_to(copy)),
                "line": mutation.start_pos[0],
                "operator": mutation.operator_name.removeprefix("core/"),
                "outcome": result.test_outcome.value if result.test_outcome else result.worker_outcome.value,
                "seconds": round(time.monotonic() - began, 1),
                "diff": [line for line in (result.diff or "").splitlines() if line[:1] in "+-" and line[:3] not in ("---", "+++")],
            }


def main() -> int:
    parser = argparse.ArgumentParser(description="mutation testing of a room", prog="make mutants ARGS=...")
    parser.add_argument("--room", choices=sorted(ROOMS), action="append", help="which; all if left out")
    parser.add_argument("--count", type=int, default=40, help="mutants per room")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--limit", type=int, default=60, help="seconds one test may take")
    parser.add_argument("--json", action="store_true", help="a line of JSON per mutant instead of text")
    options = parser.parse_args()
    for room in options.room or sorted(ROOMS):
        outcomes: Counter[str] = Counter()
        for mutant in run(room, options.count, options.seed, options.limit):
            outcomes[mutant["outcome"]] += 1
            if options.json:
                print(json.dumps(mutant), flush=True)
                continue
            print(f"{room} {sum(outcomes.values())}/{options.count} {mutant['outcome']}: {mutant['file']}:{mutant['line']}", flush=True)
            if mutant["outcome"] == "survived":
                print("".join(f"    {line}\n" for line in mutant["diff"]), end="", flush=True)
        tested = sum(outcomes.values())
        if not options.json:
            print(f"{room}: {tested - outcomes['survived']} of {tested} mutants found ({dict(outcomes)})", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
