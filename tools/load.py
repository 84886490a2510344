"""Runs the tests beside busy loops, as on a machine that has more to do than it can.

    tools/load.py [--loops N] [OPTION...]   options go to pytest; six loops by default

What a test waits for comes late here: a test that compares times, or waits for too short a time, goes red. Only the limit that ends a test
that hangs is longer, whatever the test's own marker says. The loops end with this program, whatever ends it: each looks every few
milliseconds whether its parent is still there.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOOPS = 6
TIMEOUT_S = 1800
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(100_000):\n        pass\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """This file is pytest's plugin, too."""
    for item in items:
        item.add_marker(pytest.mark.timeout(TIMEOUT_S), append=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0], allow_abbrev=False)
    parser.add_argument("--loops", type=int, default=LOOPS, help=f"busy loops (default {LOOPS})")
    options, rest = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that the loops are ended
    loops = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(options.loops)]
    try:
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "pytest", "-p", "load", *rest]
        return subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}).returncode
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


if __name__ == "__main__":
    sys.exit(main())
