"""The second of it: which tests hold two members at once in a collection of an engine's state.

    python tools/seconds.py --find consumer/group/commits.py     the tests of the file's room that do, by collection
    python tools/seconds.py --find broker/isr.py --tests tests/broker/test_isr_check.py
    python tools/seconds.py [consumer/group/commits.py ...]      runs the tests that tests/seconds.toml names; exit code 1 if one never does

Most faults that tests miss are in the second of something: the second group of a transaction, the second file of a key pair. So each
collection names a test in which it holds two unlike members, one of which fails. That the members are unlike is for a reader to see;
that there are two is measured here: on each return of a function that uses the attribute, the profiler looks at its length.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mutant_rooms

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kafkacore"
TABLE = ROOT / "tests" / "seconds.toml"
NO_ENGINES = ("cli", "compat", "decode", "spark", "testing")
EMPTY = {"dict", "list", "set", "deque", "defaultdict", "OrderedDict", "Counter"}
FILES, RESULTS = "KAFKACORE_SECONDS_OF", "KAFKACORE_SECONDS_TO"
NEWEST = 16  # instances of a class that are looked at


def _is_empty(value: ast.expr | None) -> bool:
    """Whether it makes an empty collection: `{}`, `deque()`, `defaultdict(list)`."""
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.func.id not in EMPTY:
        return False
    return not value.args or value.func.id == "defaultdict"


def collections_of(source: str) -> Iterator[str]:
    """The collections that instances begin empty, as `Class.attribute`: of `__init__`, and a dataclass's `field(default_factory=...)`."""
    for each in ast.walk(ast.parse(source)):
        if not isinstance(each, ast.ClassDef):
            continue
        for part in each.body:
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                for line in ast.walk(part):
                    if not isinstance(line, ast.Assign | ast.AnnAssign):
                        continue
                    for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
                        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and _is_empty(line.value):
                            yield f"{each.name}.{target.attr}"
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and isinstance(part.value, ast.Call):
                factories = [ast.unparse(word.value) for word in part.value.keywords if word.arg == "default_factory"]
                if ast.unparse(part.value.func) == "field" and EMPTY.intersection(factories):
                    yield f"{each.name}.{part.target.id}"


def engines() -> dict[str, list[str]]:
    """The collections of each file of the package that holds state, by its path from kafkacore/ on."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in NO_ENGINES]
    found = {str(path.relative_to(PACKAGE)): list(dict.fromkeys(collections_of(path.read_text()))) for path in paths}
    return {file: names for file, names in found.items() if names}


class Watcher:
    """Notes which collections hold two members while a test runs. A plugin of pytest, where `FILES` is set."""

    def __init__(self, files: list[str]) -> None:
        self.classes: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.classes_by_attribute: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for file in files:
            for name in collections_of((PACKAGE / file).read_text()):
                owner, _, attribute = name.partition(".")
                self.classes[file, owner].append(attribute)
                self.classes_by_attribute[attribute].append((file, owner))
        self.instances: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.plans: dict[CodeType, tuple[str, ...]] = {}
        self.test = ""
        self.seen: set[str] = set()
        self.found: dict[str, list[str]] = defaultdict(list)

    def on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "return":
            return
        code = frame.f_code
        plan = self.plans.get(code)
        if plan is None:
            plan = self.plans[code] = self._plan_of(code)
        if not plan:
            return
        if code.co_name == "__init__":
            self.register(frame.f_locals.get("self"))
        for attribute in plan:
            self.look(attribute)

    def _plan_of(self, code: CodeType) -> tuple[str, ...]:
        """The attributes to look at when this function returns."""
        if code.co_filename == "<string>":  # of a dataclass
            return tuple(self.classes_by_attribute) if code.co_name == "__init__" else ()
        if not code.co_filename.startswith(str(PACKAGE)):
            return ()
        used = set(code.co_names)
        for each in code.co_consts:
            used.update(each.co_names if isinstance(each, CodeType) else ())
        return tuple(used & self.classes_by_attribute.keys())

    def register(self, instance: Any) -> None:
        for base in type(instance).__mro__:
            file = base.__module__.removeprefix("kafkacore.").replace(".", "/")
            for key in ((f"{file}.py", base.__name__), (f"{file}/__init__.py", base.__name__)):
                if key in self.classes and not any(instance is known for known in self.instances[key]):
                    self.instances[key] = [*self.instances[key][1 - NEWEST :], instance]

    def look(self, attribute: str) -> None:
        for key in self.classes_by_attribute[attribute]:
            name = f"{key[0]}:{key[1]}.{attribute}"
            if name in self.seen:
                continue
            for instance in self.instances[key]:
                try:
                    if len(getattr(instance, attribute)) < 2:
                        continue
                except (AttributeError, TypeError):
                    continue
                self.seen.add(name)
                self.found[name].append(self.test)
                break

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid
        threading.setprofile(self.on_event)
        sys.setprofile(self.on_event)

    def pytest_runtest_logfinish(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        for attribute in self.classes_by_attribute:
            self.look(attribute)
        self.instances.clear()
        self.seen.clear()

    def pytest_sessionfinish(self) -> None:
        Path(os.environ[RESULTS], f"{os.getpid()}.json").write_text(json.dumps(self.found))


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(Watcher(os.environ[FILES].split()))


def run(files: list[str], chosen: list[str], *, jobs: int) -> tuple[dict[str, list[str]], int]:
    """Runs tests. Returns those that held two members, by collection, and pytest's exit code."""
    with tempfile.TemporaryDirectory() as results:
        environment = {**os.environ, FILES: " ".join(files), RESULTS: results, "PYTHONPATH": str(ROOT / "tools")}
        arguments = ["-q", "-p", "seconds", "--benchmark-disable", "-m", "not kafka and not spark", "-n", str(jobs), *chosen]
        code = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environment, stdout=sys.stderr).returncode
        found: dict[str, list[str]] = defaultdict(list)
        for path in Path(results).glob("*.json"):
            for name, tests in json.loads(path.read_text()).items():
                found[name] += tests
    return found, code


