"""Every Python example of the README and of docs/ runs word for word, but for those of Spark, which need a session and what ran before."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafkacore.compat
from kafkacore.compat import accelerate
from kafkacore.compat.acceleration import Acceleration
from kafkacore.testing.plugin import aio_kafka_cluster, kafka_cluster, kafka_topic  # noqa: F401 - what an installed kafkacore gives pytest

ROOT = Path(__file__).parent.parent


def examples() -> Iterator[tuple[str, str]]:
    """(file:line, code) of each fenced block of Python."""
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if file.name == "recipes.md":  # whose programs build on each other: test_recipes.py
            continue
        text = file.read_text()
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            yield f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 2}", found[1]


EXAMPLES = list(examples())
OF_SPARK = [each for each in EXAMPLES if each[0].startswith("docs/spark.md") or "spark." in each[1]]
OTHERS = [each for each in EXAMPLES if each not in OF_SPARK]


@pytest.fixture
def undone_at_the_end() -> Iterator[Callable[[str], Acceleration]]:
    """`accelerate` for an example, which leaves its package accelerated; the tests that run next in this process need it as it was."""
    with ExitStack() as undo:
        yield lambda package: undo.enter_context(accelerate(package))


@pytest.fixture
def names_stay_of_their_modules() -> Iterator[None]:
    """An example may put one package in the place of another one, which the tests that run next in this process need."""
    before = dict(sys.modules)
    yield
    for name, module in list(sys.modules.items()):
        if before.get(name) is not module and getattr(module, "__name__", name) != name:
            del sys.modules[name]
            if name in before:
                sys.modules[name] = before[name]


@pytest.mark.usefixtures("names_stay_of_their_modules")
@pytest.mark.parametrize(("where", "code"), OTHERS, ids=[where for where, _ in OTHERS])
def test_an_example_runs_as_it_stands(
    where: str,
    code: str,
    undone_at_the_end: Callable[[str], Acceleration],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package, used in (("confluent_kafka", "confluent_kafka"), ("kafka", "from kafka import"), ("aiokafka", "from aiokafka import")):
        if used in code:
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kafkacore.compat, "accelerate", undone_at_the_end)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, where, "exec"), names)
    for name, function in list(names.items()):
        if name.startswith("test_") and callable(function):  # as pytest calls it
            ended = function(**{fixture: request.getfixturevalue(fixture) for fixture in inspect.signature(function).parameters})
            if inspect.iscoroutine(ended):
                asyncio.run(ended)


def test_the_command_line_of_the_docs_is_there() -> None:
    """Commands and options that README and docs name, other tools' words put in ours; what they do is tested with the command line."""
    pytest.importorskip("typer")
    import typer

    from kafkacore.cli.app import COMMANDS, application
    from kafkacore.cli.foreign import translated

    root: Any = typer.main.get_command(application([]))
    wrong, seen = [], 0
    for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for line in re.findall(rf"(?:^\$ |`|^ +)(?:kafkacore )?((?:{'|'.join(COMMANDS)}) [^`\n#|]*)", file.read_text(), re.MULTILINE):
            words = translated(root, line.split("&")[0].split(";")[0].split())
            command = root.commands[words[0]]
            if hasattr(command, "commands") and len(words) > 1 and words[1] in command.commands:
                command = command.commands[words[1]]
            known = {"-h", "--help", *(each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts))}
            options = [word.partition("=")[0].strip("[]()") for word in words if re.match(r"\[?--?[a-zA-Z]", word)]
            wrong += [f"{file.name}: kafkacore {' '.join(words)}: {each}" for each in options if each not in known]
            seen += len(options)
    assert not wrong
    assert seen > 30


def test_the_examples_are_found() -> None:
    files = [where.partition(":")[0] for where, _ in OTHERS]
    counts = [files.count(file) for file in ("README.md", "docs/asyncio.md", "docs/groups.md", "docs/testing.md")]
    assert (counts, len(OF_SPARK) > 5) == ([6, 2, 6, 6], True)
