"""A short, repeatable piece of the fuzz loop; `make sanitize` and tests/fuzz_loop.py run it for longer."""

import random

from fuzz_loop import TARGETS, run

from tests.kit.rows import each_row


@each_row("name", TARGETS)
def test_only_corrupt_data_errors_come_out(name: str) -> None:
    taken, refused = run(name, random.Random(f"1 {name}"), 400)
    assert taken > 0
    assert refused > 0


@each_row("name", TARGETS)
def test_samples_are_valid(name: str) -> None:
    rng = random.Random(f"2 {name}")
    for _ in range(30):
        sample = TARGETS[name].sample(rng)
        if name != "varints":  # their reader also asks for more values than there are
            TARGETS[name].read(sample, rng)
