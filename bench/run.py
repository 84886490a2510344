"""Runs every comparison in this folder, prints its tables and saves its JSON in bench/results; with --base, tells what changed since then.

    python bench/run.py                         # all
    python bench/run.py crc varints             # some
    python bench/run.py --base bench/results/OLDER_COMMIT crc

The scripts are those that end with harness.report(). Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from harness import Table, Timing, Verdict, machine

HERE = Path(__file__).resolve().parent
WORTH_TELLING = 0.1


def scripts() -> list[str]:
    found = (path for path in HERE.glob("*.py") if path.stem not in ("run", "harness"))
    return sorted(path.stem for path in found if "report(" in path.read_text(encoding="utf-8"))


def ratios(data: dict[str, object]) -> dict[str, float]:
    """Every peer's time over the first case's, which a slower machine changes less than the times themselves."""
    out: dict[str, float] = {}
    for table in data["tables"]:  # type: ignore[attr-defined]
        for label, row in table["rows"].items():
            first, *others = row
            for other in others if row[first]["median_ns"] else ():
                out[f"{table['title']}, {label}: {other} / {first}"] = row[other]["median_ns"] / row[first]["median_ns"]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default all: {', '.join(scripts())})")
    parser.add_argument("--base", type=Path, help="folder with the results of an earlier run")
    options = parser.parse_args()
    if unknown := set(options.names) - set(scripts()):
        parser.error(f"no comparison {', '.join(sorted(unknown))}; there are {', '.join(scripts())}")
    results = HERE / "results" / re.sub(r"[^\w.-]", "_", str(machine()["commit"] or "unversioned"))
    results.mkdir(parents=True, exist_ok=True)
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    failed = []
    for name in options.names or scripts():
        command = [sys.executable, str(HERE / f"{name}.py"), "--json"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            failed.append(name)
            continue
        (results / f"{name}.json").write_text(done.stdout, encoding="utf-8")
        data = json.loads(done.stdout)
        for table in data["tables"]:
            rows = {label: {case: Timing(**timing) for case, timing in row.items()} for label, row in table["rows"].items()}
            goals = {label: {case: Verdict(**verdict) for case, verdict in row.items()} for label, row in table.get("goals", {}).items()}
            print(Table(table["title"], table["unit"], rows, goals).text(), end="\n\n", flush=True)
        if options.base and (older := options.base / f"{name}.json").exists():
            before = ratios(json.loads(older.read_text(encoding="utf-8")))
            for what, now in ratios(data).items():
                if what in before and abs(now / before[what] - 1) > WORTH_TELLING:
                    print(f"changed: {what} was {before[what]:.2f}, is {now:.2f}")
    print(f"saved in {results}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
