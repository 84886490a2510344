"""No class of the extension crashes when its objects are made without their state: by `__new__` alone, or out of nothings."""

import subprocess
import sys

import pytest

from kafkacore import _codec
from tests.kit.rows import each_row

KINDS = sorted(name for name, kind in vars(_codec).items() if isinstance(kind, type) and kind.__module__ == _codec.__name__)
SEALED = (
    "Batch", "BufferStart", "ByteColumn", "ProduceAttempt", "ProducePartitions", "ProduceTopics", "ProducedTopics", "Ready",
    "RecordColumns", "RecordFuture",
)  # fmt: skip

# In a process of its own, since what it looks for is a crash. Every step is named before it is tried: the last line tells where it was.
PROBE = """
import faulthandler
import sys

import kafkacore
from kafkacore import _codec

faulthandler.enable()
SANE = (TypeError, AttributeError, ValueError, ArithmeticError, LookupError, OSError, AssertionError, BufferError, StopIteration,
        MemoryError, NotImplementedError, kafkacore.errors.KafkaError)


def tried(what, *arguments):
    try:
        return what(*arguments)
    except SANE:
        return None


for class_name in sys.argv[1:]:
    kinds = [getattr(_codec, class_name)]
    derived = tried(type, "Derived", (kinds[0],), {})
    objects = []
    for kind in kinds if derived is None else (*kinds, derived):
        for count in range(12):
            for filler in (None, 0, ""):
                print(class_name, "made of", [filler] * count, flush=True)
                for make in (kind, lambda *arguments: kind.__new__(kind, *arguments)):
                    made = tried(make, *[filler] * count)
                    if made is not None:
                        objects.append(made)
                if not count:
                    break
    for made in objects:
        for look in (repr, len, iter, next, hash, memoryview, bool, lambda o: o[0], lambda o: o[:], lambda o: o == o):
            tried(look, made)
        for name in dir(made):
            if name in ("__class__", "__init_subclass__", "__subclasshook__", "__new__"):
                continue
            print(class_name, name, flush=True)
            found = tried(getattr, made, name)
            if callable(found):
                for count in range(8):
                    for filler in (None, 0):
                        tried(found, *[filler] * count)
            tried(setattr, made, name, None)
print("through")
"""


def test_no_class_crashes_without_its_state() -> None:
    assert len(KINDS) > 20
    done = subprocess.run([sys.executable, "-c", PROBE, *KINDS], capture_output=True, text=True, timeout=120)
    steps = done.stdout.splitlines()
    assert done.returncode == 0 and steps[-1] == "through", (steps[-1:], done.stderr[-3000:])


@each_row("name", SEALED)
def test_what_callers_cannot_make_is_refused(name: str) -> None:
    kind = getattr(_codec, name)
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError):
        kind.__new__(kind)
    with pytest.raises(TypeError):
        object.__new__(kind)
