"""The field features of schema.py, each on a small struct made for it."""

import pickle

import pytest
from protocol_kit import whole

from kafkacore import protocol
from kafkacore.errors import CorruptDataError, InternalError, UsageError
from kafkacore.protocol.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    STRING,
    UINT16,
    UINT32,
    UUID,
    F,
    Field,
    Message,
    Struct,
    Versions,
)
from kafkacore.protocol.stored import ConsumerGroupMemberMetadataValue
from tests.kit.rows import each_row


class Point(Struct):
    x: int = F(INT32, default=-1)
    y: int = F(INT32, "1+", default=7)


class Shape(Message, versions="0-3", flexible="2+"):
    name: str | None = F(STRING, nullable="1+")
    points: list[Point] = F([Point])
    weight: float = F(FLOAT64, "1+", ignorable=True)
    tags: list[str] | None = F([STRING], "2+", nullable="2+", tag=0)
    centre: Point = F(Point, "2+", tag=3)
    corner: Point | None = F(Point, "3+", nullable="3+", default=None)
    secret: int = F(INT64, "2+")


def test_version_ranges_are_read():
    assert [Versions.parse(text) for text in ("3", "1-4", "2+", "", "none")] == [(3, 3), (1, 4), (2, 0x7FFF), (1, 0), (1, 0)]
    assert [version for version in range(7) if Versions(1, 4).has(version)] == [1, 2, 3, 4]


def test_what_a_class_declares():
    class Inner(Struct):
        """Documented."""

        first: int = F(INT32)
        deep: list[int] = F([INT32])

    class Outer(Message, api_key=7, versions="1-3", flexible="2+", dropped="1"):
        plain: int = F(INT32, default=5)
        text: str | None = F(STRING, "2-3", nullable="3+", ignorable=True, flexible=False)
        inner: Inner = F(Inner, "3", tag=4)
        inners: list[Inner] = F([Inner])

    named = [slot for slot in Field.__slots__ if slot != "default"]
    assert {name: tuple(getattr(field, slot) for slot in named) for name, field in Outer.FIELDS.items()} == {
        "plain": (INT32, False, (0, 0x7FFF), (1, 0), None, False, True),
        "text": (STRING, False, (2, 3), (3, 0x7FFF), None, True, False),
        "inner": (Inner, False, (3, 3), (1, 0), 4, False, True),
        "inners": (Inner, True, (0, 0x7FFF), (1, 0), None, False, True),
    }
    assert [field.fresh() for field in Outer.FIELDS.values()] == [None, None, Inner, list]
    assert (Outer.API_KEY, Outer.MIN_VERSION, Outer.MAX_VERSION, Outer.FLEXIBLE_VERSION, Outer.OLDEST_SERVED) == (7, 1, 3, 2, 2)
    assert (Shape.API_KEY, Shape.OLDEST_SERVED, Message.FLEXIBLE_VERSION) == (-1, 0, None)
    assert Outer() == (5, "", (0, []), []) and Outer().inner is not Outer().inner
    assert Inner.__doc__ == "Documented." and not hasattr(Inner(), "__dict__")
    assert Outer.text.__doc__ == "Field text of Outer."


def test_fields_are_named_tuple_slots_with_defaults():
    shape = Shape(name="a")
    assert (shape.name, shape.points, shape.weight, shape.tags, shape.centre, shape.corner) == ("a", [], 0.0, [], Point(x=-1, y=7), None)
    assert tuple(shape) == ("a", [], 0.0, [], Point(), None, 0)
    assert repr(Point(x=3)) == "Point(x=3, y=7)"
    assert not hasattr(Point(), "__dict__")
    assert Point(x=3)._replace(y=2) == Point(x=3, y=2)
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_a_struct_is_immutable_and_knows_its_fields():
    with pytest.raises(AttributeError):
        Point().x = 3
    with pytest.raises(AttributeError):
        Point().z = 3
    with pytest.raises(TypeError, match="Point has no field 'z'"):
        Point(z=3)
    with pytest.raises(TypeError):
        Point(1, 2)


def test_a_struct_with_fields_is_final():
    with pytest.raises(InternalError, match="cannot be extended"):

        class Point3(Message, Point):
            z: int = F(INT32)


def test_a_tagged_field_needs_a_flexible_version():
    class Stiff(Message, versions="0-1", flexible="1+"):
        late: int = F(INT32, tag=0)

    assert whole(Stiff(late=1).encode(1)).hex() == "01000400000001"
    with pytest.raises(InternalError, match="Stiff v0: tagged field late in a version without tagged fields"):
        Stiff.plan(0)


def test_defaults_with_lists_are_not_shared():
    assert Shape().points is not Shape().points
    assert Shape.decode(0, bytes(6)).tags is not Shape.decode(0, bytes(6)).tags


