"""A pytest plugin that stands between a program's `import kafka` and kafka-python: the names come from kafkacore.compat.kafka.

What that has no module for (protocol, net, util, codec: the insides, which tests import too) comes from the source tree that
$KAFKA_PYTHON_SOURCE names.
"""

import importlib
import os
import pkgutil
import sys
import types

from kafkacore.compat import kafka as ours

THEIRS = {"future"}
"""Modules of kafka-python's own that its network layer works with."""


def install() -> None:
    package = types.ModuleType("kafka", ours.__doc__)
    package.__dict__.update({name: getattr(ours, name) for name in ours.__all__})
    source = os.environ["KAFKA_PYTHON_SOURCE"]
    package.__path__ = [os.path.join(source, "kafka")]
    sys.modules["kafka"] = package
    for found in pkgutil.iter_modules(ours.__path__):
        if found.name not in THEIRS:
            module = sys.modules[f"kafka.{found.name}"] = importlib.import_module(f"kafkacore.compat.kafka.{found.name}")
            setattr(package, found.name, module)
    tests = sys.modules["test"] = types.ModuleType("test")  # in place of Python's own
    tests.__path__ = [os.path.join(source, "test")]
    service = sys.modules["test.service"] = types.ModuleType("test.service")  # starts brokers; the distribution is without it
    service.ExternalService = lambda host, port: types.SimpleNamespace(host=host, port=port)  # type: ignore[attr-defined]
    service.SpawnedService = None  # type: ignore[attr-defined]


install()
