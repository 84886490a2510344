"""Writes docs/settings.md: the clients' settings as tables, out of the dataclasses that hold them.

`tests/test_config_keywords.py` compares.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "settings.md"
INTRODUCTION = """# Settings of the clients

As keywords (`linger_ms=5`) or in a dict under Kafka's dotted names (`{"linger.ms": 5}`), for the synchronous clients and those of
`kafkacore.aio`. The defaults are those of Kafka's Java clients where nothing else is said. `help(KafkaProducer)` lists them, too, editors
complete them, and mypy refuses misspelled ones. `tools/settings_table.py` writes this page.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is None and "None" not in str(field.type):
        return "by other settings"
    value = field.default
    if isinstance(value, tuple):
        return f"`{', '.join(value)}`" if value else ""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        return f"`{value:_}`"
    return f"`{value!r}`" if isinstance(value, str) else f"`{value}`"


def _section(title: str, config: type[Any], keywords: type[Any]) -> list[str]:
    fields = {field.name: field for field in dataclasses.fields(config)}
    lines = [f"## {title}", "", "| setting | type | default | |", "|---|---|---|---|"]
    for name, sentence in config.sentences().items():  # in this order: some go on where the one before ended
        takes = keywords.__annotations__[name].__forward_arg__
        lines.append(f"| `{name}` | `{_cell(takes)}` | {_default(fields[name])} | {_cell(sentence)} |")
    return [*lines, ""]


def page() -> str:
    """The whole page."""
    from kafkacore.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
    from kafkacore.config_keywords import AdminKeywords, ClientKeywords, ConsumerKeywords, ProducerKeywords, SecurityKeywords
    from kafkacore.config_security import SecuritySettings

    class Security(ClientConfig):
        __doc__ = SecuritySettings.__doc__

    sections: list[tuple[str, type[Any], type[Any]]] = [
        ("Producer", ProducerConfig, ProducerKeywords),
        ("Consumer", ConsumerConfig, ConsumerKeywords),
        ("Admin client", AdminConfig, AdminKeywords),
        ("Every client", ClientConfig, ClientKeywords),
        ("Security", Security, SecurityKeywords),
    ]
    lines = [line for title, config, keywords in sections for line in _section(title, config, keywords)]
    return f"{INTRODUCTION}\n" + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
