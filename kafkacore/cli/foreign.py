"""Command lines of hands that know kcat, Kafka's scripts and rpk: the walk that puts our words in the place of theirs.

Where a word of theirs means the same (`foreign_words`) it is put in ours before the command line is read; where it does not, the answer
says how it is written here. A word that is one of ours is never touched, nor is the value of an option.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkacore.cli.foreign_words import TABLE, Foreign, Spelling, entities

_MODES = "say what to do: -C reads a topic, -P sends to one, `kafkacore --help` shows all commands"


_FIRST = ["--from", "earliest"]
_GROUP_FIRST = ("groups reset", "groups delete-offsets")  # a group, then topics, in whatever order they are typed


def translated(command: Any, arguments: Sequence[str]) -> list[str]:
    """The command line in our words.

    Args:
        command: the root, as click knows it.
        arguments: as typed.

    Raises:
        Foreign: a word that means something else here.
    """
    root = command
    done: list[str] = []
    rest = list(arguments)
    path = ""
    while True:
        subcommands = getattr(command, "commands", None)
        if subcommands is None and not (rest and path == "cluster" and (path, rest[0]) in TABLE and not rest[0].startswith("-")):
            return done + _options(command, path, rest)
        if path == "configs":
            rest = entities(rest)
        at = _verb(subcommands or {}, path, rest)
        if at < 0:
            return done + rest
        word = rest.pop(at)
        words = [word] if word in (subcommands or ()) else _ours(TABLE[path, word], rest, at)
        if words and words[0].startswith("/"):  # it is another command of ours
            command, path, done = root, "", []
            words[0] = words[0][1:]
        if subcommands is None or not words:  # a word that goes without saying
            rest[:0] = words
            continue
        if command is root and path == "":
            subcommands = root.commands
        done.append(words[0])
        rest[:0] = words[1:]
        if words[0] not in subcommands:
            return done + rest
        command = subcommands[words[0]]
        path = f"{path} {words[0]}".strip()


def _verb(subcommands: dict[str, Any], path: str, rest: list[str]) -> int:
    """Where the word is that says what to do, -1 for nowhere. Kafka's scripts take theirs anywhere; a command of ours comes first."""
    if not rest or rest[0] in subcommands:
        return 0 if rest else -1
    theirs = [at for at, word in enumerate(rest) if (path, word) in TABLE and (at == 0 or rest[0].startswith("-") or word.startswith("-"))]
    theirs.sort(key=lambda at: not rest[at].startswith("-"))  # a word without a dash may be the value of an option
    meant = next((at for at in theirs if not TABLE[path, rest[at]].answer), -1)
    if meant < 0 and rest[0].startswith("-"):  # our own, behind options
        meant = next((at for at, word in enumerate(rest) if word in subcommands), -1)
    if meant < 0 and theirs:
        meant = theirs[0]
    if meant < 0 and path == "" and rest[0] in ("-b", "-t"):
        raise Foreign(f"{rest[0]}: {_MODES}")
    return meant


def _ours(row: Spelling, rest: list[str], at: int) -> list[str]:
    """Our words for a row; its value is taken out of what follows."""
    if row.answer:
        raise Foreign(f"{row.theirs}: {row.answer}")
    if "{}" not in row.ours:
        return row.ours.split()
    if at >= len(rest):
        raise Foreign(f"Option {row.theirs!r} requires an argument.")
    value = rest.pop(at)
    if row.turn is not None:
        return row.turn(value)
    return [word.replace("{}", value) for word in row.ours.split()]


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
        if word[:1] == "-" and word[:2] != "--" and len(word) > 2 and word[:2] not in known:
            name, equals, value = word[:2], "=", word[2:]  # -K:
        if word in known:
            words.append(word)
            if not known[word].is_flag and rest:
                words.append(rest.pop(0))
        elif name not in known and (row := TABLE.get((path, name))) is not None and name.startswith("-"):
            if equals and ("{}" in row.ours or row.answer):
                rest.insert(0, value)
            found = _ours(row, rest, 0)
            if row.ours == "{}" and not found[0].startswith("-") and (path not in _GROUP_FIRST or name == "--group"):
                # A topic or a group: it stands before files and other names, wherever it was typed; a group's topics come behind it.
                names += found
            else:
                words += found
        else:
            words.append(word)
    if words[:2] == _FIRST and any(word == "--from" or word.startswith("--from=") for word in words[2:]):
        del words[:2]                                          # of -C; what was typed says where to begin
    return names + words
