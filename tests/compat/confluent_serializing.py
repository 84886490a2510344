"""What programs do with confluent-kafka's serializers, and the clients that call them."""

from __future__ import annotations

from typing import Any

from tests.compat.both_packages import case
from tests.compat.confluent_face import NOW_MS, WAIT_S, Face
from tests.kit.waiting import until


@case
def serializers_by_themselves(f: Face) -> Any:
    s, raised = f.s, f.given
    return [
        [s.IntegerSerializer()(each) for each in (0, -1, 2**31 - 1, None)], [s.DoubleSerializer()(each) for each in (1.5, 3, None)],
        [s.StringSerializer()(each) for each in ("é", "", None)], s.StringSerializer("utf_16_le")("é"),
        s.StringSerializer(codec="latin1")("é"),
        [s.IntegerDeserializer()(each) for each in (b"\0\0\0\5", None)], s.DoubleDeserializer()(b"\x3f\xf8" + bytes(6)),
        s.DoubleDeserializer()(None),
        s.StringDeserializer()("é".encode()), s.StringDeserializer("latin1")(b"\xe9"), s.StringDeserializer()(None),
        [type_of(f, lambda fn=fn, value=value: fn(value)) for fn, value in (
            (s.IntegerSerializer(), 2**31), (s.IntegerSerializer(), "x"), (s.DoubleSerializer(), "x"), (s.StringSerializer("ascii"), "é"),
            (s.IntegerDeserializer(), b"\0"), (s.DoubleDeserializer(), b"\0"), (s.StringDeserializer(), b"\xff"),
            (s.StringSerializer(), 3),
        )],
        raised(lambda: s.Serializer()(1)), raised(lambda: s.Deserializer()(b"")), raised(lambda: s.SerializerBuilder().build({}, True)),
        s.IntegerSerializer().close(), s.IntegerSerializer().set_cluster_id_resolver(None), str(s.MessageField.KEY),
        s.MessageField.VALUE == "value",
        vars(s.SerializationContext("t", s.MessageField.KEY, [("a", b"b")])), issubclass(s.SerializationError, f.k.KafkaException),
    ]  # fmt: skip


def type_of(f: Face, fn: Any) -> Any:
    """The class of what is raised, and whether its first argument is a text."""
    try:
        return fn()
    except Exception as error:
        return type(error).__name__, isinstance(error.args[0], str)


