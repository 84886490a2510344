"""What a mutant is: one small fault, planted at one place of a source file.

Rules:
1. A fault changes what a line does. Annotations, docstrings, texts for people, log lines and asserts stay as they are.
2. `runs_on_import` says that no test can be seen to run the line: a constant, a default, a table.
3. A mutant is named by its file, its line's text and the text after it, so that its name stays when lines above it move.

Python is changed by its syntax tree, Cython and C by their text. The operators are those of Mutmut and cosmic-ray, and one of our own:
a loop that ends after its first element, since the second of anything is what tests forget.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
ARITHMETIC: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
SYMMETRIC = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # the other comparison is the negation already
LOG_CALLS = {"debug", "info", "warning", "error", "exception", "warn"}
NO_BEHAVIOUR = {"strict", "stacklevel", "slots", "frozen", "daemon"}  # keywords that guard or describe


class Mutant(NamedTuple):
    """A fault: bytes `start` to `end` of the file become `text`."""

    file: str
    line: int
    operator: str
    start: int
    end: int
    text: str
    code: str
    """The lines that change, without spaces at either end."""
    becomes: str
    span: tuple[int, int]
    """First and last line of the statement, of its head where it has a body."""
    runs_on_import: bool

    @property
    def name(self) -> tuple[str, str, str]:
        return self.file, self.code, self.becomes

    def plant(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def lines_around(source: bytes, start: int, end: int) -> str:
    first = source.rfind(b"\n", 0, start) + 1
    last = source.find(b"\n", end)
    return " ".join(source[first : last if last >= 0 else None].decode().split())


def named(source: bytes, file: str, operator: str, start: int, end: int, text: str, span: tuple[int, int], on_import: bool) -> Mutant:
    line = source.count(b"\n", 0, start) + 1
    changed = source[:start] + text.encode() + source[end:]
    becomes = lines_around(changed, start, start + len(text.encode()))
    return Mutant(file, line, operator, start, end, text, lines_around(source, start, end), becomes, span, on_import)


class _Python:
    """Finds all mutants of a Python file."""

    def __init__(self, source: bytes, file: str) -> None:
        self.source, self.file = source, file
        self.starts = [0]
        for text in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(text))
        self.found: list[Mutant] = []
        self.span = (1, 1)
        self.inside = False

    def at(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self.starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def text(self, node: ast.AST) -> str:
        start, end = self.at(node)
        return self.source[start:end].decode()

    def add(self, operator: str, start: int, end: int, text: str) -> None:
        self.found.append(named(self.source, self.file, operator, start, end, text, self.span, not self.inside))

    def between(self, operator: str, left: ast.AST, right: ast.AST, pattern: str, text: str) -> None:
        """The sign between two expressions."""
        begin, end = self.at(left)[1], self.at(right)[0]
        code = re.sub(rb"#[^\n]*", lambda note: b" " * len(note[0]), self.source[begin:end])
        sign = re.search(rb"(?<!\w)" + pattern.encode() + rb"(?!\w)", code)
        if sign is not None:
            self.add(operator, begin + sign.start(), begin + sign.end(), text)

    def visit(self, node: ast.AST) -> None:
        span = self.span
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            self.span = (node.lineno, last)
        if not _is_left_out(node):
            special = getattr(self, f"visit_{type(node).__name__}", None)
            if special is None or special(node) is None:
                self.children(node)
        self.span = span

    def children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def within(self, *nodes: ast.AST) -> None:
        inside, self.inside = self.inside, True
        for node in nodes:
            self.visit(node)
        self.inside = inside

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self.within(*node.body)
        return True

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> bool:
        self.within(node.body)
        return True

    def visit_ClassDef(self, node: ast.ClassDef) -> bool:
        for each in node.body:
            self.visit(each)
        return True

    def visit_AnnAssign(self, node: ast.AnnAssign) -> bool:
        if node.value is not None:
            self.delete(node, node.target)
            self.visit(node.value)
        return True

    def visit_Assign(self, node: ast.Assign) -> None:
        self.delete(node, node.targets[0])

    def delete(self, node: ast.stmt, target: ast.expr) -> None:
        if self.inside and isinstance(target, ast.Attribute | ast.Subscript):
            self.add("statement deleted", *self.at(node), "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self.add("statement deleted", *self.at(node), "pass")

    def visit_simple(self, node: ast.stmt) -> None:
        self.add("statement deleted", *self.at(node), "pass")

    visit_Raise = visit_Continue = visit_Break = visit_Delete = visit_simple

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add("statement deleted", *self.at(node), "pass")
        if type(node.op) in ARITHMETIC:
            pattern, text = ARITHMETIC[type(node.op)]
            self.between("arithmetic", node.target, node.value, pattern + "=", text + "=")

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self.negate(node.test)

    visit_While = visit_IfExp = visit_If

    def negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant) or (isinstance(test, ast.Compare) and isinstance(test.ops[0], SYMMETRIC)):
            return
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.add("condition negated", *self.at(test), f"({self.text(test.operand)})")
        else:
            self.add("condition negated", *self.at(test), f"(not ({self.text(test)}))")

    def visit_For(self, node: ast.For) -> None:
        self.first_only(node.iter)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.negate(test)
        if not node.is_async:
            self.first_only(node.iter)

    def first_only(self, elements: ast.expr) -> None:
        self.add("first element only", *self.at(elements), f'__import__("itertools").islice({self.text(elements)}, 1)')

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, sign, right in zip((node.left, *node.comparators), node.ops, node.comparators, strict=False):
            self.between("comparison", left, right, *COMPARISONS[type(sign)])

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between("and, or", left, right, *words)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        if type(node.op) not in ARITHMETIC or any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in sides):
            return
        if isinstance(node.op, ast.BitOr) and any(_is_type(side) for side in sides):
            return
        self.between("arithmetic", *sides, *ARITHMETIC[type(node.op)])

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add("True, False", *self.at(node), str(not node.value))
        elif isinstance(node.value, int | float):
            if node.value >= 100 and node.value % 10 == 0:  # a unit, of which one more or less is of no matter
                others = [node.value * 10, node.value // 10]
            else:
                others = [node.value + 1, node.value - 1][: 1 + (node.value >= 1)]
            for other in others:
                self.add("number", *self.at(node), str(other))

    def visit_Call(self, node: ast.Call) -> None:
        items = sorted([*node.args, *node.keywords], key=self.at)
        for index, item in enumerate(items):
            if not isinstance(item, ast.keyword) or item.arg is None or item.arg in NO_BEHAVIOUR:
                continue
            start, end = self.at(item)
            if index + 1 < len(items):
                end = self.at(items[index + 1])[0]
            elif index:
                start = self.at(items[index - 1])[1]
            self.add("argument dropped", start, end, "")
        for left, right in zip(node.args, node.args[1:], strict=False):
            # Arguments of two kinds would fail at once.
            if type(left) is type(right) and not isinstance(left, ast.Starred) and self.text(left) != self.text(right):
                begin, end = self.at(left)[0], self.at(right)[1]
                middle = self.source[self.at(left)[1] : self.at(right)[0]].decode()
                self.add("arguments swapped", begin, end, self.text(right) + middle + self.text(left))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_type(node: ast.AST) -> bool:
    return (
        (isinstance(node, ast.Constant) and node.value is None)
        or isinstance(node, ast.Subscript)
        or (isinstance(node, ast.Name) and (node.id[:1].isupper() or node.id in ("int", "str", "bytes", "float", "bool", "list", "dict")))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and (_is_type(node.left) or _is_type(node.right)))
    )


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert():  # the places in an f-string are wrong before Python 3.12
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Attribute(attr="Thread")):  # its name, and whether it is a daemon
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=receiver), attr=name)):
            return name in LOG_CALLS and receiver.strip("_").lower() in ("log", "logger", "warnings")
        case ast.Expr(value=ast.Call() as call):
            return _is_left_out(call)
        case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
        case ast.keyword(arg=name):
            return name in NO_BEHAVIOUR
    return False


NATIVE = re.compile(
    r"""(?P<equal>==|!=)|(?P<order>[ ](?:<=|>=|<|>)[ ])|(?P<logic>\band\b|\bor\b|&&|\|\|)|(?P<sign>[ ][-+][ ])|(?P<shift>[ ](?:<<|>>)[ ])
    |(?P<number>(?<![\w.'])\d+(?![\w.']))|(?P<truth>\bTrue\b|\bFalse\b)""",
    re.VERBOSE,
)
_PAIRS = ("==", "!="), (" <= ", " < "), (" >= ", " > "), ("and", "or"), ("&&", "||"), (" + ", " - "), (" << ", " >> "), ("True", "False")
OTHERS = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
NO_CODE = re.compile(r'"""[\s\S]*?"""|/\*[\s\S]*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"')
NO_CODE_LINES = re.compile(r"^[ \t]*(?:#|@|from\b|import\b|cimport\b|include\b|cdef extern\b|assert\b)[^\n]*|(?<=  )#[^\n]*", re.MULTILINE)
C_LINES = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)


def _native(source: bytes, file: str) -> Iterator[Mutant]:
    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    # One character per byte, so that places are places in the file.
    text = NO_CODE.sub(blank, source.decode("latin-1"))
    text = (C_LINES if file.endswith(".h") else NO_CODE_LINES).sub(blank, text)
    for found in NATIVE.finditer(text):
        sign = found[0]
        line = text.count("\n", 0, found.start()) + 1
        for other in [OTHERS[sign]] if sign in OTHERS else [str(int(sign) + 1)]:
            yield named(source, file, str(found.lastgroup), found.start(), found.end(), other, (line, line), False)


def is_native(file: str) -> bool:
    return not file.endswith(".py")


def mutants_of(source: bytes, file: str) -> list[Mutant]:
    """All faults that can be planted in a file, by place.

    Args:
        source: the file's bytes.
        file: its path, which says the language and goes into the names.
    """
    if is_native(file):
        found = list(_native(source, file))
    else:
        finder = _Python(source, file)
        finder.visit(ast.parse(source))
        found = finder.found
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.text))
