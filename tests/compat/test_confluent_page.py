"""docs/moving-from-confluent-kafka.md says what the tables of compat.confluent say: settings one by one, and what is not covered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkacore.compat.confluent.admin.base import ADMIN_SETTINGS
from kafkacore.compat.confluent.client_settings import ALIASES, CONSUMER_SETTINGS, DEFAULTS, PRODUCER_SETTINGS
from kafkacore.compat.confluent.not_covered import NOT_COVERED
from kafkacore.compat.settings import Kind, NoEffect, Ours, Own, Refused

PAGE = (Path(__file__).parents[2] / "docs" / "moving-from-confluent-kafka.md").read_text()
WORDS = {Own: "honoured by", NoEffect: "no effect:", Refused: "refused:"}
TABLES = (("producers", PRODUCER_SETTINGS), ("consumers", CONSUMER_SETTINGS), ("admin clients", ADMIN_SETTINGS))


def of(name: str) -> str:
    """What becomes of a setting, where it is one of the engine's or is seen by one kind of client only, too."""
    kinds: dict[Kind, list[str]] = {}
    for clients, table in TABLES:
        kinds.setdefault(table[name], []).append(clients)
    shown = [(kind, clients) for kind, clients in kinds.items() if not is_of_others(kind)]
    if len(shown) == 1:
        return meaning_of(shown[0][0], name)
    return "; ".join(f"{' and '.join(clients)}: {meaning_of(kind, name)}" for kind, clients in shown)


def is_of_others(kind: Kind) -> bool:
    return isinstance(kind, NoEffect) and kind.why.startswith("it is a setting of ")


def meaning_of(kind: Any, name: str) -> str:
    if isinstance(kind, Ours):
        return f"`{kind.name or name}`"
    return f"{WORDS[type(kind)]} {kind.how if isinstance(kind, Own) else kind.why}"


def lines_of_settings() -> list[str]:
    """The lines of the page's table of settings: those of one meaning in one line, but for those that the engine has."""
    other_names = {name: [other for other, first in ALIASES.items() if first == name] for name in PRODUCER_SETTINGS}
    by_meaning: dict[tuple[str, str], list[str]] = {}
    for name in sorted({*PRODUCER_SETTINGS, *CONSUMER_SETTINGS}):
        default = DEFAULTS[name]
        names = ", ".join(f"`{each}`" for each in [name, *other_names[name]])
        shown = "" if default is None or default == "" else f"`{str(default).lower() if isinstance(default, bool) else default}`"
        alone = any(isinstance(table[name], (Ours, Own)) for _, table in TABLES)
        by_meaning.setdefault((of(name), name if alone else ""), []).append(f"{names} ({shown})" if shown else names)
    return [f"| {', '.join(settings)} | {meaning} |" for (meaning, _), settings in by_meaning.items()]


def test_every_setting_has_its_line() -> None:
    missing = [row for row in lines_of_settings() if row not in PAGE.splitlines()]
    assert missing == []


def test_the_page_names_no_other_settings() -> None:
    table = PAGE.split("| setting (default) | here |")[1].split("\n\n")[0].splitlines()[2:]
    assert sorted(table) == sorted(lines_of_settings())


def test_what_is_not_covered_has_its_line() -> None:
    table = PAGE.split("| not covered | reason |")[1].split("\n\n")[0].splitlines()[2:]
    assert table == [f"| `{name}` | {why} |" for name, why in NOT_COVERED.items()]
