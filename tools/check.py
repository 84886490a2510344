"""The tests of what changed, or of a room, the nearest first.

    make check                      what differs from where the branch left main
    make check ROOM=consumer        a room: a package below kafkacore, as broker/log, or a module at its top
    make check ALL=1                slow tests too, and no limit of time
    make check ARGS=--list          only say which tests, in which order and why; --json for programs

ruff looks at the changed files and the floors are checked. The tests without a network follow, then the others. The first failure ends it.

The walk of `tools/house.py` shows how near a test is, and whether it has a network. It begins at the definitions of a test file and follows
the names that they use: through helpers, fixtures and the package. The distance of a module is the number of names on the way to it. A test
file has no network if no way leads to a name of NETWORK. The walk knows no types: it does not see what a method calls on an object that it
was given. It sees the code that makes the object, since this names the class.
"""

import argparse
import difflib
import functools
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from house import Source, files, module_name, read

ROOT = Path(__file__).resolve().parent.parent
NETWORK = {
    *("socket", "socketserver", "subprocess", "multiprocessing", "http", "urllib.request", "kafka", "aiokafka", "confluent_kafka"),
    *("os.fork", "os.posix_spawn", "os.system", "asyncio.start_server", "asyncio.open_connection", "asyncio.create_subprocess_exec"),
    "@pytester",
}
"""Modules, functions and fixtures that reach outside of the process."""
HARMLESS = {"socket.getaddrinfo", "socket.gaierror", "subprocess.CalledProcessError", "http.HTTPStatus"}
NEAR = 2  # a test is about modules that are so many names away: it uses them itself, or through a helper
FAR = 99
NO_TESTS = 5  # pytest's exit code
PLUGINS = ("tests.kit.faces", "kafkacore.testing.plugin")  # with fixtures that every test sees, beside conftest.py
LIMIT_S = 165  # no test with a network begins later, so that the end comes within three minutes; the others run on a busy machine too
LATE = f"their turn came after {LIMIT_S} s"
Node = tuple[str, str]


class Test(NamedTuple):
    """A test file, how far away what is checked is, and whether it has no network."""

    file: str
    distance: int
    quiet: bool


class House:
    """The definitions of the package, its tests and its tools, and where the names in them lead."""

    def __init__(self, root: Path) -> None:
        self.root = root
        python, cython = files(root)
        self.tests = sorted(path for path in root.glob("tests/**/test_*.py") if not {"interop", "live"} & set(path.parts))
        self.paths = {module_name(path, root): path for path in [*cython, *python, *root.glob("tests/**/*.py"), *root.glob("tools/*.py")]}
        self.modules = set(self.paths)
        self.rooms = {part for name in self.modules for part in rooms_of(name)}
        self._walks: dict[Path, tuple[dict[str, int], bool]] = {}

    @functools.cache  # noqa: B019 - one house in a run
    def source(self, module: str) -> tuple[Source, dict[str, Node]]:
        path = self.paths.get(module)
        if path is None or path.suffix != ".py":
            return Source([], {}), {}
        source = read(path, self.root, self.modules)
        return source, {found.bound: (found.target, found.name) for found in source.imports if found.bound}

    @functools.cache  # noqa: B019
    def resolve(self, module: str, use: str) -> Node | None:
        """Where a name, perhaps with attributes, of a module leads: (module, definition), (module, "*") for all of it."""
        source, bound = self.source(module)
        head = use.partition(".")[0]
        if head in source.uses:
            return module, head
        if use in self.modules and head not in bound:  # a dynamic import
            return use, "*"
        known = use
        while known and known not in bound:
            known = known.rpartition(".")[0]
        if known:
            target, name = bound[known]
            parts = [*filter(None, [name, *use.removeprefix(known).split(".")])]
            while parts and f"{target}.{parts[0]}" in self.modules:
                target = f"{target}.{parts.pop(0)}"
            return target, parts[0] if parts else "*"
        return (use, "*") if head in NETWORK or use in NETWORK else None

    @functools.cache  # noqa: B019
    def steps(self, node: Node) -> list[tuple[str, Node | None]]:
        """The names that a definition uses, and where they lead."""
        module, name = node
        source, bound = self.source(module)
        uses = source.uses.get(name, {name} if name in bound else set())
        if name == "*":
            uses = {*source.uses, *(bound if module in ("kafkacore", "kafkacore.testing") else ())}  # whose names are of other modules
        return [(use, self.resolve(module, use)) for use in sorted(uses)]

    def fixtures(self, path: Path) -> list[str]:
        """Modules whose fixtures a test file sees, the nearest first."""
        above = [module_name(each / "conftest.py", self.root) for each in path.parents if self.root in each.parents]
        return [each for each in (*above, *PLUGINS) if each in self.modules]

    def walk(self, path: Path) -> tuple[dict[str, int], bool]:
        """How far away from a test file each module is, and whether no way leads to a network."""
        if path not in self._walks:
            own = module_name(path, self.root)
            shared = self.fixtures(path)
            begin = [(own, name) for name in self.source(own)[0].uses]
            begin += [(each, name) for each in shared for name, uses in self.source(each)[0].uses.items() if "autouse" in uses]
            seen = dict.fromkeys(begin, 0)
            waiting, distances, quiet = deque(begin), {own: 0}, True
            while waiting and (quiet or seen[waiting[0]] <= NEAR):
                node = waiting.popleft()
                for use, found in self.steps(node):
                    if use.startswith("@") and node[0] in (own, *shared):
                        found = next(((each, use[1:]) for each in (own, *shared) if use[1:] in self.source(each)[0].uses), None)
                    quiet = quiet and use not in NETWORK and not reaches_out(found)
                    if found is None or found in seen:
                        continue
                    seen[found] = seen[node] + 1
                    distances.setdefault(found[0], seen[found])
                    waiting.append(found)
            self._walks[path] = distances, quiet
        return self._walks[path]

    def nearest(self, path: Path, modules: set[str]) -> int:
        return min((far for module, far in self.walk(path)[0].items() if module in modules), default=FAR)


