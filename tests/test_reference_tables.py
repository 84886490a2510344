"""The tables of docs/ that a tool writes are those of the code."""

from __future__ import annotations

import dataclasses
import importlib.util
import types
from pathlib import Path

import pytest

from kafkacore import errors
from kafkacore.config import AdminConfig, ConsumerConfig, ProducerConfig

ROOT = Path(__file__).parent.parent


def loaded() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("reference_tables", ROOT / "tools" / "reference_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = loaded()


@pytest.mark.parametrize("name", sorted(TOOL.PAGES))
def test_a_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == TOOL.PAGES[name](), "write it by: python tools/reference_tables.py"


def test_every_setting_and_every_code_has_its_row() -> None:
    settings, found = TOOL.settings_page(), TOOL.errors_page()
    for config in (ProducerConfig, ConsumerConfig, AdminConfig):
        assert all(f"| `{field.name}` |" in settings for field in dataclasses.fields(config))
    for code in errors.Code:
        assert code in (errors.Code.NONE,) or f"| {int(code)} {code.name} |" in found, code
