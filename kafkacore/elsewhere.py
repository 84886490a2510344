"""What users of other clients write: methods, arguments, the order of a callback's arguments. Each is answered in one sentence.

Names of settings are in config_names. A name of another client is an attribute of the class that raises, so `hasattr` stays false, type
checkers do not know it, and an attribute that is there costs nothing more.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Never

from kafkacore.errors import UsageError

log = logging.getLogger("kafkacore.producer")

_ASYNC_START = "the client starts by itself; `async with`, or close(), ends it"

PRODUCER = {
    "produce": "send(topic, value, key) queues a record, with on_delivery(metadata, error); partitioner='consistent_random' lets keys"
    " stay on their partitions",
    "poll": "nothing to poll: a thread of the producer's own sends, and calls on_delivery",
    "send_and_wait": "send(...).result(timeout) waits for the record; in asyncio `await (await producer.send(...))`",
    "partitions_for_topic": "partitions_for(topic)",
    "list_topics": "KafkaAdminClient.list_topics()",
    "begin": "begin_transaction()",
    "purge": "close(0) drops what is queued",
    "bootstrap_connected": "a wrong address shows at the first send",
}
"""Methods that producers of other clients have, and what does it here."""

CONSUMER = {
    "consume": "poll(timeout, max_records) gives records by partition, a `for` loop one after the other",
    "getone": "`async for record in consumer` of kafkacore.aio, or poll(timeout, max_records=1)",
    "getmany": "poll(timeout, max_records)",
    "topics": "list_topics()",
    "partitions_for_topic": "partitions_for(topic)",
    "highwater": "lag(partition) counts the records left, end_offsets([partition]) asks for the end",
    "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
    "store_offsets": "commit(offsets), with enable_auto_commit=False",
    "incremental_assign": "assign(partitions) takes the whole assignment; partitions that stay keep their position",
    "incremental_unassign": "assign(partitions) takes the whole assignment; partitions that stay keep their position",
    "seek_to_committed": "committed(partitions) says where: seek(partition, offset)",
    "consumer_group_id": "config.group_id",
    "memberid": "consumer_group_metadata().member_id",
    "bootstrap_connected": "health() says whether brokers are reachable",
    "last_stable_offset": "end_offsets([partition]) with isolation_level=read_committed",
}
"""Methods that consumers of other clients have."""

ADMIN = {
    "describe_consumer_groups": "describe_groups(names)",
    "list_consumer_groups": "list_groups()",
    "delete_consumer_groups": "delete_groups(names)",
}
"""Methods that admin clients of other clients have."""

STARTED = {"start": _ASYNC_START, "stop": "close()"}
"""aiokafka's."""

RECORD = {
    "timestamp": "timestamp_ms, in epoch milliseconds",
    "error": "poll raises errors; what it returns are records",
    "checksum": "batches are checked when they are read (check_crcs)",
    "serialized_key_size": "len(record.key)",
    "serialized_value_size": "len(record.value)",
}
"""Attributes of records."""

FUTURE = {
    "add_callback": "add_done_callback(fn) calls fn(future)",
    "add_errback": "add_done_callback(fn) calls fn(future); future.exception() is the error",
    "succeeded": "done() and exception() is None",
    "failed": "done() and exception() is not None",
    "is_done": "done()",
    "value": "result(timeout)",
}
"""Attributes of what send returns."""

ARGUMENTS = {
    "timeout_ms": "timeout, in seconds",
    "timeout_s": "timeout",
    "num_messages": "max_records",
    "update_offsets": "leave it out: positions follow what poll returns",
    "callback": "on_delivery, called with (metadata, error)",
    "on_assign": "listener, a RebalanceListener",
    "on_revoke": "listener, a RebalanceListener",
    "on_lost": "listener, a RebalanceListener",
    "timestamp": "timestamp_ms, in epoch milliseconds",
    "partition": "partitions",
    "regex": "pattern",
}
"""Arguments, and their names here."""


class _Answer:
    """A name that the class does not have: says what does it here."""

    def __init__(self, name: str, answer: str) -> None:
        self.name = name
        self.answer = answer

    def __get__(self, instance: object, owner: type) -> Never:
        # No `obj`: Python would add the nearest of our names to the sentence, which the sentence has already.
        raise AttributeError(f"{owner.__name__} has no {self.name}: {self.answer}", name=self.name)


def answering(names: Mapping[str, str]) -> dict[str, _Answer]:
    """The attributes that answer these names."""
    return {name: _Answer(name, answer) for name, answer in names.items()}


def answer_names(cls: type, *tables: Mapping[str, str]) -> None:
    """Has a class answer other clients' names, unless it has them itself. `dir` of its objects does not show them."""
    for table in tables:
        for name, answer in answering(table).items():
            if not hasattr(cls, name):
                setattr(cls, name, answer)
    setattr(cls, "__dir__", _own_names)  # noqa: B010