def reaches_out(node: Node | None) -> bool:
    """Whether a definition is a network's; its constants are not."""
    if node is None or node[1].isupper() or ".".join(node) in HARMLESS:
        return False
    return not NETWORK.isdisjoint((node[0], node[0].split(".")[0], ".".join(node)))


def rooms_of(module: str) -> list[str]:
    """Those of kafkacore.broker.log.segment are "broker/log" and "broker"."""
    parts = module.split(".")[1:] if module.startswith("kafkacore.") else []
    return ["/".join(parts[:end]) for end in range(max(len(parts) - 1, 1), 0, -1)] if parts else []


def modules_of(house: House, room: str) -> set[str]:
    return {name for name in house.modules if f"{name}.".startswith(f"kafkacore.{room.replace('/', '.')}.")}


def tests_of(house: House, room: str) -> set[Path]:
    """The tests of a room: its directory's, those named after it, and those without a network that are about its modules."""
    top, *inner = room.split("/")
    modules, name = modules_of(house, room), room.rpartition("/")[2].removesuffix("s")
    there = house.root / "tests" / top
    beside = [path for path in house.tests if path.is_relative_to(there)]
    if beside and not inner:
        return set(beside)
    named = {path for path in beside or house.tests if path.stem.removeprefix("test_").startswith(name)}
    return named | {path for path in beside or house.tests if house.nearest(path, modules) <= NEAR and (beside or house.walk(path)[1])}


def choose(house: House, room: str | None, changed: list[str]) -> list[Test]:
    """The tests of the room, or of what changed: the nearest first, those without a network before the others."""
    names = {file: module_name(house.root / file, house.root) for file in changed if file.startswith(("kafkacore/", "tests/", "tools/"))}
    modules = {name for name in names.values() if name in house.modules}
    if room is not None:
        paths = tests_of(house, room)
    else:
        paths = {house.root / file for file in names} & set(house.tests)
        for inside in {rooms_of(name)[0] for name in names.values() if rooms_of(name)}:
            paths |= tests_of(house, inside)
        helpers = {name for name in modules if name.startswith("tests.")}
        paths |= {path for path in house.tests if house.nearest(path, modules if house.walk(path)[1] else helpers) <= NEAR}
        others = [file for file in changed if file not in names]
        paths |= {path for path in house.tests if any(names_file(path.read_text(encoding="utf-8"), file) for file in others)}
    inner = modules_of(house, room) if room is not None else modules
    wanted = modules & inner or inner
    about = [file for file, name in names.items() if name in inner] or [room or ""]
    words = {Path(each).stem.strip("_").removesuffix("s") for each in about}
    found = [Test(str(path.relative_to(house.root)), house.nearest(path, wanted), house.walk(path)[1]) for path in paths]
    return sorted(found, key=lambda each: (not each.quiet, each.distance > NEAR, not any(word in each.file for word in words), each))


def names_file(text: str, file: str) -> bool:
    """Whether a test's text names a file that is no module: itself, or its directory and its kind."""
    path = Path(file)
    inside = len(path.parts) > 1 and f'"{path.parent}"' in text
    return path.name in text or (inside and (path.suffix == ".py" or f"*{path.suffix}" in text))


