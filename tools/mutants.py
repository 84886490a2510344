"""Mutation testing: plants one small fault at a time and runs the tests that reach it. A fault that no test notices is a survivor.

    make mutants ARGS="--room net --count 40 --seed 7"     a sample of a room
    make mutants ARGS="--changed main --gate"               of the lines that changed since main; exit code 1 for a survivor

How it goes:
1. Everything happens in copies of the checkout's files and of its built extensions. The checkout stays as it is.
2. One run of a room's tests is measured: which test runs which line, and how long it takes. It is kept in build/mutants until the room's
   files or tests change. Slow tests are measured apart, and only when a mutant has survived the quick ones.
3. A mutant meets the tests that run its line: those of files of the same name first, then the fastest. If no test runs it, it counts as not
   covered. It is first planted in a child of a process that has imported them (tools/warm.py); what survives there is tried in files.
4. A compiled mutant is built and meets all tests of its room. One that does not compile is incompetent, and does not count.
5. Survivors that no test can notice are in `tests/mutants.toml`, each with its reason. They are not drawn.

The draw depends on the seed and the code alone. Survivors that are faults want a test.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import compilers
import covered
import mutant_rooms
import mutations
import warm

ROOT = Path(__file__).resolve().parent.parent
KNOWN = ROOT / "tests" / "mutants.toml"
KEPT = ROOT / "build" / "mutants"
SUFFIXES = (".py", ".pyx", ".pxd", ".pxi", ".h")
FIRST_S = 5  # of tests that run before the others are collected
MEMORY_KIB = 8 << 20  # a mutant may ask for memory without end
KILLED, SURVIVED, NOT_COVERED, INCOMPETENT = "killed", "survived", "not covered", "incompetent"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-disable"]
MARKS = {"quick": "not kafka and not spark and not slow", "slow": "not kafka and not spark and slow"}
COVERAGE = """[run]
parallel = true
core = ctrace
data_file = {directory}/lines
context = ${{PYTEST_CURRENT_TEST-}}
include =
{files}
disable_warnings = trace-changed, no-data-collected, module-not-measured, couldnt-parse, already-imported
"""


class Known(NamedTuple):
    """An entry of the list of known survivors."""

    file: str
    code: str
    becomes: str
    reason: str


class Measured(NamedTuple):
    """A run of a room's tests."""

    marks: str
    seconds: dict[str, float]
    """Of each test that passed."""
    lines: dict[str, dict[int, set[str]]]
    """The tests that run a line, by file and line."""


class Warm:
    """A process that has imported the room's tests, in a copy of the checkout (tools/warm.py)."""

    def __init__(self, copy: Path, tests: list[str], marks: str) -> None:
        self._asked = copy / "warm-output"
        self._noticing: dict[str, bool] = {}
        command = [sys.executable, str(copy / "tools" / "warm.py"), *PYTEST[3:], "-x", "-n", "0", "-m", marks, "--", *tests]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit -v {MEMORY_KIB} 2>/dev/null; exec "$@"', "sh", *command],
            cwd=copy,
            env=environment_of(copy, PYTHONDONTWRITEBYTECODE="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            fail(f"the process that has imported the tests ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, mutant: mutations.Mutant, changed: bytes | None, arguments: list[str], limit_s: float) -> tuple[int | None, str]:
        """As `run`; `changed` is the mutant's source, None for what there is."""
        assert self._process.stdin is not None
        text = None if changed is None else changed.decode()
        asked = {"file": mutant.file, "changed": text, "arguments": arguments, "output": str(self._asked), "limit_s": limit_s}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        code = self._answer()["code"]
        return code, self._asked.read_text(errors="replace")

    def killed_by(self, mutant: mutations.Mutant, changed: bytes, of: Measured, budget_s: float) -> str | None:
        """What notices a mutant here; None if nothing does, which says little."""
        for tests in batches(tests_for(mutant, of), of.seconds, budget_s):
            tests = [test for test in tests if self._noticing.get(test, True)]
            while tests:
                limits, limit_s = limits_of(tests, of)
                code, output = self.run(mutant, changed, [*limits, *tests], limit_s)
                if code == warm.NOT_PLANTED or code == 0:
                    break
                by = failed_test(code, output)
                test = covered.function_of(by)
                if test not in tests:
                    return None
                if test not in self._noticing:
                    self._noticing[test] = self.run(mutant, None, [*limits, test], limit_s)[0] == 0
                if self._noticing[test]:
                    return by
                tests.remove(test)
            if code == warm.NOT_PLANTED:
                return None
        return None

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Result(NamedTuple):
    """What became of a mutant."""

    room: str
    mutant: mutations.Mutant
    outcome: str
    seconds: float
    by: str
    """The test that failed, or what else ended the run; how many tests a survivor met."""

    def row(self) -> dict[str, Any]:
        mutant = self.mutant
        place = {"room": self.room, "file": mutant.file, "line": mutant.line, "operator": mutant.operator}
        return place | {
            "code": mutant.code,
            "becomes": mutant.becomes,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 1),
            "by": self.by,
        }


