"""The walk over the sources of the package and of its tests: who imports what, and what a definition uses. `ast` for .py, lines for Cython.

`tests/test_floors.py` holds the floors by it, `tools/check.py` chooses tests by it. Nothing is imported.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CYTHON_IMPORT = re.compile(r"^(\s*)(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+([\w., ]+))")
DYNAMIC = {"__import__", "importlib.import_module", "import_module", "pytest.importorskip"}
FIXTURES_BY_NAME = ("usefixtures", "getfixturevalue")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


class Import(NamedTuple):
    """One import statement: who, what, where, and whether it runs when the file is loaded.

    `name` is what `from target import name` takes, "" where it takes the module itself; `bound` is the name it gets. An import inside
    `if TYPE_CHECKING:` counts like any other.
    """

    importer: str
    target: str
    line: int
    at_top: bool
    name: str = ""
    bound: str = ""


class Source(NamedTuple):
    """What the walk sees in a file.

    `uses` has the names that each top-level definition uses, dotted where it takes attributes of a name. "" is for all other
    statements. Annotations use nothing. "@name" is a fixture that a test or a fixture asks for.
    """

    imports: list[Import]
    uses: dict[str, set[str]]


def module_name(path: Path, root: Path) -> str:
    """The dotted name; .pxi and .h files count as the extension that includes them."""
    if path.suffix in (".pxi", ".h"):
        return "kafkacore._wheel" if path.name.startswith("wheel") else "kafkacore._codec"
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """The part below kafkacore that has a floor; a top-level module is its own room."""
    parts = module.split(".")
    return parts[0] if parts[0] != "kafkacore" else (parts[1] if len(parts) > 1 else "")


def dotted(node: ast.AST) -> str:
    """Such an expression as text, as in "a.b.c"; "" for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def read(path: Path, root: Path, modules: set[str]) -> Source:
    """Walks a Python file. Tests import their neighbours, and tools, by bare names, as pytest lets them."""
    importer = module_name(path, root)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    imports: list[Import] = []
    used: set[str] = set()

    def known(name: str) -> str:
        beside = (f"{package}.{name}", f"tests.{name}", f"tools.{name}") if importer.startswith("tests.") and name not in modules else ()
        return next((each for each in beside if each in modules), name)

    def note(target: str, line: int, at_top: bool, name: str = "", bound: str = "") -> None:
        imports.append(Import(importer, target, line, at_top, name, bound))

    def note_from(node: ast.ImportFrom, at_top: bool) -> None:
        base = node.module or ""
        if node.level:
            base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])])
        base = known(base)
        for alias in node.names:
            full, bound = f"{base}.{alias.name}", alias.asname or alias.name
            target, name = (full, "") if full in modules else (base, alias.name)
            note(target, node.lineno, at_top, name, bound)

    def note_call(node: ast.Call, at_top: bool) -> None:
        name, first = dotted(node.func), node.args[0] if node.args else None
        text = first.values[0] if isinstance(first, ast.JoinedStr) and first.values else first
        start = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
        if name in DYNAMIC and start and text is first:
            note(start, node.lineno, at_top)
        elif name in DYNAMIC and start:
            for each in sorted(modules):
                if each.startswith(start) and "." not in each.removeprefix(start):
                    note(each, node.lineno, at_top)
        elif name.rpartition(".")[2] in FIXTURES_BY_NAME:
            used.update("@" + each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str))

    def walk(node: ast.AST, at_top: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                note(known(alias.name), node.lineno, at_top, "", alias.asname or alias.name)
        elif isinstance(node, ast.ImportFrom):
            note_from(node, at_top)
        elif isinstance(node, (ast.Name, ast.Attribute)) and (name := dotted(node)):
            used.add(name)
            return
        elif isinstance(node, ast.Call):
            note_call(node, at_top)
        elif isinstance(node, FUNCTIONS) and (node.name.startswith("test") or "fixture" in "".join(map(ast.dump, node.decorator_list))):
            used.update(f"@{each.arg}" for each in ast.walk(node.args) if isinstance(each, ast.arg))
        elif isinstance(node, ast.keyword) and node.arg == "autouse":
            used.add("autouse")
        inside = at_top and not isinstance(node, (*FUNCTIONS, ast.Lambda))
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, ast.AST) and not isinstance(each, LEAVES):
                        walk(each, inside)

    uses: dict[str, set[str]] = {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        used = set()
        begin = len(imports)
        walk(statement, True)
        if not isinstance(statement, (ast.Import, ast.ImportFrom)):
            used.update(found.target for found in imports[begin:] if not found.bound)
        for name in defined(statement):
            uses.setdefault(name, set()).update(used)
    return Source(imports, uses)


def defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)] or [""]


def cython_imports(path: Path, root: Path, modules: set[str]) -> Iterator[Import]:
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = CYTHON_IMPORT.match(text)
        if not found:
            continue
        indent, base, names, plain = found.groups()
        if base:
            targets = [f"{base}.{name.split()[0]}" for name in names.strip("() ").split(",") if name.split()]
            targets = [target if target in modules else base for target in targets]
        else:
            targets = [name.split()[0] for name in plain.split(",") if name.split()]
        for target in targets:
            yield Import(module_name(path, root), target, number, not indent)


def files(root: Path) -> tuple[list[Path], list[Path]]:
    """The package's files of Python and of Cython."""
    python = [*root.glob("kafkacore/**/*.py"), *root.glob("pyspark_kafkacore.py")]
    return python, [path for suffix in ("pyx", "pxi", "pxd") for path in root.glob(f"kafkacore/**/*.{suffix}")]


def all_imports(root: Path) -> tuple[set[str], list[Import]]:
    """The modules of the package, and all imports in them."""
    python, cython = files(root)
    modules = {module_name(path, root) for path in [*python, *cython]}
    found = [found for path in python for found in read(path, root, modules).imports]
    return modules, found + [found for path in cython for found in cython_imports(path, root, modules)]
