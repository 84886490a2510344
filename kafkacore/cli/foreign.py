"""What hands that know kcat, Kafka's scripts and rpk type: one table of their spellings, each with ours.

Where a word of theirs means the same it is put in ours before the command line is read; where it does not, the answer says how it is
written here. A word that is one of ours is never touched, nor is the value of an option.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Spelling(NamedTuple):
    """A row.

    Attributes:
        command: where it counts: a path of ours, "" for the root.
        theirs: the word.
        ours: what it becomes; "{}" stands for its value. "" where things are so anyway.
        answer: what is said instead.
    """

    command: str
    theirs: str
    ours: str = ""
    answer: str = ""


def _each(commands: str, *rows: tuple[str, str] | tuple[str, str, str]) -> list[Spelling]:
    return [Spelling(command.strip(), *row) for command in commands.split(",") for row in rows]


KEYS = "keys are printed with -k SEPARATOR, all of a record with --json"
SPELLINGS: list[Spelling] = [
    # kcat's modes, and rpk's and the scripts' names of commands: what a word at the place of a command becomes
    *_each("", ("-C", "consume"), ("-P", "produce"), ("-G", "consume -g {}")),
    *_each("", ("-L", "", "`kafkacore topics list` lists, `kafkacore topics describe TOPIC` shows partitions")),
    *_each("", ("topic", "topics"), ("group", "groups"), ("help", "--help")),
    *_each("topics", ("--list", "list"), ("--create", "create"), ("--describe", "describe"), ("--alter", "alter"), ("--delete", "delete")),
    *_each("topics", ("produce", "", "`kafkacore produce TOPIC` sends"), ("consume", "", "`kafkacore consume TOPIC` reads")),
    *_each("groups", ("--list", "list"), ("--describe", "describe"), ("--delete", "delete")),
    *_each("groups", ("--reset-offsets", "reset"), ("seek", "reset")),
    # options
    *_each("consume, produce", ("-t", "{}"), ("--topic", "{}"), ("--brokers", "-b {}"), ("--broker-list", "-b {}")),
    *_each("consume, produce", ("-K", "-k {}"), ("-u", ""), ("--property", "", KEYS), ("--bootstrap-servers", "-b {}")),
    *_each(
        "consume",
        ("-o", "--from {}"),
        ("--offset", "--from {}"),
        ("--from-beginning", "--from earliest"),
        ("-c", "--max {}"),
        ("--max-messages", "--max {}"),
        ("--num", "--max {}"),
        ("-J", "--json"),
        ("-Z", "--null NULL"),
        ("-G", "--group {}"),
        ("--isolation-level", "--isolation {}"),
        ("--consumer-property", "-X {}"),
        ("--consumer.config", "", "settings go one by one: -X KEY=VALUE"),
        ("--formatter", "", f"{KEYS}, or anything with -f TEMPLATE"),
    ),
    *_each(
        "produce",
        ("-z", "--compression {}"),
        ("--compression-codec", "--compression {}"),
        ("-l", ""),
        ("-Z", "", "--null '' sends empty values and keys as null"),
        ("--producer-property", "-X {}"),
        ("--producer.config", "", "settings go one by one: -X KEY=VALUE"),
    ),
    *_each(
        "topics list, topics create, topics describe, topics alter, topics delete, "
        "groups list, groups describe, groups reset, groups delete",
        ("--bootstrap-servers", "-b {}"),
        ("--brokers", "-b {}"),
        ("--command-config", "", "settings go one by one: -X KEY=VALUE"),
        ("--command-property", "-X {}"),
        ("--zookeeper", "", "Kafka has no ZooKeeper any more: -b HOST:PORT names a broker"),
    ),
    *_each("topics create, topics describe, topics alter, topics delete", ("--topic", "{}"), ("-t", "{}")),
    *_each("topics describe", ("--under-replicated-partitions", "--under-replicated"), ("--unavailable-partitions", "--unavailable")),
    *_each("groups describe, groups reset, groups delete", ("--group", "{}")),
    *_each(
        "groups reset",
        ("--to-earliest", "--to earliest"),
        ("--to-latest", "--to latest"),
        ("--to-offset", "--to {}"),
        ("--shift-by", "--by {}"),
        ("--topic", "", "topics follow the group: `kafkacore groups reset GROUP TOPIC`"),
        ("--all-topics", ""),
    ),
]
TABLE = {(row.command, row.theirs): row for row in SPELLINGS}


class Foreign(Exception):
    """A word of another tool, with the answer."""


def translated(command: Any, arguments: Sequence[str]) -> list[str]:
    """The command line in our words.

    Args:
        command: the root, as click knows it.
        arguments: as typed.

    Raises:
        Foreign: a word that means something else here.
    """
    done: list[str] = []
    rest = list(arguments)
    path = ""
    while (subcommands := getattr(command, "commands", None)) is not None:
        # Kafka's scripts take their verb anywhere; a command of ours comes first.
        if not rest or rest[0] in subcommands:
            at = 0
        else:
            at = next((at for at, word in enumerate(rest) if (path, word) in TABLE), -1)
        if at < 0 or not rest:
            return done + rest
        word = rest.pop(at)
        words = [word] if word in subcommands else _ours(TABLE[path, word], rest, at)
        done.append(words[0])
        rest[:0] = words[1:]
        if words[0] not in subcommands:
            return done + rest
        command = subcommands[words[0]]
        path = f"{path} {words[0]}".strip()
    return done + _options(command, path, rest)


def _ours(row: Spelling, rest: list[str], at: int) -> list[str]:
    """Our words for a row; its value is taken out of what follows."""
    if row.answer:
        raise Foreign(f"{row.theirs}: {row.answer}")
    if "{}" not in row.ours:
        return row.ours.split()
    if at >= len(rest):
        raise Foreign(f"Option {row.theirs!r} requires an argument.")
    value = rest.pop(at)
    return [value if word == "{}" else word for word in row.ours.split()]


def _options(command: Any, path: str, rest: list[str]) -> list[str]:
    known = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}
    names: list[str] = []
    words: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += [word, *rest]
            break
        name, equals, value = word.partition("=")
        if word in known:
            words.append(word)
            if not known[word].is_flag and rest:
                words.append(rest.pop(0))
        elif name not in known and (row := TABLE.get((path, name))) is not None and name.startswith("-"):
            if equals:
                rest.insert(0, value)
            found = _ours(row, rest, 0)
            if row.ours == "{}":  # a topic or a group: it stands before files and other names, wherever it was typed
                names += found
            else:
                words += found
        else:
            words.append(word)
    return names + words
