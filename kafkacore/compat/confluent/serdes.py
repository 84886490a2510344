"""The serializers of a client: out of its settings, made by builders or given ready, and closed with it.

Source: confluent_kafka.SerializingProducer, confluent-kafka 2.16.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

CLUSTER_ID_S = 60.0


class Serdes:
    """The two of a client.

    Args:
        conf: the client's settings.
        kind: serializer or deserializer.

    Raises:
        ValueError: both a serializer and a builder are given, or a builder gives no pair.

    Attributes:
        key, value: callables; None where none is set.
        conf: the settings that are left for the client: those that each builder left.
    """

    def __init__(self, conf: dict[str, Any], kind: str) -> None:
        self.conf = dict(conf)
        self._made: list[Any] = []
        names = [(f"key.{kind}", True), (f"value.{kind}", False)]
        given = [(name, is_key, self.conf.pop(name, None), self.conf.pop(f"{name}.builder", None)) for name, is_key in names]
        for name, _, ready, builder in given:
            if ready is not None and builder is not None:
                raise ValueError(f"Cannot configure both {name} and {name}.builder; use one or the other")
        found: list[Any] = []
        lefts: list[dict[str, Any]] = []
        try:
            for name, is_key, ready, builder in given:
                if builder is None:
                    found.append(ready)
                    continue
                made = builder.build(dict(self.conf), is_key)
                if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict)):
                    raise ValueError(f"{name}.builder must return a (serde, configuration) tuple from build(), got {type(made).__name__}")
                self._made.append(made[0])
                found.append(made[0])
                lefts.append(made[1])
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        if lefts:
            self.conf = {name: value for name, value in lefts[-1].items() if all(name in left for left in lefts)}
        self.key, self.value = found

    def know(self, cluster_id: Callable[..., Any]) -> None:
        """Gives those that want it a way to the cluster's id, which asks when it is called."""
        for each in (self.key, self.value):
            if callable(setter := getattr(each, "set_cluster_id_resolver", None)):
                setter(lambda: cluster_id(timeout=CLUSTER_ID_S))

    def close(self) -> None:
        """Closes those that a builder made; all are closed before an error is raised."""
        made, self._made = self._made, []
        with contextlib.ExitStack() as stack:
            for close in (getattr(each, "close", None) for each in made):
                if callable(close):
                    stack.callback(close)
