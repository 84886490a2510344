"""What `make check` chooses: a small house of its own, whose tests are chosen by what they use."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import check
import pytest

PACKAGE = {
    "__init__.py": "",
    "errors.py": "class KafkaError(Exception): ...\n",
    "consumer/__init__.py": (
        "from kafkacore.net.selector import Selector\nclass KafkaConsumer:\n    def poll(self):\n        return Selector()\n"
    ),
    "consumer/fetcher.py": (
        "from kafkacore.net.selector import Selector\nfrom kafkacore.consumer.sessions import Session\n"
        "class Fetcher:\n    session = Session\n    def __init__(self, selector: Selector): ...\n"
    ),
    "consumer/sessions.py": "class Session: ...\n",
    "net/selector.py": "import socket\nclass Selector:\n    def __init__(self):\n        self.sock = socket.socket()\n",
    "broker/log/segment.py": "class Segment: ...\n",
    "broker/quotas.py": "class Quotas: ...\n",
    "_codec.pyx": "include 'native/append.pxi'\n",
    "native/append.pxi": "def append(): ...\n",
    "cli/app.py": "import importlib\ndef run(name):\n    return importlib.import_module(f'kafkacore.cli.{name}')\n",
    "cli/topics.py": "def topics(): ...\n",
}
"""Of kafkacore. A fetcher is handed its selector; a consumer makes one."""
TESTS = {
    "conftest.py": (
        "import socket\nimport pytest\n@pytest.fixture\ndef server():\n    return socket.create_server(('', 0))\n"
        "@pytest.fixture\ndef broker(server):\n    return server\n"
    ),
    "consumer/rig.py": "from kafkacore.consumer.fetcher import Fetcher\ndef rig():\n    return Fetcher(None)\n",
}
"""Of tests."""


@pytest.fixture
def house(tmp_path: Path) -> check.House:
    """With no test so far."""
    for top, files in (("kafkacore", PACKAGE), ("tests", TESTS)):
        for name, text in files.items():
            write(tmp_path, f"{top}/{name}", text)
    return check.House(tmp_path)


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def walked(house: check.House, text: str, name: str = "consumer/test_it.py") -> tuple[dict[str, int], bool]:
    """How far away modules are from a test file of this text, and whether it has no network."""
    write(house.root, f"tests/{name}", text)
    return check.House(house.root).walk(house.root / "tests" / name)


@pytest.mark.parametrize(
    ("text", "module", "distance"),
    [
        ("from kafkacore.errors import KafkaError\ndef test_it():\n    KafkaError()\n", "kafkacore.errors", 1),
        ("from kafkacore import errors as e\ndef test_it():\n    e.KafkaError()\n", "kafkacore.errors", 1),
        ("import kafkacore.errors\ndef test_it():\n    kafkacore.errors.KafkaError()\n", "kafkacore.errors", 1),
        ("def test_it():\n    from kafkacore.errors import KafkaError\n    KafkaError()\n", "kafkacore.errors", 1),
        ("from rig import rig\ndef test_it():\n    rig()\n", "kafkacore.consumer.fetcher", 2),
        ("from tests.consumer.rig import rig\ndef test_it():\n    rig()\n", "kafkacore.consumer.fetcher", 2),
        ("import rig\ndef test_it():\n    rig.rig()\n", "kafkacore.consumer.sessions", 3),
        ("from kafkacore.cli.app import run\ndef test_it():\n    run('topics')\n", "kafkacore.cli.topics", 2),
    ],
)
def test_a_module_is_as_far_away_as_the_names_on_the_way(house: check.House, text: str, module: str, distance: int) -> None:
    assert walked(house, text)[0][module] == distance


@pytest.mark.parametrize(
    ("text", "quiet"),
    [
        ("from kafkacore.consumer.fetcher import Fetcher\ndef test_it():\n    Fetcher(None)\n", True),
        ("from rig import rig\ndef test_it():\n    rig()\n", True),
        ("from kafkacore.consumer import KafkaConsumer\ndef test_it():\n    KafkaConsumer()\n", False),
        ("def test_it():\n    import subprocess\n    subprocess.run(['true'])\n", False),
        ("import subprocess\ndef test_it():\n    assert subprocess.PIPE\n", True),
        ("import os\ndef test_it():\n    os.fork()\n", False),
        ("import os\ndef test_it():\n    os.getpid()\n", True),
        ("def test_it(server): ...\n", False),
        ("def test_it(broker): ...\n", False),
        ("import pytest\n@pytest.mark.usefixtures('broker')\ndef test_it(): ...\n", False),
        ("def test_it():\n    server = 1\n", True),
        ("def test_it(pytester): ...\n", False),
        ("import pytest\n@pytest.fixture\ndef server(): ...\ndef test_it(server): ...\n", True),
    ],
)
def test_a_network_is_seen_through_helpers_and_fixtures(house: check.House, text: str, quiet: bool) -> None:
    assert walked(house, text)[1] is quiet


def test_an_automatic_fixture_counts_in_its_directory(house: check.House) -> None:
    write(house.root, "tests/consumer/conftest.py", "import pytest, socket\n@pytest.fixture(autouse=True)\ndef f():\n    socket.socket()\n")
    assert walked(house, "def test_it(): ...\n")[1] is False
    assert walked(house, "def test_it(): ...\n", "net/test_it.py")[1] is True


USES = "from kafkacore.{} import {name}\ndef test_it():\n    {name}()\n"
FILES = {
    "tests/consumer/test_fetcher.py": USES.format("consumer.fetcher", name="Fetcher"),
    "tests/consumer/test_through_a_helper.py": "from rig import rig\ndef test_it():\n    rig()\n",
    "tests/consumer/test_groups.py": USES.format("consumer", name="KafkaConsumer"),
    "tests/broker/test_with_a_server.py": "from tests.consumer.serving import serve\ndef test_it():\n    serve()\n",
    "tests/broker/test_segments.py": USES.format("broker.log.segment", name="Segment"),
    "tests/broker/test_quotas.py": USES.format("broker.quotas", name="Quotas"),
    "tests/consumer/serving.py": "import socket\ndef serve():\n    return socket.socket()\n",
    "tests/test_append.py": USES.format("_codec", name="append"),
    "tests/test_a_codec.py": USES.format("_codec", name="crc"),
    "tests/test_errors.py": USES.format("errors", name="KafkaError"),
    "tests/test_page.py": 'PAGE = \'docs/page.md\'\nPARTS = (".", "*")\ndef test_it():\n    open(PAGE)\n',
}


def chosen(house: check.House, room: str | None, *changed: str) -> list[str]:
    for name, text in FILES.items():
        write(house.root, name, text)
    return [Path(test.file).stem.removeprefix("test_") for test in check.choose(check.House(house.root), room, list(changed))]


@pytest.mark.parametrize(
    ("room", "changed", "tests"),
    [
        ("consumer", [], ["fetcher", "through_a_helper", "groups"]),
        ("consumer", ["kafkacore/consumer/sessions.py"], ["fetcher", "through_a_helper", "groups"]),
        ("consumer", ["kafkacore/errors.py"], ["fetcher", "through_a_helper", "groups"]),
        ("broker", [], ["quotas", "segments", "with_a_server"]),
        ("broker/log", [], ["segments"]),
        ("errors", [], ["errors"]),
        (None, ["kafkacore/broker/log/segment.py"], ["segments"]),
        (None, ["kafkacore/errors.py"], ["errors"]),
        (None, ["kafkacore/native/append.pxi"], ["append", "a_codec"]),
        (None, ["kafkacore/consumer/fetcher.py"], ["fetcher", "through_a_helper", "groups"]),
        (None, ["kafkacore/net/selector.py"], []),
        (None, ["tests/consumer/rig.py"], ["through_a_helper"]),
        (None, ["tests/consumer/test_groups.py"], ["groups"]),
        (None, ["tests/consumer/serving.py"], ["with_a_server"]),
        (None, ["docs/page.md"], ["page"]),
        (None, ["docs/other.md"], []),
        (None, ["Makefile"], []),
        (None, ["tests/consumer/test_deleted.py"], []),
    ],
)
def test_what_is_chosen_and_in_which_order(house: check.House, room: str | None, changed: list[str], tests: list[str]) -> None:
    assert chosen(house, room, *changed) == tests


def test_a_changed_module_is_checked_by_its_nearest_tests_first(house: check.House) -> None:
    write(house.root, "tests/consumer/test_a_session.py", USES.format("consumer.sessions", name="Session"))
    assert chosen(house, "consumer", "kafkacore/consumer/fetcher.py") == ["fetcher", "through_a_helper", "a_session", "groups"]


def test_a_wrong_room_is_one_line_with_the_rooms_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--room", "brokr/log"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("check: no room 'brokr/log' (did you mean broker/log?); there are __main__, ")
    assert " consumer, consumer/group, " in said


def test_nothing_changed_is_said_and_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "changed_files", lambda root, base: [])
    assert check.main([]) == 0
    assert capsys.readouterr().out == "check: nothing changed; make check ROOM=consumer runs the tests of a room\n"


def test_a_list_says_why_and_runs_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "choose", lambda *args: [check.Test("a.py", 2, True), check.Test("b.py", check.FAR, False)])
    monkeypatch.setattr(check, "check", None)
    assert check.main(["--room", "timer", "--list"]) == 0
    assert capsys.readouterr().out == "a.py: distance 2, no network\nb.py: of the room, network\n"
    assert check.main(["--room", "timer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {"file": "a.py", "distance": 2, "quiet": True}


@pytest.mark.parametrize(("first", "parts"), [(0, 2), (1, 1)])
@pytest.mark.parametrize("everything", [False, True])
def test_only_tests_with_a_network_have_a_limit_and_a_failure_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, first: int, parts: int, everything: bool
) -> None:
    ran: list[tuple[list[str], bool]] = []

    def run(tests: list[str], jobs: int, until: float | None, everything: bool, arguments: list[str]) -> int:
        ran.append((tests, until is not None))
        return first

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(check, "first_looks", lambda changed: [])
    monkeypatch.setattr(check, "ROOT", Path(__file__).parent)
    found = [check.Test("test_check.py", 1, True), check.Test("conftest.py", 1, False)]
    monkeypatch.setattr(check, "choose", lambda *args: found)
    options = argparse.Namespace(all=everything, room="a", jobs=4)
    assert check.check(options, [], check.House(check.ROOT), []) == first
    assert ran == [(["test_check.py"], False), (["conftest.py"], not everything)][:parts]


def test_no_test_begins_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKACORE_CHECK_UNTIL", "1")
    with pytest.raises(pytest.skip.Exception, match="their turn came after 165 s"):
        check.pytest_runtest_setup()
    monkeypatch.setenv("KAFKACORE_CHECK_UNTIL", str(2**40))
    check.pytest_runtest_setup()


def test_changes_are_those_since_the_branch_left_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    for name in ("kept.py", "committed.py", "edited.py"):
        write(tmp_path, name, "")
    git("add", ".")
    git("commit", "-m", "begin")
    assert check.changed_files(tmp_path, None) == []
    git("checkout", "-b", "branch")
    write(tmp_path, "committed.py", "1\n")
    git("commit", "-am", "change")
    write(tmp_path, "edited.py", "1\n")
    write(tmp_path, "new.py", "")
    assert check.changed_files(tmp_path, None) == ["committed.py", "edited.py", "new.py"]
    assert check.changed_files(tmp_path, "HEAD") == ["edited.py", "new.py"]
    with pytest.raises(SystemExit, match="git knows no commit 'nowhere'"):
        check.changed_files(tmp_path, "nowhere")