def changed_files(root: Path, base: str | None) -> list[str]:
    """What differs from `base`, or from where the branch left main, committed or not."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()

    start = base or next((found[0] for each in ("main", "origin/main") if (found := git("merge-base", "HEAD", each))), "HEAD")
    if base and not git("rev-parse", "--verify", f"{base}^{{commit}}"):
        raise SystemExit(f"check: git knows no commit {base!r}")
    return sorted({*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")})


# As a plugin of pytest (`-p check`): it keeps the order, and begins no test after the limit.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    order = {id(item): number for number, item in enumerate(items)}
    yield
    items.sort(key=lambda item: order[id(item)])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get("KAFKACORE_CHECK_UNTIL", "inf")):
        pytest.skip(LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    late = sum(LATE in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
    if late:
        terminalreporter.write_line(f"check: {late} tests left out: {LATE}; ALL=1 runs them")


def run(tests: list[str], jobs: int, until: float | None, everything: bool, arguments: list[str]) -> int:
    """pytest's exit code; that a file has slow tests alone is no failure."""
    marks = "not kafka and not spark" + ("" if everything else " and not slow")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "check", "-m", marks, "--benchmark-disable", "--timeout", "300", "-rfE"]
    command += ["-n", str(min(jobs, len(tests))), "--dist", "loadfile"] if len(tests) > 1 else []
    path = os.pathsep.join([str(ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])])
    limit = str(until or "inf")
    done = subprocess.run([*command, *arguments, *tests], cwd=ROOT, env=os.environ | {"PYTHONPATH": path, "KAFKACORE_CHECK_UNTIL": limit})
    return 0 if done.returncode == NO_TESTS else done.returncode


def first_looks(changed: list[str]) -> list[subprocess.Popen[str]]:
    """ruff on what changed, and the floors, while the tests are chosen."""
    python = [file for file in changed if file.endswith(".py") and (ROOT / file).exists()]
    commands = [["ruff", "check", "--force-exclude", *python]] if python else []
    commands.append(["pytest", "-q", "-p", "no:cacheprovider", "tests/test_floors.py"])
    out, err = subprocess.PIPE, subprocess.STDOUT
    return [subprocess.Popen([sys.executable, "-m", *each], cwd=ROOT, stdout=out, stderr=err, text=True) for each in commands]


def check(options: argparse.Namespace, changed: list[str], house: House, arguments: list[str]) -> int:
    began = time.time()
    looks = first_looks(changed)
    tests = choose(house, options.room, changed)
    said = [(look.communicate()[0], look.returncode) for look in looks]
    code = any(failed for _, failed in said)
    print("".join(text for text, failed in said if failed), end="")
    quiet, others = ([test.file for test in tests if test.quiet is kind] for kind in (True, False))
    print(f"check: {len(quiet)} test files without a network, then {len(others)} others; ARGS=--list names them all, first come:")
    print("".join(f"    {line(test)}\n" for test in tests[:3]), end="", flush=True)
    limit = None if options.all else began + LIMIT_S
    for part, jobs, until in ((quiet, os.cpu_count() or 1, None), (others, options.jobs, limit)):
        code = code or (bool(part) and run(part, jobs, until, options.all, arguments) != 0)
    over = limit is not None and time.time() > limit and others and not code
    slow = sum("mark.slow" in (ROOT / test.file).read_text(encoding="utf-8") for test in tests)
    left = "" if options.all or code else f"; left out: slow tests of {slow} files, which ALL=1 runs"
    left = f"{left}, and those that pytest names: the time was over" if over else left
    print(f"check: {'red' if code else 'green so far' if over else 'green'} after {time.time() - began:.0f} s{left}")
    return int(code)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="tests of what changed, or of a room, the nearest first", prog="make check ARGS=...")
    parser.add_argument("--room", help="a package or a module below kafkacore, as broker/log")
    parser.add_argument("--base", help="the commit to compare with; where the branch left main if left out")
    parser.add_argument("--all", action="store_true", help="slow tests too, and no limit of time")
    parser.add_argument("--jobs", type=int, default=4, help="tests with a network that run at once")
    parser.add_argument("--list", action="store_true", help="only say what would run, in which order and why")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    options, rest = parser.parse_known_args(arguments)
    house, changed = House(ROOT), changed_files(ROOT, options.base)
    if options.room and options.room not in house.rooms:
        near = difflib.get_close_matches(options.room, house.rooms, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        print(f"check: no room {options.room!r}{hint}; there are {', '.join(sorted(house.rooms))}", file=sys.stderr)
        return 2
    if not options.room and not changed:
        print("check: nothing changed; make check ROOM=consumer runs the tests of a room")
        return 0
    if options.json or options.list:
        tests = choose(house, options.room, changed)
        print(json.dumps([test._asdict() for test in tests]) if options.json else "\n".join(map(line, tests)))
        return 0
    print(f"check: {f'the room {options.room}' if options.room else f'{len(changed)} changed files: ' + ', '.join(changed[:5])}")
    return check(options, changed, house, rest)


def line(test: Test) -> str:
    away = "changed itself" if not test.distance else f"distance {test.distance}" if test.distance < FAR else "of the room"
    return f"{test.file}: {away}, {'no network' if test.quiet else 'network'}"


if __name__ == "__main__":
    raise SystemExit(main())
