"""Names, signatures and numbers of confluent-kafka's modules, by introspection of the installed package; its C classes by its own stubs."""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import pickle
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafkacore.compat.confluent.not_covered import NOT_COVERED, reason
from tests.kit.rows import each_row

real = pytest.importorskip("confluent_kafka", minversion="2.16")

ROOT = Path(__file__).parents[2]
OURS = "kafkacore.compat.confluent"
MODULES = ["", "admin", "cimpl", "error", "serialization"]
NOT_A_NAME = {"concurrent", "warnings", "string_type", "os", "Any", "Dict", "List", "Optional", "Set", "Tuple", "Union", "Callable"}
OTHER_SIGNATURES = {
    "Producer.__init__": "stubs show three overloads",
    "Consumer.__init__": "stubs show three overloads",
    "KafkaError.__init__": "the first parameter is positional in C; stubs and documentation name it differently",
}


def module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name}" if name else package)


def names_of(found: ModuleType) -> list[str]:
    """What a program imports from a module: its list, or what is no import of another package."""
    listed = getattr(found, "__all__", None)
    public = [each for each in dir(found) if not each.startswith("_") and each not in NOT_A_NAME]
    own = [each for each in public if not isinstance(getattr(found, each), ModuleType) and each not in ("Enum", "HeadersType")]
    return sorted({*(listed or ()), *own})


PAIRS = [(name, each) for name in MODULES for each in names_of(module("confluent_kafka", name)) if each not in NOT_COVERED]
CLASSES = sorted({
    (name, each) for name, each in PAIRS
    if inspect.isclass(found := getattr(module("confluent_kafka", name), each, None)) and not issubclass(found, (Exception, Enum))
})  # fmt: skip


@each_row("name", MODULES)
def test_public_names_are_there_or_listed(name: str) -> None:
    ours, theirs = module(OURS, name), module("confluent_kafka", name)
    missing = {each for each in names_of(theirs) if each not in NOT_COVERED and not hasattr(ours, each)}
    assert missing == set()
    for each in names_of(theirs):
        if isinstance(value := getattr(theirs, each, None), int) and each not in NOT_COVERED:
            assert getattr(ours, each) == value


@cache
def stubs() -> dict[str, dict[str, list[ast.FunctionDef]]]:
    """The methods of C classes, by class and name: one or, where they are overloaded, several."""
    (path,) = Path(str(real.__file__)).parent.glob("cimpl.pyi")
    found: dict[str, dict[str, list[ast.FunctionDef]]] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            methods = found.setdefault(node.name, {})
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    methods.setdefault(each.name, []).append(each)
    return found


Shape = list[tuple[str, Any]]


def of_stub(definition: ast.FunctionDef) -> Shape:
    """Parameters with their defaults; `...` is a default that stubs do not say."""
    arguments = definition.args
    plain = [*arguments.posonlyargs, *arguments.args][1:]
    defaults: list[Any] = [inspect.Parameter.empty] * (len(plain) - len(arguments.defaults))
    pairs = list(zip(plain, [*defaults, *arguments.defaults], strict=False))
    pairs += list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    return [(each.arg, ast.literal_eval(default) if isinstance(default, ast.expr) else default) for each, default in pairs]


def of_function(function: Any) -> Shape:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == "self":
        del parameters[0]
    return [(each.name, each.default) for each in parameters if each.kind not in kinds]


def alike(wanted: Shape, found: Shape) -> bool:
    """The same parameters in the same order. A time-out of None is one of -1; a default that stubs do not say is any."""

    def same(name: str, theirs: Any, ours: Any) -> bool:
        if theirs is ...:
            return ours is not inspect.Parameter.empty
        if isinstance(theirs, Enum):
            return isinstance(ours, Enum) and ours.value == theirs.value
        return (type(theirs) is type(ours) and bool(theirs == ours)) or (name == "timeout" and {theirs, ours} == {-1, None})

    named = [name for name, _ in wanted] == [name for name, _ in found]
    return named and all(same(name, theirs, ours) for (name, theirs), (_, ours) in zip(wanted, found, strict=True))


def covers(definitions: list[ast.FunctionDef], found: Shape) -> bool:
    """Overloads name some of the parameters each; ours has them all."""
    if len(definitions) == 1:
        return alike(of_stub(definitions[0]), found)
    return {name for each in definitions for name, _ in of_stub(each)} == {name for name, _ in found}