def table() -> dict[str, dict[str, str]]:
    return tomllib.loads(TABLE.read_text())


def is_test(entry: str) -> bool:
    """A row names a test; else it gives the reason why no member can fail."""
    return re.fullmatch(r"[tT]est\w+", entry) is not None


def files_with(tests: set[str]) -> list[str]:
    pattern = re.compile(r"^ *(?:async )?def (test_\w+)|^(Test\w+) = ", re.MULTILINE)
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path) for path in paths if tests.intersection(found[1] or found[2] for found in pattern.finditer(path.read_text()))]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", help="of the package, from kafkacore/ on; none: all")
    parser.add_argument("--find", action="store_true", help="list the tests that hold two, instead of the table's check")
    parser.add_argument("--tests", nargs="+", help="with --find: test files that run, instead of those of the rooms")
    parser.add_argument("-n", "--jobs", type=int, default=2)
    options = parser.parse_args()
    held = engines()
    files = [file.removeprefix("kafkacore/") for file in options.files] or list(held)
    if unknown := [file for file in files if file not in held]:
        parser.error(f"no collection of an engine's state in {', '.join(unknown)}")
    if options.find:
        rooms = mutant_rooms.owners(PACKAGE)
        of_rooms = {f"tests/{test}" for file in files for test in mutant_rooms.tests_of(ROOT / "tests", rooms[file])}
        chosen = options.tests or of_rooms
        found, _ = run(files, sorted(chosen), jobs=options.jobs)
        for file in files:
            for name in held[file]:
                tests = found.get(f"{file}:{name}", [])
                print(f"{file}:{name}", *(tests or ["no test"]), sep="\n    ")
        return 0
    named = {f"{file}:{name}": entry for file in files for name, entry in table().get(file, {}).items() if is_test(entry)}
    names = set(named.values())
    found, code = run(files, [*files_with(names), "-k", " or ".join(sorted(names))], jobs=options.jobs)
    never = [f"{name}: {test}" for name, test in named.items() if not any(test in re.split(r"::|\[", it) for it in found.get(name, []))]
    print(*(f"never two at once in {each}" for each in never), f"{len(named) - len(never)} of {len(named)} hold two at once.", sep="\n")
    return 1 if never or code else 0


if __name__ == "__main__":
    sys.exit(main())
