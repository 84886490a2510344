"""The house plan, held by a walk over the imports (`tools/house.py`).

    0 values   bounds, elsewhere, errors, error_codes, kerberos_names, plurals, types, clock, config, config_authorizer, config_kerberos,
               config_keywords, config_names, config_plugins, config_listeners, config_properties, config_secrets, config_security,
               config_text, config_tls,
               config_values, printable, private_files
    1 bytes    _codec, codec, compress, epoch, records, _wheel, timer, purgatory
    2 protocol protocol; http_client, client_credentials
    3 net      net, metadata; decode
    4 engines  producer | consumer | admin | broker      (rooms that know nothing of each other)
    5 faces    the package itself, aio, testing, metrics, legacy, compat, spark, cli, __main__

A file imports only from the floors below, or from its own room where no circle may form. Faces may use each other, except that nobody
imports cli (but __main__) or spark (but pyspark_kafkacore and cli). Foreign packages: the run-time dependencies anywhere from floor 1 on;
those of the extras only in faces, and there inside functions, so that the package imports without them; the exceptions are listed below.
"""

import ast
import re
import sys
from pathlib import Path

import pytest
from house import Import, all_imports, room

import kafkacore

ROOT = Path(__file__).resolve().parent.parent

FLOORS: dict[str, int] = {
    **dict.fromkeys(("bounds", "elsewhere", "errors", "error_codes", "kerberos_names", "plurals", "principals", "printable"), 0),
    "private_files": 0,
    **dict.fromkeys(("types", "clock"), 0),
    **dict.fromkeys(("config", "config_authorizer", "config_base", "config_broker", "config_broker_tls", "config_kerberos"), 0),
    **dict.fromkeys(("config_broker_start", "config_broker_tables", "config_plugins"), 0),
    **dict.fromkeys(("config_keywords", "config_listeners", "config_names", "config_properties", "config_secrets"), 0),
    **dict.fromkeys(("config_security", "config_text", "config_tls", "config_values"), 0),
    **dict.fromkeys(("_codec", "codec", "compress", "epoch", "records", "_wheel", "timer", "purgatory"), 1),
    **dict.fromkeys(("protocol", "http_client", "client_credentials"), 2),
    **dict.fromkeys(("net", "metadata", "cluster_snapshot", "decode"), 3),
    **dict.fromkeys(("producer", "consumer", "admin", "broker"), 4),
    **dict.fromkeys(("", "aio", "testing", "metrics", "legacy", "compat", "spark", "cli", "__main__", "pyspark_kafkacore"), 5),
}
"""Floor of each room; "" is kafkacore/__init__.py."""

PRIVATE = {"cli": {"__main__"}, "spark": {"pyspark_kafkacore", "cli"}}
"""Rooms that only these may import."""

DEPENDENCIES = {"numpy", "lz4", "snappy", "zstandard"}
EXTRAS_BELOW = {
    "compress": {"isal"},
    "config_tls": {"cryptography"},
    "net": {"gssapi"},
    "http_client": {"httpx"},
    "decode": {"pyarrow", "fastavro", "google"},
    **{key: {"pyarrow"} for key in ("records", "_codec", "consumer")},
    "producer": {"pyarrow", "fastavro"},
}
"""Optional packages that a room below the faces may import, inside functions (isal: or in a try at the top)."""
EXTRAS_AT_TOP = {
    "decode": {"pyarrow"},
    "cli": {"typer", "rich", "click"},
    "spark": {"pyspark", "pyarrow"},
    "testing": {"pytest"},
    "metrics": {"prometheus_client", "opentelemetry"},
}
"""Optional packages that the submodules of a room may import at their top; its __init__.py may not, testing apart."""
LOADED_LATE = {"decode"}
"""Rooms below the faces that load an optional package: others import them inside functions, or at the top where that package may be."""

CYTHON_LIBRARIES = {"cython", "libc", "libcpp", "cpython", "posix"}