@each_row(("where", "name"), CLASSES, ids=[f"{where or 'confluent_kafka'}.{name}" for where, name in CLASSES])
def test_classes_have_the_same_methods(where: str, name: str) -> None:
    wanted, found = getattr(module("confluent_kafka", where), name), getattr(module(OURS, where), name)
    fields = inspect.ismemberdescriptor  # of C objects; here they are set when an object is made
    public = [each for each in dir(wanted) if not each.startswith("_") and not fields(getattr(wanted, each))]
    assert {each for each in public if not hasattr(found, each)} == without(name)
    in_c = stubs().get(name, {})
    for method in ["__init__", *(each for each in public if each not in without(name))]:
        theirs, ours = getattr(wanted, method), getattr(found, method)
        key = f"{name}.{method}"
        if key in OTHER_SIGNATURES or not callable(theirs) or inspect.isclass(theirs):
            continue
        if method in in_c:
            assert covers(in_c[method], of_function(ours)), key
        elif inspect.isfunction(theirs) or inspect.ismethod(theirs):
            inherited = stubs()["_AdminClientImpl"].get(method, []) if name == "AdminClient" else []
            passes_on = {each.kind for each in inspect.signature(theirs).parameters.values()} >= {inspect.Parameter.VAR_POSITIONAL}
            assert covers(inherited, of_function(ours)) if inherited and passes_on else alike(of_function(theirs), of_function(ours)), key


def test_enumerations_have_the_same_members_and_exceptions_the_same_bases() -> None:
    count = 0
    for where, name in PAIRS:
        theirs, ours = (getattr(module(package, where), name, None) for package in ("confluent_kafka", OURS))
        if inspect.isclass(theirs) and issubclass(theirs, Exception):
            assert [each.__name__ for each in theirs.__mro__] == [each.__name__ for each in ours.__mro__]  # type: ignore[union-attr]
        elif inspect.isclass(theirs) and issubclass(theirs, Enum):
            count += 1
            found = [[(key, each.value) for key, each in kind.__members__.items()] for kind in (theirs, ours)]  # type: ignore[union-attr]
            assert found[0] == found[1]
    assert count >= 10


def test_every_code_has_its_name() -> None:
    ours = module(OURS, "")
    for name in dir(real.KafkaError):
        if isinstance(code := getattr(real.KafkaError, name), int):
            assert getattr(ours.KafkaError, name) == code
            assert ours.KafkaError(code).name() == name


def outcome(call: Any, *args: Any) -> Any:
    try:
        return repr(call(*args))
    except Exception as error:
        return type(error).__name__


def test_values_compare_and_refuse_alike() -> None:
    def seen(k: Any) -> list[Any]:
        signs = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
        places = [k.TopicPartition(topic, number) for topic in ("a", "b") for number in (0, 1)]
        errors: list[Any] = [k.KafkaError(3), k.KafkaError(6, "why", True, True, True), k.KafkaError(-195)]
        found: list[Any] = [[sign(one, other) for sign in signs] for one in places for other in places]
        found += [[sign(one, other) for sign in signs] for one in errors for other in (*errors, 3, 6, 7)]
        found += [[each.code(), each.name(), each.fatal(), each.retriable(), each.txn_requires_abort()] for each in errors]
        found.append(repr(errors[1]))
        copies = [pickle.loads(pickle.dumps(each)) for each in errors]
        found += [[each.fatal(), each.retriable(), each.txn_requires_abort(), hash(each) == hash(each.code())] for each in copies]
        keys = ((b"k", 0), (b"k", -1), (b"k", 1), (b"k", 2**31 - 1), (b"k", 2**31), ("k", 2), (b"k", "2"))
        found += [[outcome(getattr(k, name), *each) for each in keys] for name in ("murmur2", "consistent", "fnv1a")]
        return found

    ours, theirs = seen(module(OURS, "")), seen(real)
    for one, other in zip(ours, theirs, strict=True):
        assert one == other
    assert [outcome(sign, module(OURS, "").TopicPartition("a"), 1) for sign in (operator.lt, operator.eq)] == ["TypeError", "False"]


def without(name: str) -> set[str]:
    """Methods of a class that are not covered, and so for those that inherit it."""
    bases = {"SerializingProducer": "Producer", "DeserializingConsumer": "Consumer"}
    return {each.partition(".")[2] for each in NOT_COVERED if each.startswith(f"{bases.get(name, name)}.")}


@each_row("name", sorted(each for each in NOT_COVERED if "." not in each))
def test_what_is_not_covered_says_why(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {OURS} import {name}", {})
    assert str(caught.value) == reason(name)
