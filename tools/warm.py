"""A process that has imported a room's tests and forks for each mutant. `tools/mutants.py` starts it and asks it over pipes.

Rules
1. A mutant is planted in the child: functions get the code that the changed source has for them, so nothing is imported again.
2. What runs on import cannot be planted so, and tests that start processes of their own do not meet the mutant. So a mutant that survives
   here is tried in the long way, too.
3. A test that fails here without a mutant, since its process is not new, says nothing: the first time that a test notices a mutant, it
   runs once more without.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import select
import signal
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOT_PLANTED = 99
"""Exit code of a child in which the mutant has no place."""


def codes_of(source: bytes, file: str) -> dict[tuple[str, int], types.CodeType]:
    """The code of each function of a source, by its qualified name and which of that name it is. Bodies of classes are none."""
    seen: Counter[str] = Counter()

    def walk(code: types.CodeType) -> Iterator[tuple[tuple[str, int], types.CodeType]]:
        for each in code.co_consts:
            if isinstance(each, types.CodeType):
                if each.co_flags & inspect.CO_OPTIMIZED:
                    yield (each.co_qualname, seen[each.co_qualname]), each
                seen[each.co_qualname] += 1
                yield from walk(each)

    return dict(walk(compile(source, file, "exec", dont_inherit=True)))


def plant(file: str, source: bytes, changed: bytes) -> bool:
    """Gives the functions of an imported file the code of a changed source.

    Returns:
        Whether each function whose code changed has it now: one that was made within another needs none of its own.
    """
    old, new = codes_of(source, file), codes_of(changed, file)
    if old.keys() != new.keys():
        return False
    places = {(code.co_qualname, code.co_firstlineno): new[name] for name, code in old.items() if code != new[name]}
    met = set()
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and each.__code__.co_filename == file:
            place = each.__code__.co_qualname, each.__code__.co_firstlineno
            if place in places:
                each.__code__ = places[place]
                met.add(place)
    outermost = {place for place in places if "<locals>" not in place[0] and not place[0].endswith(">")}
    return bool(met) and outermost <= met


def in_child(asked: dict[str, Any], arguments: list[str]) -> int:
    import pytest

    if asked["changed"] is not None:
        file = str(Path(asked["file"]).resolve())
        try:
            if not plant(file, Path(file).read_bytes(), asked["changed"].encode()):
                return NOT_PLANTED
        except ValueError:  # of other free variables
            return NOT_PLANTED
    return int(pytest.main([*arguments, *asked["arguments"]]))


def answered(asked: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    """Runs tests in a child of its own."""
    output = Path(asked["output"])
    child = os.fork()
    if child == 0:
        code = 98
        try:
            os.setsid()
            with output.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            code = in_child(asked, arguments)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    ended = os.pidfd_open(child)
    in_time = bool(select.select([ended], [], [], asked["limit_s"])[0])
    os.close(ended)
    try:
        os.killpg(child, signal.SIGKILL)  # with all that it started
    except ProcessLookupError:
        pass
    _, status = os.waitpid(child, 0)
    return {"code": os.waitstatus_to_exitcode(status) if in_time else None}


def main() -> int:
    """The arguments are pytest's for every run, `--`, and the test files."""
    import pytest

    at = sys.argv.index("--")
    arguments, files = sys.argv[1:at], sys.argv[at + 1 :]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    pytest.main([*arguments, "--collect-only", *files])
    gc.unfreeze()
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(answered(json.loads(line), arguments)) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
