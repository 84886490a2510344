"""The table of what a peer can make grow, in SECURITY.md: its tests, settings and numbers are there, and no number is left out."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

from kafkacore import bounds
from kafkacore.config import BrokerConfig, ClientConfig, ConsumerConfig
from tests.kit.rows import each_row

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = (ROOT / "SECURITY.md").read_text(encoding="utf-8").split("## What a peer can make grow")[1].split("\n## ")[0]
ROWS = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in TABLE.splitlines() if line.startswith("| ")][1:]
NUMBERS = {name for name in vars(bounds) if name.isupper()}


def test_the_table_is_read() -> None:
    assert len(ROWS) > 20 and all(len(row) == 4 for row in ROWS)


@each_row("row", ROWS, ids=[row[0][:50] for row in ROWS])
def test_each_bound_has_a_test(row: tuple[str, ...]) -> None:
    _, bound, setting, test = row
    if bound.startswith("none yet"):
        assert not test and not setting
        return
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name.startswith("test_") and name in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    assert set(re.findall(r"B\.(\w+)", bound)) <= NUMBERS
    settings = {each.name for kind in (ClientConfig, ConsumerConfig, BrokerConfig) for each in fields(kind)} | {"timeout_s"}
    assert set(re.findall(r"`(\w+)`", setting)) <= settings


def test_each_number_is_in_the_table() -> None:
    assert set(re.findall(r"B\.(\w+)", TABLE)) - {"NAME"} == NUMBERS


def test_a_number_that_the_table_repeats_is_that_number() -> None:
    units = {"MiB": 1 << 20, "KiB": 1 << 10, "M": 1 << 20, "s": 1, "": 1}
    found = re.findall(r"B\.(\w+), ([\d,]+) ?(MiB|KiB|M|s)?\b", TABLE)
    assert len(found) > 15
    for name, number, unit in found:
        assert getattr(bounds, name) == int(number.replace(",", "")) * units[unit], name