def reading(f: Face, **settings: Any) -> Any:
    base = {"bootstrap.servers": f.servers, "group.id": f.group(), "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
    consumer = f.open(f.k.DeserializingConsumer(base | settings))
    consumer.assign([f.tp(0)])
    return consumer


def polled(consumer: Any) -> Any:
    found: list[Any] = []  # a message may be as false as its value
    until(lambda: found.append(consumer.poll(0.2)) or found[-1] is not None, "a message")
    return found[-1]


def sending(f: Face, **settings: Any) -> Any:
    return f.open(f.k.SerializingProducer({"bootstrap.servers": f.servers, "linger.ms": 1} | settings))


@case
def objects_there_and_back(f: Face) -> Any:
    seen: list[Any] = []

    def noted(inner: Any) -> Any:
        def call(value: Any, context: Any) -> Any:
            seen.append((value, context.topic, context.field == "key", str(context.field), context.headers))
            return inner(value, context)

        return call

    producer = sending(f, **{"key.serializer": noted(f.s.StringSerializer()), "value.serializer": noted(f.s.IntegerSerializer())})
    reports: list[Any] = []
    producer.produce(f.topic, "k", 5, 0, lambda error, m: reports.append((error, m.key(), m.value())), NOW_MS, [("h", b"1")])
    producer.produce(f.topic, key=None, value=None, partition=0)
    producer.produce(topic=f.topic, value=7, partition=0, headers={"a": "b"})
    left = producer.flush(WAIT_S)
    consumer = reading(f, **{"key.deserializer": noted(f.s.StringDeserializer()), "value.deserializer": noted(f.s.IntegerDeserializer())})
    messages = [polled(consumer) for _ in range(3)]
    return left, reports, seen, [
        (m.key(), m.value(), m.deserialized_key(), m.deserialized_value(), m.offset(), m.headers()) for m in messages
    ], f.given(lambda: consumer.consume(1)), consumer.poll(0.05)  # fmt: skip


@case
def what_cannot_be_serialized(f: Face) -> Any:
    producer = sending(f, **{"key.serializer": f.s.IntegerSerializer(), "value.serializer": f.s.StringSerializer()})
    found = []
    for key, value in (("x", "v"), (1, 5)):
        try:
            producer.produce(f.topic, key, value, 0)
        except f.error.ProduceError as error:
            kinds = [isinstance(error, each) for each in (f.s.SerializationError, f.k.KafkaException)]
            cause = type(error.exception).__name__
            found.append((type(error).__name__, error.code, error.name, cause, kinds, error.kafka_message, error.args[0].str() != ""))
    return found, f.given(lambda: producer.produce(5, 1, "v")), len(producer), producer.flush(WAIT_S)


@case
def what_cannot_be_read(f: Face) -> Any:
    f.fill(2)
    found: list[Any] = []
    for part in ("key", "value"):
        consumer = reading(f, **{f"{part}.deserializer": lambda value, context: 1 / 0, "enable.partition.eof": True})
        for _ in range(3):
            try:
                found.append(polled(consumer).offset())
            except f.error.ConsumeError as error:
                kinds = isinstance(error, f.s.SerializationError), type(error.exception).__name__
                found.append((type(error).__name__, error.name, kinds, error.kafka_message.offset(), error.kafka_message.value() is None))
    return found


class Built:
    """A serializer of a builder."""

    def __init__(self, log: list[Any], inner: Any) -> None:
        self.log, self.inner = log, inner

    def __call__(self, value: Any, context: Any) -> Any:
        return self.inner(value, context)

    def set_cluster_id_resolver(self, resolver: Any) -> None:
        self.resolver = resolver

    def close(self) -> None:
        self.log.append("closed")


class Builder:
    """Takes its own setting."""

    def __init__(self, log: list[Any], inner: Any, takes: str) -> None:
        self.log, self.takes = log, takes
        self.built = Built(log, inner)

    def build(self, conf: dict[str, Any], is_key: bool) -> Any:
        self.log.append((is_key, sorted(conf)))
        return self.built, {name: value for name, value in conf.items() if name != self.takes}


@case
def builders(f: Face) -> Any:
    log: list[Any] = []
    key, value = Builder(log, f.s.StringSerializer(), "mine"), Builder(log, f.s.IntegerSerializer(), "other")
    settings = {"mine": 1, "other": 2, "key.serializer.builder": key, "value.serializer.builder": value}
    with sending(f, **settings) as producer:
        producer.produce(f.topic, "k", 5, 0)
        producer.flush(WAIT_S)
        cluster = key.built.resolver() == f.admin().cluster_id(timeout=WAIT_S) == value.built.resolver()
    again = producer.close(), f.given(lambda: producer.produce(f.topic, "k", 5, 0))
    from_ = Builder(log, f.s.StringDeserializer(), "mine")
    with reading(f, mine=1, **{"key.deserializer.builder": from_}) as consumer:
        message = polled(consumer)
    consumer.close()
    return cluster, again, message.key(), message.value(), sorted(settings), log


@case
def builders_that_are_refused(f: Face) -> Any:
    log: list[Any] = []
    good = Builder(log, f.s.StringSerializer(), "mine")

    class Odd:
        def __init__(self, gives: Any) -> None:
            self.gives = gives

        def build(self, conf: dict[str, Any], is_key: bool) -> Any:
            return self.gives

    settings = [
        {"key.serializer": f.s.StringSerializer(), "key.serializer.builder": good}, {"value.serializer.builder": Odd(None)},
        {"value.serializer.builder": Odd(("x", "y"))}, {"key.serializer.builder": good, "value.serializer.builder": Odd(3)},
        {"key.serializer.builder": good, "no.such": 1}, {"key.serializer.builder": object()}, {"mine": 1},
    ]  # fmt: skip
    return [f.given(lambda each=each: sending(f, **each)) for each in settings], log


@case
def classes_with_types(f: Face) -> Any:
    class Mine(f.s.Serializer):  # type: ignore[name-defined,misc]
        def __call__(self, obj: Any, ctx: Any = None) -> bytes:
            return repr(obj).encode()

    producer = f.open(f.k.SerializingProducer[str, int]({"bootstrap.servers": f.servers, "value.serializer": Mine()}))
    producer.produce(f.topic, value={"a": 1}, partition=0)
    producer.flush(WAIT_S)
    consumer = f.open(f.k.DeserializingConsumer[str, int]({"bootstrap.servers": f.servers, "group.id": f.group()}))
    consumer.assign([f.tp(0, 0)])
    return polled(consumer).value(), isinstance(producer, f.k.Producer), isinstance(consumer, f.k.Consumer)


@case
def errors_by_themselves(f: Face) -> Any:
    e, cause = f.error, ValueError("why")
    made = [
        e.KeySerializationError(cause), e.ValueSerializationError(exception=cause), e.KeyDeserializationError(cause, "m"),
        e.ValueDeserializationError(exception=cause, kafka_message="m"), e.ConsumeError(f.k.KafkaError(3, "x"), kafka_message="m"),
        e.ProduceError(f.k.KafkaError(3, "x"), cause),
    ]  # fmt: skip
    return [(type(x).__name__, x.code, x.name, x.args[0].str(), repr(x.exception), x.kafka_message, len(x.args)) for x in made]
