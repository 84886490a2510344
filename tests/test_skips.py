"""The list of expected skips: what it holds, when an entry counts, and that any other skip fails a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import skips

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent
HERE = """
import pytest

@pytest.mark.parametrize("way", ["call", "none"])
def test_it(way):
    if way == "call":
        pytest.skip("not today")

@pytest.mark.skip(reason="not today")
def test_marked():
    pass

@pytest.mark.xfail(reason="known", run=False)
def test_known():
    raise AssertionError
"""
MODULE = "import pytest\npytest.importorskip('no_such_package')\n"
TODAY = '[[skip]]\ntests = "test_here.py::*"\nreason = "not today"\nwhen = {always = true}\n'
PACKAGE = '[[skip]]\ntests = "test_module.py"\nreason = "could not import \'no_such*"\nwhen = {no_module = "no_such_package"}\n'
TITLE = "*skips that skips.toml does not expect here: the run fails*"


def run(pytester: pytest.Pytester, listed: str, *options: str) -> pytest.RunResult:
    pytester.makefile(".toml", skips=listed)
    pytester.makepyfile(test_here=HERE, test_module=MODULE)
    return pytester.runpytest_subprocess("-p", "tests.skips", "-p", "no:cacheprovider", *options)


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(skips.SWITCH, "1")


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2")], ids=["one process", "two workers"])
def test_a_skip_that_is_not_expected_fails_the_run_and_is_named(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    done = run(pytester, TODAY.replace("*", "test_marked"), *workers)
    assert done.ret == 1
    done.stdout.fnmatch_lines([TITLE])
    named = ["test_module.py: could not import 'no_such_package'*", "test_here.py::test_it?call?: not today"]
    done.stdout.fnmatch_lines_random(named)
    done.stdout.no_fnmatch_line("test_here.py::test_marked: *")


def test_a_run_with_expected_skips_alone_passes(pytester: pytest.Pytester) -> None:
    done = run(pytester, TODAY + PACKAGE, "-p", "no:xdist")
    assert done.ret == 0
    done.stdout.no_fnmatch_line(TITLE)


def test_an_entry_counts_where_its_condition_holds() -> None:
    entry = skips.Entry("tests/*", "no `java`*", "no_program", ["no-such-program"])
    assert entry.expects("tests/test_a.py::test_it[b]", "no `java` on the PATH")
    assert not entry.expects("bench/test_a.py", "no `java` on the PATH")
    assert not entry.expects("tests/test_a.py", "no `mvn` on the PATH")
    assert not entry._replace(value=["sh"]).expects("tests/test_a.py", "no `java` on the PATH")


@pytest.mark.parametrize(
    ("condition", "holds", "not_"),
    [
        ("python_below", "99.0", "3.11"),
        ("python_from", "3.11", "99.0"),
        ("no_module", "no_such_package", "pytest"),
        ("no_program", ["python3", "no-such-program"], ["sh"]),
        ("no_path", "/no/such/path", "/"),
        ("not_on", "no-such-system", skips.sys.platform),
        ("lacks", "os.no_such_call", "os.fork"),
        ("unless_env", "NO_SUCH_VARIABLE", "PATH"),
        ("descriptors_below", 1 << 62, 1),
        ("no_address", "203.0.113.1", "127.0.0.1"),
    ],
)
def test_conditions_are_those_of_this_machine(condition: str, holds: object, not_: object) -> None:
    assert skips.CONDITIONS[condition](holds)
    assert not skips.CONDITIONS[condition](not_)


def test_every_entry_matches_a_file_and_a_reason_that_a_file_gives() -> None:
    """An entry whose test was renamed, or whose reason was worded differently, would lie about what is skipped."""
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")]
    said = "".join((ROOT / file).read_text() for file in files if file != "tests/test_skips.py")
    for entry in skips.read(skips.LIST):
        pattern = entry.tests.partition("::")[0]
        assert any(skips.fnmatchcase(file, pattern) for file in files), entry
        if not entry.reason.startswith("could not import "):
            assert max(entry.reason.replace("`", "*").split("*"), key=len) in said, entry
