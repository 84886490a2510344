"""A cluster under faults for any length of time: leaders and coordinators move, brokers die, credentials expire, and no promise is broken.

    python -m tests.soak --seconds 600 --seed 1 --json
    python -m tests.soak --group --seconds 600 --seed 1 --json
    python -m tests.soak --transactions --seconds 600 --seed 1 --json

Without an option clients with credentials play (plain.py). --group plays members of one group, by each protocol in turn (group.py).
--transactions plays transactional producers, a group that copies what they write, and readers (transactions.py): first in one process, then
with a process for each broker. --face aio plays each of them with the asyncio clients, all in one event loop (tests/kit/faces.py).

Progress and findings go to stderr; --json ends stdout with one line of figures. The exit code is 1 with findings.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import sys
from collections.abc import Iterator

from tests.kit.faces import face_in
from tests.soak import credentials, group, members, plain_clients, transacting, transactions
from tests.soak.frame import Soak
from tests.soak.group import GroupSoak
from tests.soak.members import PROTOCOLS
from tests.soak.plain import PlainSoak
from tests.soak.transactions import TransactionSoak

FACED = (credentials, plain_clients, group, members, transacting, transactions)
"""Modules that make clients of either face."""
STRIKES = 3
"""How many faults a half second of transactions has."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def soaks(options: argparse.Namespace, seed: int) -> Iterator[Soak]:
    """The runs, which share the time."""
    seconds = options.seconds
    if options.group:
        for protocol in PROTOCOLS:
            yield GroupSoak(protocol, seed, seconds=seconds / len(PROTOCOLS), say=say)
    elif options.transactions:
        for processes, share in ((False, 0.75), (True, 0.25)):
            network = not processes
            yield TransactionSoak(seed, seconds=seconds * share, network=network, processes=processes, strikes=STRIKES, say=say)
    else:
        yield PlainSoak(seed, seconds=seconds, disk=not options.memory, say=say)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long faults go on (default 60)")
    parser.add_argument("--seed", type=int, default=None, help="the same faults again")
    parser.add_argument("--memory", action="store_true", help="the brokers keep their logs in memory, not in a temporary directory")
    parser.add_argument("--group", action="store_true", help="members of one group under faults, by each protocol")
    parser.add_argument("--transactions", action="store_true", help="transactional producers, a copying group and readers under faults")
    parser.add_argument("--face", choices=("sync", "aio"), default="sync", help="the synchronous clients, or those for asyncio")
    parser.add_argument("--json", action="store_true", help="figures as one line of JSON at the end")
    options = parser.parse_args()
    faulthandler.enable()
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)
    say(f"soak: seed {seed}, {options.seconds:.0f} s")
    with face_in(options.face, *FACED):
        runs = [soak.run() for soak in soaks(options, seed)]
    findings = [f"{run['soak']}: {finding}" for run in runs for finding in run["findings"]]
    for finding in findings:
        say(f"soak: {finding}")
    if options.json:
        print(json.dumps({"seed": seed, "runs": runs, "findings": findings}))
    else:
        for run in runs:
            for name, value in run.items():
                if name != "findings":
                    say(f"{run['soak']}: {name}: {value}")
    say(f"soak: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