def test_classic_and_flexible_bytes():
    shape = Shape(name="ab", points=[Point(x=1)])
    assert whole(shape.encode(0)) == b"\0\2ab" + b"\0\0\0\1" + b"\0\0\0\1"
    assert whole(shape.encode(1)) == b"\0\2ab" + b"\0\0\0\1" + b"\0\0\0\1\0\0\0\7" + bytes(8)
    assert whole(shape.encode(2)) == b"\3ab" + b"\2" + b"\0\0\0\1\0\0\0\7\0" + bytes(8) + bytes(8) + b"\0"
    tagged = shape._replace(tags=["q"], centre=Point(x=5))
    assert whole(tagged.encode(2)) == whole(shape.encode(2))[:-1] + b"\2" + b"\0\3\2\2q" + b"\3\x09\0\0\0\5\0\0\0\7\0"


@each_row("version", range(4))
def test_round_trip(version):
    full = Shape(name="ab", points=[Point(x=1), Point(x=2)])
    if version >= 1:
        full = full._replace(name=None, weight=0.5, points=[Point(x=1, y=3)])
    if version >= 2:
        full = full._replace(tags=None, centre=Point(x=5), secret=-(2**63))
    if version >= 3:
        full = full._replace(corner=Point(x=9, y=8))
    assert Shape.decode(version, whole(full.encode(version))) == full


def test_a_field_that_the_version_lacks():
    assert Shape.decode(0, whole(Shape(weight=2.5).encode(0))).weight == 0.0  # ignorable: dropped
    with pytest.raises(UsageError, match=r"Shape v1, secret: .* 5 cannot be dropped"):
        Shape(secret=5).encode(1)
    with pytest.raises(UsageError, match=r"Shape v1, centre"):
        Shape(centre=Point(x=5)).encode(1)
    with pytest.raises(UsageError, match=r"Shape v0, points\[1\].y"):
        Shape(points=[Point(), Point(y=1)]).encode(0)
    with pytest.raises(UsageError, match="0-3, not 4"):
        Shape().encode(4)


def test_unknown_tagged_fields_are_skipped():
    body = whole(Shape(name="ab", centre=Point(x=1)).encode(2))
    start = body.index(b"\1\3\x09")
    extra = body[:start] + b"\4" + b"\1\2zz" + body[start + 1 :] + b"\4\0" + b"\x81\x01\1q"
    assert Shape.decode(2, extra) == Shape.decode(2, body)


def test_tags_out_of_order_or_of_the_wrong_size_are_corrupt():
    body = whole(Shape(name="ab").encode(2))[:-1]
    for tail, why in [(b"\2\5\0\5\0", "tag 5 comes after tag 5"), (b"\1\0\3\2\2qq", "longer|left over"), (b"\1\7\x7f", "past the end")]:
        with pytest.raises(CorruptDataError, match=why):
            Shape.decode(2, body + tail)


@each_row(
    ("type_", "good", "bad"),
    [
        (BOOL, [True, False], [0, None, "x"]),
        (INT8, [-128, 127], [128, -129, 1.0, "1", None]),
        (UINT16, [0, 65535], [-1, 65536]),
        (INT32, [-(2**31), 2**31 - 1], [2**31, 2**80, b""]),
        (UINT32, [0, 2**32 - 1], [-1, 2**32]),
        (INT64, [-(2**63), 2**63 - 1], [2**63, -(2**63) - 1]),
        (FLOAT64, [0.0, 1.5, float("inf"), 3], ["x", None, 2**60]),
        (UUID, [bytes(16), bytes(range(16))], [b"short", "x" * 16, bytearray(16)]),
        (STRING, ["", "é", "x" * 32767, "\0"], ["x" * 32768, "\ud800", b"x", 3, None]),
        (BYTES, [b"", b"x" * 70000, bytearray(b"xy"), memoryview(b"z")], ["x", None, 3, memoryview(b"abcd")[::2]]),
        ([INT32], [[], [1, 2], (3,)], [None, [None], {1}, "12", [2**31], Point()]),
        ([STRING], [[], ["a", "é"]], [[b"a"], ["\ud800"], [None], 3]),
        (Point, [Point(x=2)], [None, (1, 2), 5]),
        ([Point], [[Point(x=2)]], [[None], [(1, 2)], [[Point()]]]),
    ],
)
def test_values_are_checked(type_, good, bad):
    class Box(Message, versions="0-1", flexible="1+"):
        value: object = F(type_)

    for version in (0, 1):
        for value in good:
            if isinstance(type_, list) and type_[0] is Point:
                value = [v._replace(y=7) for v in value]
            decoded = Box.decode(version, whole(Box(value=value).encode(version))).value
            assert decoded == (list(value) if isinstance(value, tuple) and not isinstance(value, Point) else value)
        for value in bad:
            with pytest.raises(UsageError, match=f"Box v{version}, value"):
                Box(value=value).encode(version)