def foreign_problem(found: Import, here: str, is_package_root: bool) -> str | None:
    top = found.target.split(".")[0]
    if top in sys.stdlib_module_names or top in CYTHON_LIBRARIES:
        return None
    if top in DEPENDENCIES:
        return "floor 0 uses the standard library only" if FLOORS[here] == 0 else None
    if FLOORS[here] < 5:
        if top not in EXTRAS_BELOW.get(here, set()):
            return f"{top} is no run-time dependency"
        if top in EXTRAS_AT_TOP.get(here, set()) and not is_package_root:
            return None
        return f"{top} is optional: import it inside a function" if found.at_top and top != "isal" else None
    if found.at_top and (top not in EXTRAS_AT_TOP.get(here, set()) or (is_package_root and here != "testing")):
        return f"{top} is optional: import it inside a function"
    return None


def violations(root: Path) -> list[str]:
    """Every import that breaks the plan, as "module:line imports target: why"."""
    modules, imports = all_imports(root)
    problems = [f"{name}: room {room(name)!r} has no floor" for name in sorted(modules) if room(name) not in FLOORS]
    for found in imports:
        here, there = room(found.importer), room(found.target)
        own = found.target.split(".")[0] in ("kafkacore", "pyspark_kafkacore")
        why = None
        if here not in FLOORS or (own and there not in FLOORS):
            why = f"room {there!r} has no floor"
        elif not own:
            why = foreign_problem(found, here, (root / found.importer.replace(".", "/") / "__init__.py").exists())
        elif here != there:
            low, high = FLOORS[there], FLOORS[here]
            if there in PRIVATE and here not in PRIVATE[there]:
                why = f"nobody imports {there}"
            elif low > high:
                why = f"floor {high} imports floor {low}"
            elif low == high == 4:
                why = f"{here} and {there} know nothing of each other"
            elif found.at_top and there in LOADED_LATE and not EXTRAS_AT_TOP[there] <= EXTRAS_AT_TOP.get(here, set()):
                why = f"{there} loads optional packages: import it inside a function"
        if why:
            problems.append(f"{found.importer}:{found.line} imports {found.target}: {why}")
    return problems + circles(modules, imports)


def circles(modules: set[str], imports: list[Import]) -> list[str]:
    """Circles of imports that run at load time, each as "a -> b -> a"; importing a module also loads its packages, which is no circle."""
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for found in imports:
        if found.at_top and found.target in modules and found.target != found.importer:
            graph[found.importer].add(found.target)
    problems: list[str] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            problems.append(" -> ".join([*path[path.index(name) :], name]) + ": a circle")
        elif name not in done:
            for target in sorted(graph[name]):
                visit(target, [*path, name])
            done.add(name)

    for name in sorted(modules):
        visit(name, [])
    return problems


def test_the_design_has_the_same_floors():
    text = (ROOT / "DESIGN.md").read_text()
    rows = re.findall(r"^\| (\d) [^|]+\| ([^|]+) \|", text.split("## Floors")[1].split("## ")[0], re.MULTILINE)
    written = [(name.rstrip("/"), int(floor)) for floor, rooms in rows for name in re.findall(r"`([\w/]+)`", rooms)]
    assert sorted(written) == sorted((name or "kafkacore", floor) for name, floor in FLOORS.items() if name != "pyspark_kafkacore")


