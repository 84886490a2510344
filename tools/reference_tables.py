"""Writes the parts of the manual that are tables of what the code says, so that they can be read without building the manual:
docs/settings.md out of config.py, docs/errors.md out of errors.py.

`tests/test_reference_tables.py` compares.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = """# Settings of the clients

As keywords (`linger_ms=5`) or in a dict under Kafka's dotted names (`{"linger.ms": 5}`), for the synchronous clients and those of
`kafkacore.aio`. The defaults are those of Kafka's Java clients where nothing else is said. `help(KafkaProducer)` lists them, too, editors
complete them, and mypy refuses misspelled ones. `tools/reference_tables.py` writes this page.
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


def settings_page() -> str:
    """docs/settings.md."""
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
    return f"{SETTINGS}\n" + "\n".join(lines).rstrip() + "\n"


ERRORS = """# Errors

Every error derives from `kafkacore.errors.KafkaError`. Its attributes say where it happened, as far as that is known: `topic`, `partition`,
`offset`, `broker`, `api`; `attempts` has what earlier tries failed of. A client tries again by itself what is retriable; what it raises has
failed for good, or its time was up. `tools/reference_tables.py` writes these tables.
"""
FAMILIES = (
    ("Wrong use", "Arguments, settings and states: the program has to change."),
    ("Time, network, data, transactions", "What has no error code of Kafka's."),
    ("Kafka's error codes", "One class for each code of Kafka 4.3."),
)


def errors_page() -> str:
    """docs/errors.md."""
    from kafkacore import errors

    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.KafkaError)]
    known = [each for each in dict.fromkeys(found) if each.__module__ == errors.__name__ and not each.__name__.startswith("_")]
    of_usage: list[type[errors.KafkaError]] = [each for each in known if issubclass(each, errors.UsageError)]
    of_codes = [each for each in known if each.code is not None and each not in of_usage]
    of_codes.sort(key=lambda each: (each.code, each.__name__))
    others = [each for each in known if each not in of_usage and each not in of_codes]
    lines: list[str] = []
    tables: list[list[type[errors.KafkaError]]] = [of_usage, others, of_codes]
    for (title, what), classes in zip(FAMILIES, tables, strict=True):
        lines += [f"## {title}", "", what, "", "| class | code | base | retriable | |", "|---|---|---|---|---|"]
        for each in classes:
            code = "" if each.code is None else f"{int(each.code)} {errors.Code(each.code).name}"
            first = (inspect.getdoc(each) or "").partition("\n\n")[0].replace("\n", " ")
            again = "yes" if each.retriable else ""
            lines.append(f"| `{each.__name__}` | {code} | `{each.__mro__[1].__name__}` | {again} | {_cell(first)} |")
        lines.append("")
    return f"{ERRORS}\n" + "\n".join(lines).rstrip() + "\n\n" + REFERENCE


REFERENCE = """## In full

```{eval-rst}
.. automodule:: kafkacore.errors
   :members:
```
"""
PAGES = {"settings.md": settings_page, "errors.md": errors_page}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page())
