"""The root of the command line: its commands, the options they share, and what a failure looks like."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from kafkacore import __version__, errors
from kafkacore.cli import foreign, hints, setting_files
from kafkacore.cli.foreign_words import TABLE, Foreign
from kafkacore.cli.help_text import tidy
from kafkacore.cli.options import DEFAULT_BOOTSTRAP, Failure, sentence, without_client_codes
from kafkacore.printable import printable

# The base of everything typer reports about a wrong command line: click's class, which typer now carries inside.
WrongUsage: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

NOBODY_THERE = (f"connection to {DEFAULT_BOOTSTRAP} failed: Connection refused", f"{DEFAULT_BOOTSTRAP} (Connection refused)")

COMMANDS = {
    "broker": ("broker", "broker"),
    "cluster": ("cluster", "cluster"),
    "topics": ("topics", "app"),
    "groups": ("groups", "app"),
    "configs": ("configs", "app"),
    "acls": ("acls", "app"),
    "quotas": ("quotas", "app"),
    "users": ("users", "app"),
    "transactions": ("transactions", "app"),
    "produce": ("records", "produce"),
    "consume": ("records", "consume"),
    "export": ("frames", "export"),
    "load": ("frames", "load"),
    "query": ("query", "query"),
    "perf": ("perf", "app"),
    "dump-log": ("dump", "dump_log"),
    "demo": ("demo", "demo"),
    "pipeline": ("pipeline", "app"),
}
"""Each command's module and its name there."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kafkacore {__version__}")
        raise typer.Exit


def root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
) -> None:
    """Settings of all commands; `kafkacore COMMAND --help` shows a command's own."""


def application(arguments: Sequence[str]) -> typer.Typer:
    """The command line, with the named command alone if one is named first: the others' modules would take longer to load than it runs."""
    app = typer.Typer(
        name="kafkacore",
        help="Apache Kafka's client, timer and broker machinery: brokers, topics, groups, produce, consume, log files, measurements.",
        no_args_is_help=True,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=root,
    )
    named = first_word(arguments or being_completed())
    for name, (module, attribute) in COMMANDS.items():
        if named in (None, name):
            command = getattr(importlib.import_module(f"kafkacore.cli.{module}"), attribute)
            if isinstance(command, typer.Typer):
                setting_files.add_to(command)
                app.add_typer(command, name=name)
            else:
                app.command(name)(setting_files.with_files(command))
    return app


def being_completed() -> list[str]:
    """The words of a command line that the shell completes, as typer's scripts hand it over; without the one that is being typed."""
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    words = typed.split()
    return words[1:] if typed.endswith(" ") else words[1:-1]


def first_word(arguments: Sequence[str]) -> str | None:
    """The command that the words name; None where they may name several."""
    word = arguments[0] if arguments else ""
    if (row := TABLE.get(("", word))) is not None:
        word = (row.ours.split() or [""])[0]
    elsewhere = any((row := TABLE.get((word, each))) is not None and row.ours.startswith("/") for each in arguments[1:])
    return word if word in COMMANDS and not elsewhere else None


def _tell(text: str) -> None:
    """A line on stderr; what a broker or a client said in it has no effect on the terminal."""
    hint = "; `kafkacore broker` starts a broker there" if any(each in text for each in NOBODY_THERE) else ""
    print(f"kafkacore: {printable(without_client_codes(text))}{hint}", file=sys.stderr)


class _Lines(logging.Handler):
    """Warnings of clients and brokers as lines on stderr, in the manner of all that commands say there."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # nobody reads stderr any more: there is no other place to say it
            _tell(f"{record.levelname.lower()}: {self.format(record)}")


@contextlib.contextmanager
def _warnings_shown() -> Iterator[None]:
    lines = _Lines(logging.WARNING)
    logger = logging.getLogger("kafkacore")
    logger.addHandler(lines)
    try:
        yield
    finally:
        logger.removeHandler(lines)


def _forget_output() -> None:
    """What could not be written shall not fail again when the interpreter flushes it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit status: 0 ok, 1 failed, 2 wrong usage, 130 interrupted, 141 the reader of the output has left. A failure is one line on
        stderr, never a traceback; before it may stand what went wrong on the way and was tried again.
    """
    hints.begin()
    try:
        command: Any = typer.main.get_command(application(arguments))
        tidy(command)
        with _warnings_shown():
            outcome = command.main(args=foreign.translated(command, arguments), prog_name="kafkacore", standalone_mode=False)
        sys.stdout.flush()  # here a failure can still be reported
        return outcome if isinstance(outcome, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except WrongUsage as wrong:
        shown: Any = wrong
        if type(wrong).__name__ == "NoArgsIsHelpError":  # its message is the help itself
            print(shown.format_message(), file=sys.stderr)
            return 2
        context = getattr(shown, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        _tell(f"{shown.format_message()}{hint}")
        return int(shown.exit_code)
    except Foreign as answer:
        _tell(str(answer))
        return 2
    except SystemExit as ended:  # of rich, when the reader of a table or a help text has left
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _forget_output()
        return 128 + signal.SIGPIPE
    except BrokenPipeError:  # `| head`: silent, with the status that the signal would give
        _forget_output()
        return 128 + signal.SIGPIPE
    except errors.ConfigError as wrong:
        _tell(str(wrong))
        return 2
    except (errors.KafkaError, Failure) as failed:
        _tell(sentence(failed) + hints.hint(failed))
        return 1
    except OSError as failed:
        where = f"{failed.filename}: " if failed.filename else ""
        try:
            sys.stdout.flush()
        except OSError:
            where = "standard output: "
            _forget_output()
        _tell(f"{where}{failed.strerror or failed}")
        return 1