def test_the_house_stands():
    modules, imports = all_imports(ROOT)
    assert {"kafkacore.errors", "kafkacore._codec", "kafkacore.config"} <= modules
    assert len(imports) > 20
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"errors.py": "import kafkacore.config\n", "config.py": ""}, None),
        ({"errors.py": "import kafkacore.config\n", "config.py": "from kafkacore import errors\n"}, "a circle"),
        ({"records.py": "from kafkacore.protocol import X\n", "protocol/__init__.py": ""}, "floor 1 imports floor 2"),
        ({"records.py": "import importlib\nimportlib.import_module('kafkacore.net')\n", "net/__init__.py": ""}, "floor 1 imports floor 3"),
        ({"producer/__init__.py": "from kafkacore import broker\n", "broker/__init__.py": ""}, "know nothing of each other"),
        ({"consumer/__init__.py": "from ..admin import A\n", "admin.py": ""}, "know nothing of each other"),
        ({"net/client.py": "from kafkacore import KafkaProducer\n", "__init__.py": ""}, "floor 3 imports floor 5"),
        ({"testing.py": "from kafkacore.cli import main\n", "cli/__init__.py": ""}, "nobody imports cli"),
        ({"__main__.py": "from kafkacore.cli import main\n", "cli/__init__.py": ""}, None),
        ({"aio.py": "def f():\n    import kafkacore.spark.reader\n", "spark/reader.py": ""}, "nobody imports spark"),
        ({"cli/__init__.py": "import typer\n"}, "typer is optional"),
        ({"cli/__init__.py": "def main():\n    import typer\n", "cli/app.py": "import rich.table\n"}, None),
        ({"net/client.py": "def f():\n    import rich\n"}, "rich is no run-time dependency"),
        ({"config.py": "import numpy\n"}, "floor 0 uses the standard library only"),
        ({"consumer/__init__.py": "import pyarrow\n"}, "pyarrow is optional"),
        ({"consumer/__init__.py": "def f():\n    import pyarrow\n"}, None),
        ({"decode/base.py": "import pyarrow\n"}, None),
        ({"decode/__init__.py": "import pyarrow\n"}, "pyarrow is optional"),
        ({"consumer/x.py": "from kafkacore.decode import base\n", "decode/base.py": ""}, "decode loads optional packages"),
        ({"consumer/x.py": "def f():\n    from kafkacore.decode import base\n", "decode/base.py": ""}, None),
        ({"compress.py": "try:\n    import isal\nexcept ImportError:\n    pass\n"}, None),
        ({"helpers.py": ""}, "has no floor"),
        ({"_codec.pyx": "from libc.string cimport memcpy\nfrom kafkacore.errors import CorruptDataError\n", "errors.py": ""}, None),
        ({"native/x.pxi": "    from kafkacore.producer import P\n", "producer/__init__.py": ""}, "floor 1 imports floor 4"),
        ({"_codec.pyx": "cimport numpy as np, requests\n"}, "requests is no run-time dependency"),
    ],
)
def test_the_walk_sees_what_it_should(tmp_path, files, problem):
    for name, text in files.items():
        path = tmp_path / "kafkacore" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = violations(tmp_path)
    if problem is None:
        assert found == []
    else:
        assert len(found) == 1
        assert problem in found[0]


def test_no_lock_is_taken_through_a_condition() -> None:
    """`Condition.__enter__` is Python: Ctrl+C between its two halves leaves the lock taken for ever. Its lock is entered itself."""
    root = Path(kafkacore.__file__).parent
    for file in root.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"self\.(\w+) = threading\.Condition\(", text):
            assert f"with self.{name}:" not in text and f"with self.{name}," not in text, f"{file.relative_to(root)}: self.{name}"


ENGINES = [
    "consumer/fetcher.py", "consumer/left_out.py", "consumer/offsets.py", "consumer/sessions.py", "consumer/subscription.py",
    *(f"consumer/group/{name}.py" for name in ("classic", "commits", "departure", "membership", "modern", "subscribed", "topic_ids")),
    "net/asking.py", "net/connection.py", "net/coordinator.py", "net/leaders.py", "net/sasl.py", "net/sasl_gssapi.py",
    "producer/marker_wait.py", "producer/transactions.py", "producer/txn.py",
]  # fmt: skip


def test_engines_read_no_clock() -> None:
    """They are handed the time, and they neither wait nor know of threads."""
    root = Path(kafkacore.__file__).parent
    modules = {"asyncio", "kafkacore.clock", "select", "selectors", "socket", "threading", "time"}
    calls = {"acquire", "monotonic", "now_ms", "sleep", "time", "wait", "wall_ms"}
    found = []
    for file in ENGINES:
        for node in ast.walk(ast.parse((root / file).read_text())):
            if isinstance(node, ast.Import):
                found += [(file, name.name) for name in node.names if name.name in modules]
            elif isinstance(node, ast.ImportFrom) and node.module in modules:
                found.append((file, node.module))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in calls:
                found.append((file, node.func.attr))
    assert found == []