@each_row(
    ("type_", "value", "classic", "flexible"),
    [
        (BOOL, True, "01", "01"),
        (INT8, -2, "fe", "fe"),
        (UINT16, 0x1234, "1234", "1234"),
        (INT32, -2, "fffffffe", "fffffffe"),
        (UINT32, 2**32 - 2, "fffffffe", "fffffffe"),
        (INT64, 0x0102030405060708, "0102030405060708", "0102030405060708"),
        (FLOAT64, -1.5, "bff8000000000000", "bff8000000000000"),
        (UUID, bytes(range(16)), bytes(range(16)).hex(), bytes(range(16)).hex()),
        (STRING, "é" * 100, "00c8" + "c3a9" * 100, "c901" + "c3a9" * 100),
        (BYTES, b"ab", "00000002" + "6162", "03" + "6162"),
        ([INT8], [1, 2], "00000002" + "0102", "03" + "0102"),
    ],
)
def test_the_bytes_of_each_type(type_, value, classic, flexible):
    class Box(Message, versions="0-1", flexible="1+"):
        value: object = F(type_)

    assert whole(Box(value=value).encode(0)).hex() == classic
    assert whole(Box(value=value).encode(1)).hex() == flexible + "00"


class Awkward:
    """Equal to nothing, not even without raising."""

    def __eq__(self, other):
        raise ValueError("not comparable")

    __hash__ = None


def test_encoding_refuses_what_is_not_the_message():
    with pytest.raises(ValueError, match="not comparable"):
        Shape(secret=Awkward()).encode(0)

    class Sly(tuple):
        __slots__ = ()

    with pytest.raises(UsageError, match="expected Shape"):
        Shape.plan(0).encode(Sly())
    with pytest.raises(UsageError, match="expected Shape"):
        Shape.plan(0).encode(tuple.__new__(Shape, ("short",)))
    with pytest.raises(UsageError, match="not a Kafka message"):
        protocol.encode_request(object(), 0, 1, "me")
    with pytest.raises(UsageError, match="expected str"):
        protocol.encode_request(protocol.MetadataRequest(topics=[protocol.MetadataRequestTopic(name=b"a")]), 0, 1, None)


def test_records_are_referenced_and_come_back_as_views():
    first, second = b"x" * 10, bytearray(b"y" * 5)
    request = protocol.ProduceRequest(
        acks=1,
        timeout_ms=5,
        topic_data=[
            protocol.TopicProduceData(
                name="t",
                partition_data=[
                    protocol.PartitionProduceData(index=0, records=first),
                    protocol.PartitionProduceData(index=1, records=[second, memoryview(first)]),
                    protocol.PartitionProduceData(index=2, records=None),
                    protocol.PartitionProduceData(index=3, records=b""),
                ],
            )
        ],
    )
    for version in range(3, 13):
        parts = request.encode(version)
        assert parts[1] is first and parts[3] is second
        body = whole(parts)
        partitions = protocol.ProduceRequest.decode(version, body).topic_data[0].partition_data
        assert [None if p.records is None else bytes(p.records) for p in partitions] == [first, bytes(second) + first, None, b""]
        assert partitions[0].records.obj is body


def test_a_list_that_changes_while_it_is_encoded_is_caught():
    topics = [protocol.MetadataRequestTopic(name="a"), protocol.MetadataRequestTopic(name="b")]

    class Growing(list):
        pass

    class Changing:
        """A buffer can run Python code from 3.12 on; before that a plain object stands in and is refused."""

        def __buffer__(self, flags):
            partitions.append(partitions[0])
            return memoryview(b"abc")

    partitions = [protocol.PartitionProduceData(records=Changing())]
    request = protocol.ProduceRequest(topic_data=[protocol.TopicProduceData(name="t", partition_data=partitions)])
    with pytest.raises(UsageError, match=r"changed while|bytes-like"):
        request.encode(3)
    assert whole(protocol.MetadataRequest(topics=Growing(topics)).encode(0)) == b"\0\0\0\2\0\1a\0\1b"


class Tagged(Message, versions="0", flexible="0+"):
    corner: Point | None = F(Point, nullable="0+", tag=0)
    other: Point | None = F(Point, nullable="0+", default=None, tag=1)


@each_row(
    ("message", "encoded"),
    [
        (Tagged(), "00"),  # both have their defaults: an empty struct, and none
        (Tagged(corner=None), "01 00 01 00"),
        (Tagged(corner=Point(x=5)), "01 00 06 01 00000005 00"),
        (Tagged(corner=None, other=Point(x=5)), "02 00 01 00 01 06 01 00000005 00"),
    ],
)
def test_a_tagged_struct_that_may_be_null_says_so_by_zero(message, encoded):
    """By -1 elsewhere. Source: MessageDataGenerator.generateClassWriter of Apache Kafka."""
    data = bytes.fromhex(encoded)
    assert whole(message.encode(0)) == data
    assert Tagged.decode(0, data, 0) == message


def test_minus_one_is_read_too():
    """Brokers of this package wrote it into __consumer_offsets."""
    assert Tagged.decode(0, bytes.fromhex("01 00 01 ff"), 0) == Tagged(corner=None)


def test_a_member_of_a_consumer_group_as_kafka_4_3_1_wrote_it():
    written = "00000a6b61666b61636f72650b2f3132372e302e302e3102066b61666b6101000493e00001000100"
    member = ConsumerGroupMemberMetadataValue.decode(0, bytes.fromhex(written), 0)
    assert (member.subscribed_topic_names, member.rebalance_timeout_ms, member.classic_member_metadata) == (["kafka"], 300_000, None)
    assert whole(member.encode(0)).hex() == written
