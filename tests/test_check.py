"""What `make check` chooses: a small house of its own, whose tests are chosen by what they use."""

from __future__ import annotations

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


def test_a_wrong_room_is_one_line_with_the_rooms_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--room", "brokr/log"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("check: no room 'brokr/log' (did you mean broker/log?); there are __main__, ")
    assert " consumer, consumer/group, " in said