def _own_names(self: object) -> list[str]:
    cls = type(self)
    return [name for name in object.__dir__(self) if not isinstance(inspect.getattr_static(cls, name, None), _Answer)]


def refuse_arguments(call: str, unknown: Mapping[str, Any]) -> None:
    """Raises the TypeError for keywords that a call does not have; without any does nothing.

    Raises:
        TypeError: with the name that the first of them has here, where that is known.
    """
    for name in unknown:
        answer = ARGUMENTS.get(name)
        raise TypeError(f"{call} got an unexpected keyword argument {name!r}{'' if answer is None else f'; here it is {answer}'}")


class Answering:
    """A function that answers keywords it does not have, as `refuse_arguments`, when it is called. To `inspect` it is that function.

    Args:
        function: any, with parameters of its own names only.
        call: its name, for the error.
    """

    def __init__(self, function: Callable[..., Any], call: str) -> None:
        self._function = function
        self._call = call
        self._known = inspect.signature(function).parameters.keys()
        self.__doc__, self.__module__ = function.__doc__, function.__module__

    def __call__(self, *args: Any, **named: Any) -> Any:
        if not named.keys() <= self._known:
            refuse_arguments(self._call, {name: value for name, value in named.items() if name not in self._known})
        return self._function(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __repr__(self) -> str:
        return repr(self._function)


@functools.cache
def _said_partitioner() -> None:
    log.warning(
        "keys go where Java's default partitioner sends them (murmur2); confluent-kafka, which is imported too, sends them elsewhere"
        " (CRC-32). partitioner='consistent_random' keeps keys on its partitions, partitioner='murmur2' says that murmur2 is meant"
    )


def check_partitioner() -> None:
    """Warns a process that has confluent-kafka's producers, too, and sends keys with our default partitioner. Theirs is another one: a
    producer that moved here would send the same keys to other partitions."""
    if "confluent_kafka.cimpl" in sys.modules:
        _said_partitioner()


_LONG_S = 1000  # longer waits than a program means, and a second in milliseconds


def check_seconds(call: str, timeout: Any) -> None:
    """Warns of a whole number of seconds that was probably meant as milliseconds: 1000 and more. A float is taken at its word."""
    if type(timeout) is int and timeout >= _LONG_S:
        warnings.warn(
            f"{call}({timeout}) waits up to {timeout} seconds: timeouts are seconds here. For milliseconds write {timeout / 1000:g}, and"
            f" {timeout}.0 if you mean it",
            stacklevel=3,
        )


_ERRORS = frozenset(("err", "error", "e", "ex", "exc", "exception", "kafka_error", "failure"))
_OUTCOMES = frozenset(
    ("msg", "message", "metadata", "meta", "md", "record", "record_metadata", "report", "offsets", "partitions", "topic_partitions")
)


def check_plain_function(fn: Callable[..., object], name: str, instead: str) -> None:
    """Refuses a coroutine function as a callback: nothing would await what it returns, so that none of it would run.

    Args:
        fn: the callback.
        name: of the argument.
        instead: what to do.

    Raises:
        UsageError: it is one, or an object whose `__call__` is.
    """
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None)):  # noqa: B004
        what = getattr(fn, "__qualname__", None) or type(fn).__name__
        raise UsageError(f"{name} is a plain function, and {what} is a coroutine function, which nothing would await: {instead}")


def check_callback_order(fn: Callable[..., object], name: str, order: str) -> None:
    """Refuses a callback whose parameters are named as if the error came first, as in confluent-kafka. With ours it comes last: such a
    callback would take every success for a failure, and the other way round. Refuses coroutine functions, too.

    Args:
        fn: the callback.
        name: of the argument.
        order: what it is called with, "metadata, error".

    Raises:
        UsageError: the first of its two parameters is named like an error, or the second like the outcome, and not both alike; or it is a
            coroutine function.
    """
    check_plain_function(fn, name, "await the future that send() returns, or have a function make a task")
    try:
        found = inspect.signature(fn, follow_wrapped=False).parameters.values()  # a wrapper may be what turns them
    except (TypeError, ValueError):
        return
    names = [p.name.lower().strip("_") for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:2]
    if len(names) < 2 or names[1] in _ERRORS or names[0] in _OUTCOMES:
        return
    if names[0] in _ERRORS or names[1] in _OUTCOMES:
        what = getattr(fn, "__qualname__", None) or type(fn).__name__
        raise UsageError(
            f"{name} is called as {name}({order}), and {what}({', '.join(names)}) has them the other way round, as in confluent-kafka:"
            " exchange its two parameters"
        )


check_delivery_order = functools.partial(check_callback_order, name="on_delivery", order="metadata, error")
