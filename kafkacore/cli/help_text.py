"""What `--help` shows of arguments and options: `TOPIC...` and `[FILE...]`, and no types beside flags. Releases of typer differ in that."""

from __future__ import annotations

import pathlib
from typing import Any

_MOST_BOUNDS = 10
_METAVARS = {int: "N", float: "NUMBER", str: "TEXT", pathlib.Path: "FILE"}


def tidy(command: Any) -> None:
    """Gives arguments and options of a command, and of those below it, the names that its help shows.

    Args:
        command: as typer makes it; what its release does not know is no loss.
    """
    for param in command.params:
        if param.param_type_name == "argument":
            _argument(param)
        elif param.is_flag:
            param.display_type_rich = lambda ctx: None
        else:
            _option(param)
    help_option = command.get_help_option

    def tidied(ctx: Any) -> Any:
        option = help_option(ctx)
        if option is not None:
            option.display_type_rich = lambda ctx: None
        return option

    command.get_help_option = tidied
    for below in getattr(command, "commands", {}).values():
        tidy(below)


def _argument(param: Any) -> None:
    name = str(param.metavar or param.name.upper())
    param.get_usage_pieces = lambda ctx: [name]
    param.display_type_rich = lambda ctx: None
    param.get_error_hint = lambda *ctx: f"'{name}'"


def _option(param: Any) -> None:
    if param.metavar is None:
        param.metavar = _METAVARS.get(_type_of(param))
    bounds = getattr(param, "_get_number_range_help_str", None)
    if bounds is not None and len(bounds() or "") > _MOST_BOUNDS:
        param._get_number_range_help_str = lambda: None  # it would leave no room for what the option is


def _type_of(param: Any) -> Any:
    """The Python type of an option, in releases of typer that tell."""
    described = getattr(param, "type_descriptor", None)
    found = getattr(described, "annotation", None)
    return found if isinstance(found, type) else None