def fail(text: str) -> NoReturn:
    raise SystemExit(f"mutants: {text}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def known_survivors(path: Path = KNOWN) -> list[Known]:
    """The list of known survivors.

    Raises:
        ValueError: an entry is incomplete.
    """
    found = []
    for row in tomllib.loads(path.read_text()).get("mutant", []):
        if row.keys() != set(Known._fields) or not all(row.values()):
            raise ValueError(f"{path.name}: an entry has {', '.join(Known._fields)}: {row}")
        found.append(Known(**row))
    return found


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        fail(f"git {arguments[0]}: {done.stderr.strip().splitlines()[0]}")
    return done.stdout


def copy_of_the_checkout(target: Path) -> None:
    built = [str(path.relative_to(ROOT)) for path in (ROOT / "kafkacore").glob("*.so")]
    for name in [*git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"), *built]:
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def changed_lines(base: str) -> dict[str, set[int]]:
    """The lines of the package that are not as they were at a commit, by file."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    file = ""
    for line in git("diff", "--unified=0", "--no-color", "--no-ext-diff", base, "--", "kafkacore").splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif place := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(place[1]), int(place[2] or 1)
            found[file].update(range(first, first + count))
    return found


def drawn(rooms: list[str], count: int, seed: int, changed: dict[str, set[int]] | None) -> dict[str, list[mutations.Mutant]]:
    """The mutants to try, by room: `count` in each room, or in all of the changed lines."""
    known = {each[:3] for each in known_survivors()}
    owners = mutant_rooms.owners(ROOT / "kafkacore")
    found: dict[str, list[mutations.Mutant]] = {name: [] for name in rooms}
    for name, owner in sorted(owners.items()):
        file = f"kafkacore/{name}"
        if owner not in found or not file.endswith(SUFFIXES) or (changed is not None and file not in changed):
            continue
        found[owner] += [
            mutant
            for mutant in mutations.mutants_of((ROOT / file).read_bytes(), file)
            if mutant.name not in known and (changed is None or mutant.line in changed[file])
        ]
    choose = random.Random(seed).sample
    if changed is None:
        return {room: choose(each, min(count, len(each))) for room, each in found.items()}
    both = [(room, mutant) for room, each in found.items() for mutant in each]
    chosen = choose(both, min(count, len(both)))
    return {room: [mutant for each, mutant in chosen if each == room] for room in rooms if any(each == room for each, _ in chosen)}


def environment_of(copy: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join((str(copy), str(copy / "tools")))
    return os.environ | {"PYTHONPATH": path, "KAFKACORE_SAME_EXAMPLES": "1", "PYTHONDONTWRITEBYTECODE": ""} | more


def run(command: list[str], copy: Path, environment: dict[str, str], limit_s: float | None = None) -> tuple[int | None, str]:
    """Runs a command with all that it starts.

    Returns:
        Its exit code, None if it took too long, and what it printed.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit -v {MEMORY_KIB} 2>/dev/null; exec "$@"', "sh", *command],
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read()


def measured(copy: Path, room: str, speed: str, jobs: int) -> Measured:
    """Which tests of a room run which of its lines, as far as they pass without a mutant."""
    files = [f"kafkacore/{file}" for file in mutant_rooms.files_of(copy / "kafkacore", room)]
    tests = [f"tests/{file}" for file in mutant_rooms.tests_of(copy / "tests", room)]
    digest = hashlib.sha256(b"\0".join((copy / file).read_bytes() for file in (*files, *tests))).hexdigest()[:16]
    kept = KEPT / f"{room}-{speed}-{digest}.json"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        for old in KEPT.glob(f"{room}-{speed}-*.json"):
            old.unlink()
        kept.write_text(json.dumps(measure(copy, files, tests, MARKS[speed], jobs)))
    found = json.loads(kept.read_text())
    if found["failed"]:
        say(f"{room}: left out, since they fail without a mutant: {', '.join(found['failed'])}")
    passed = found["seconds"]
    lines = {
        file: {int(line): {found["tests"][test] for test in each} & passed.keys() for line, each in rows.items()}
        for file, rows in found["lines"].items()
    }
    return Measured(MARKS[speed], passed, lines)


def measure(copy: Path, files: list[str], tests: list[str], marks: str, jobs: int) -> dict[str, Any]:
    import coverage

    with tempfile.TemporaryDirectory(prefix="kafkacore-lines-") as directory:
        settings, output = Path(directory, "settings"), Path(directory, "measured.json")
        settings.write_text(COVERAGE.format(directory=directory, files="\n".join(f"    {copy / file}" for file in files)))
        environment = environment_of(copy, COVERAGE_PROCESS_START=str(settings), **{covered.OUTPUT: str(output)})
        at_once = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else ["-n", "0"]
        code, text = run([*PYTEST, *at_once, "-p", "covered", "--timeout", "300", "-m", marks, *tests], copy, environment)
        if not output.exists() or code not in (0, 1, 5):
            fail(f"the tests do not run without a mutant\n{text[-3000:]}")
        found: dict[str, Any] = json.loads(output.read_text())
        if found["failed"] and not found["seconds"]:
            fail(f"all tests fail without a mutant\n{text[-3000:]}")
        numbers: dict[str, int] = {}
        found["lines"] = {}
        if any(Path(directory).glob("lines.*")):
            collected = coverage.Coverage(config_file=str(settings))
            collected.combine()
            data = collected.get_data()
            for file in data.measured_files():
                found["lines"][str(Path(file).relative_to(copy))] = {
                    line: [numbers.setdefault(covered.function_of(test), len(numbers)) for test in contexts if test]
                    for line, contexts in data.contexts_by_lineno(file).items()
                }
        found["tests"] = list(numbers)
        return found


def tests_for(mutant: mutations.Mutant, of: Measured) -> list[str]:
    """The tests that run a mutant's line, in the order in which they should run: whole files, nearest and fastest first."""
    rows = of.lines.get(mutant.file, {})
    using = {test.partition("::")[0] for test in set[str]().union(*rows.values())}
    first, last = mutant.span
    run = {line: rows[line] for line in ([mutant.line] if mutant.line in rows else range(first, last + 1)) if line in rows}
    chosen = set[str]().union(*run.values())
    if mutant.runs_on_import or (run and not chosen):
        chosen = set(of.seconds)  # other files may use what this file names, or made on import
    stem = set(Path(mutant.file).with_suffix("").parts[1:])
    files: defaultdict[str, list[str]] = defaultdict(list)
    for test in chosen:
        files[test.partition("::")[0]].append(test)

    def key(file: str) -> tuple[bool, bool, float]:
        near = any(word in Path(file).stem for word in stem)
        return file not in using, not near, sum(of.seconds[test] for test in files[file]) / len(files[file])

    return [test for file in sorted(files, key=key) for test in sorted(files[file], key=lambda test: (of.seconds[test], test))]


def batches(tests: list[str], seconds: dict[str, float], budget_s: float) -> Iterator[list[str]]:
    """A first few, that most mutants do not survive, then as many of each file as the budget allows."""
    spent, first = seconds[tests[0]], 1
    while first < len(tests) and spent + seconds[tests[first]] <= min(FIRST_S, budget_s):
        spent += seconds[tests[first]]
        first += 1
    yield tests[:first]
    rounds: Counter[str] = Counter()
    in_turns = []
    for place, test in enumerate(tests[first:]):
        rounds[test.partition("::")[0]] += 1
        in_turns.append((rounds[test.partition("::")[0]], place, test))
    others = []
    for _, place, test in sorted(in_turns):
        if spent + seconds[test] <= budget_s:
            spent += seconds[test]
            others.append((place, test))
    if others:
        yield [test for _, test in sorted(others)]


def failed_test(code: int | None, output: str) -> str:
    """What noticed a mutant."""
    if code is None:
        return "time limit"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return found[1] if found else f"exit code {code}"


def limits_of(tests: list[str], of: Measured) -> tuple[list[str], float]:
    """pytest's time limit for each of the tests, and seconds for all of them."""
    slowest = max(of.seconds[test] for test in tests)
    return ["--timeout", str(int(20 + 5 * slowest))], 120 + 5 * sum(of.seconds[test] for test in tests)


def outcome_of(mutant: mutations.Mutant, copy: Path, of: Measured, budget_s: float, warm_up: Callable[[], Warm]) -> tuple[str, str]:
    tests = tests_for(mutant, of)
    if not tests:
        return NOT_COVERED, ""
    path = copy / mutant.file
    source, times = path.read_bytes(), path.stat()
    try:
        changed = mutant.plant(source)
        try:
            compile(changed, mutant.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            return INCOMPETENT, str(error)
        if not mutant.runs_on_import and (by := warm_up().killed_by(mutant, changed, of, budget_s)):
            return KILLED, by
        path.write_bytes(changed)
        os.utime(path)  # the compiled form of the unchanged file stays, and is used again afterwards
        environment = environment_of(copy, PYTHONDONTWRITEBYTECODE="1")
        ran = 0
        for batch in batches(tests, of.seconds, budget_s):
            limits, limit_s = limits_of(batch, of)
            code, output = run([*PYTEST, "-x", "-n", "0", *limits, "-m", of.marks, *batch], copy, environment, limit_s)
            if code != 0:
                return KILLED, failed_test(code, output)
            ran += len(batch)
        return SURVIVED, f"{ran} of {len(tests)} tests"
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def build(copy: Path, extension: str, *, cheaply: bool = True) -> str | None:
    """Builds one extension of a copy in place, without optimizing.

    Returns:
        What the compilers said if it fails, else None.
    """
    setup = (copy / "setup.py").read_text()
    own = setup.replace("-O3", "-O0").replace('[extension("_codec"), extension("_wheel")]', f'[extension("{extension}")]')
    if own.count("-O0") != 1 or own.count("[extension(") != 1:
        fail("setup.py does not name its extensions as it did")
    (copy / "setup_one.py").write_text(own)
    environment = os.environ | (compilers.environment_of_a_compiler() or {})
    code, output = run([sys.executable, "setup_one.py", "-q", "build_ext", "--inplace"], copy, environment, 1200)
    return None if code == 0 else output[-2000:]


def outcome_of_compiled(room: str, mutant: mutations.Mutant, copy: Path) -> tuple[str, str]:
    path = copy / mutant.file
    source = path.read_bytes()
    try:
        path.write_bytes(mutant.plant(source))
        refused = build(copy, room.replace("native-", "_"))
        if refused is not None:
            return INCOMPETENT, refused.strip().rpartition("\n")[2]
        tests = [f"tests/{file}" for file in mutant_rooms.tests_of(copy / "tests", room)]
        tests.sort(key=lambda test: path.stem[:5] not in test)  # "accumulate" is near "test_accumulator"
        command = [*PYTEST, "-x", "-n", "0", "--timeout", "120", "-m", MARKS["quick"], *tests]
        code, output = run(command, copy, environment_of(copy, PYTHONDONTWRITEBYTECODE="1"), 1800)
        return (SURVIVED, "") if code == 0 else (KILLED, failed_test(code, output))
    finally:
        path.write_bytes(source)


def results_of(room: str, chosen: list[mutations.Mutant], jobs: int, quick: bool, budget_s: float) -> Iterator[Result]:
    """Tries the mutants of a room."""
    with tempfile.TemporaryDirectory(prefix="kafkacore-mutants-") as directory:
        first = Path(directory, "0")
        copy_of_the_checkout(first)
        runs = [] if room in mutant_rooms.NATIVE else [measured(first, room, "quick", jobs)]
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        copies.put(first)
        for number in range(1, jobs):
            copies.put(Path(shutil.copytree(first, Path(directory, str(number)))))

        processes: dict[tuple[Path, str], Warm] = {}
        tests = [f"tests/{file}" for file in mutant_rooms.tests_of(first / "tests", room)]

        def warmed(copy: Path, marks: str) -> Warm:
            if (copy, marks) not in processes:
                processes[copy, marks] = Warm(copy, tests, marks)
                ends.callback(processes[copy, marks].end)
            return processes[copy, marks]

        def tried(mutant: mutations.Mutant, of: Measured | None) -> Result:
            copy, began = copies.get(), time.monotonic()
            try:
                if of is None:
                    outcome, by = outcome_of_compiled(room, mutant, copy)
                else:
                    outcome, by = outcome_of(mutant, copy, of, budget_s, functools.partial(warmed, copy, of.marks))
            finally:
                copies.put(copy)
            return Result(room, mutant, outcome, time.monotonic() - began, by)

        with contextlib.ExitStack() as ends, ThreadPoolExecutor(jobs) as threads:
            left = []
            for result in threads.map(lambda mutant: tried(mutant, runs[0] if runs else None), chosen):
                if runs and not quick and result.outcome in (SURVIVED, NOT_COVERED):
                    left.append(result)
                else:
                    yield result
            if not left:
                return
            slow = measured(first, room, "slow", jobs)
            for before, result in zip(left, threads.map(lambda each: tried(each.mutant, slow), left), strict=True):
                outcome = before.outcome if result.outcome == NOT_COVERED else result.outcome
                yield result._replace(outcome=outcome, seconds=before.seconds + result.seconds)


def table(counts: dict[str, Counter[str]]) -> str:
    lines = [f"{'room':20} mutants  killed  survived  not covered  incompetent  score"]
    for room, each in counts.items():
        competent = each[KILLED] + each[SURVIVED] + each[NOT_COVERED]
        score = f"{100 * each[KILLED] / competent:4.0f} %" if competent else "     -"
        lines.append(
            f"{room:20} {each.total():7} {each[KILLED]:7} {each[SURVIVED]:9} {each[NOT_COVERED]:12} {each[INCOMPETENT]:12} {score}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="plants faults and runs the tests that should notice them", prog="make mutants ARGS=...")
    parser.add_argument("--room", metavar="ROOM", action="append", help="which; all Python rooms if left out")
    parser.add_argument("--count", type=int, default=20, help="mutants per room, or of all changed lines")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--changed", metavar="BASE", nargs="?", const="main", help="only lines that changed since this commit")
    parser.add_argument("--gate", action="store_true", help="exit code 1 for a survivor that tests/mutants.toml does not name")
    parser.add_argument("--quick", action="store_true", help="leave out slow tests")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests per mutant, as they take without one")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once")
    parser.add_argument("--json", action="store_true", help="a line of JSON per mutant instead of text")
    options = parser.parse_args()
    if min(options.count, options.jobs, options.budget) < 1:
        fail("--count, --jobs and --budget are 1 or more")
    if unknown := set(options.room or ()) - mutant_rooms.ROOMS.keys():
        fail(f"there is no room {', '.join(sorted(unknown))}; the rooms are {', '.join(sorted(mutant_rooms.ROOMS))}")
    rooms = options.room or [name for name in mutant_rooms.ROOMS if options.changed or name not in mutant_rooms.NATIVE]
    changed = changed_lines(options.changed) if options.changed else None
    chosen = drawn(rooms, options.count, options.seed, changed)
    counts: dict[str, Counter[str]] = {}
    for room, mutants in chosen.items():
        counts[room] = Counter()
        for result in results_of(room, mutants, options.jobs, options.quick, options.budget):
            counts[room][result.outcome] += 1
            if options.json:
                print(json.dumps(result.row()), flush=True)
                continue
            mutant = result.mutant
            place = f"{mutant.file}:{mutant.line}"
            head = f"{room} {counts[room].total()}/{len(mutants)}  {result.outcome:11}  {place}  {mutant.operator}  {result.seconds:.0f} s"
            print(f"{head}  {result.by}".rstrip(), flush=True)
            if result.outcome != KILLED:
                print(f"    - {mutant.code}\n    + {mutant.becomes}", flush=True)
    say(table(counts) if counts else "no line of the package changed that a mutant could change")
    survivors = sum(each[SURVIVED] + each[NOT_COVERED] for each in counts.values())
    return 1 if options.gate and survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
