"""How Kafka's messages are described: fields with version ranges, one class per struct for all versions.

    class PartitionProduceData(Struct):
        index: int = F(INT32)
        records: Records | None = F(RECORDS, nullable="0+")

    class ProduceRequest(Request, api_key=0, versions="0-13", flexible="9+"):
        transactional_id: str | None = F(STRING, "3+", nullable="3+", default=None)
        ...

A struct is an immutable tuple with named fields: built by keyword, every field has Kafka's default, reading a field is one C call.
`compile_plan` turns (class, version) into a `_codec.Plan`, the arrays that native/plan.pxi walks; plans are made once and kept.

Rules:
 - A field that a version lacks has its default after decoding. Encoding a non-default value into such a version is a UsageError,
   unless the field is `ignorable`: then the value is dropped, as Kafka's own code does.
 - Tagged fields (KIP-482) are written only when they differ from their default; unknown tagged fields are skipped.
 - Defaults that hold a list are created for every message; all others are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, dataclass_transform

from kafkacore import _codec
from kafkacore._codec import Plan
from kafkacore.config_text import holds_secret
from kafkacore.errors import InternalError, UsageError

if TYPE_CHECKING:
    from kafkacore._codec import Buffer, FileSlice

    # Fields may be called `index` or `count`, so a type checker must not see tuple's methods of those names.
    _StructBase: TypeAlias = object
else:
    _StructBase = tuple

try:
    from _collections import _tuplegetter  # type: ignore[import-not-found]  # the descriptor of namedtuple
except ImportError:  # pragma: no cover - not CPython

    def _tuplegetter(slot: int, doc: str) -> property:
        return property(itemgetter(slot), doc=doc)


Records: TypeAlias = "Buffer | FileSlice | list[Buffer | FileSlice]"
"""Record batches in a message: one buffer or slice of a file, or several to write in a row; a memoryview after decoding."""

ZERO_UUID = bytes(16)
"""Kafka's way to say that there is no topic id."""


class WireType(NamedTuple):
    """A primitive type: its name in Kafka's definitions and its default."""

    name: str
    default: object


BOOL = WireType("bool", False)
INT8 = WireType("int8", 0)
INT16 = WireType("int16", 0)
UINT16 = WireType("uint16", 0)
INT32 = WireType("int32", 0)
UINT32 = WireType("uint32", 0)
INT64 = WireType("int64", 0)
FLOAT64 = WireType("float64", 0.0)
STRING = WireType("string", "")
BYTES = WireType("bytes", b"")
RECORDS = WireType("records", None)
UUID = WireType("uuid", ZERO_UUID)

FieldType: TypeAlias = "WireType | type[Struct] | list[WireType] | list[type[Struct]] | list[Any]"


class Versions(NamedTuple):
    """An inclusive range of versions; empty when first > last."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Reads "3", "1-4", "2+" or "" (none)."""
        if text in ("", "none"):
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), 0x7FFF)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def has(self, version: int) -> bool:
        """Whether the range holds the version."""
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Field:
    """One field: see F for the arguments."""

    type: WireType | type[Struct]
    is_array: bool
    versions: Versions
    nullable: Versions
    default: object
    tag: int | None
    ignorable: bool
    flexible: bool

    def fresh(self) -> Callable[[], object] | None:
        """What makes the default, for defaults that hold a list; None when the default can be shared."""
        if self.default is not _UNSET:
            return None
        if self.is_array:
            return list
        if not isinstance(self.type, WireType) and any(f.fresh() for f in self.type.FIELDS.values()):
            return self.type
        return None

    def shared_default(self) -> object:
        """The default when it needs no fresh copy."""
        if self.default is not _UNSET:
            return self.default
        return self.type.default if isinstance(self.type, WireType) else self.type()


_UNSET: Any = object()


def F(  # a capital, so that it reads as a mark in the tables
    type: FieldType,
    versions: str = "0+",
    *,
    nullable: str = "",
    default: object = _UNSET,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> Any:
    """Declares a field.

    Args:
        type: A primitive, a Struct, or a list holding one of them for an array.
        versions: Versions that have the field.
        nullable: Versions in which it may be None.
        default: Its value when absent; the type's zero when not given.
        tag: Its number when it is a tagged field; it then exists only as such.
        ignorable: Whether a version that lacks it may drop its value silently.
        flexible: False for a string that keeps the classic encoding in flexible versions.
    """
    is_array = isinstance(type, list)
    inner = type[0] if isinstance(type, list) else type
    return Field(inner, is_array, Versions.parse(versions), Versions.parse(nullable), default, tag, ignorable, flexible)


# No field_specifiers: F(...) then counts as a plain default value, so every field is optional to a type checker, as it is at run time.
@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructMeta(type):
    """Turns annotated fields into tuple slots."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructMeta:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        if any(getattr(base, "FIELDS", None) for base in bases):
            raise InternalError(f"{name}: a struct with fields cannot be extended, its slots are taken")
        namespace["__slots__"] = ()
        namespace["_PLANS"] = {}
        namespace["FIELDS"] = fields
        slots = {key: slot for slot, key in enumerate(fields)}
        defaults = tuple((fresh, True) if (fresh := f.fresh()) else (f.shared_default(), False) for f in fields.values())
        namespace["__new__"] = staticmethod(_codec.StructNew(name, slots, defaults))
        for key, slot in slots.items():
            namespace[key] = _tuplegetter(slot, f"Field {key} of {name}.")
        return super().__new__(mcs, name, bases, namespace, **options)


_SECRETS = frozenset({"auth_bytes", "salted_password", "stored_key", "server_key", "hmac", "secret"})
"""Fields that no `repr` shows: what authenticates, by itself or after some computing."""


def _hidden(value: Any) -> str:
    return repr(value) if value is None else f"<{len(value)} {'characters' if isinstance(value, str) else 'bytes'}>"


class Struct(_StructBase, metaclass=StructMeta):
    """An immutable record with named fields; subclasses declare them with F."""

    FIELDS: ClassVar[dict[str, Field]]
    _PLANS: ClassVar[dict[Any, Plan]]

    def __repr__(self) -> str:
        named = dict(zip(self.FIELDS, self._values(), strict=True))
        hidden = _SECRETS | {"value"} if holds_secret(str(named.get("name"))) else _SECRETS
        inside = ", ".join(f"{name}={_hidden(value) if name in hidden else repr(value)}" for name, value in named.items())
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(zip(self.FIELDS, self._values(), strict=True)))

    def _values(self) -> tuple[object, ...]:
        return tuple(self)  # type: ignore[arg-type]  # see _StructBase

    def _replace(self, **changes: object) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**dict(zip(self.FIELDS, self._values(), strict=True)), **changes})


def _rebuild(cls: type[Struct], values: dict[str, object]) -> Struct:
    return cls(**values)


class Message(Struct):
    """A struct that stands alone on the wire or in a log, with a range of versions.

    Class arguments:
        versions: Versions that exist, like "0-13".
        flexible: Versions with compact lengths and tagged fields, like "9+"; "" for none.
        api_key: The API's number, for requests and responses.
        dropped: Versions of a request that Kafka 4 does not serve (KIP-896), like "0-2"; "" for none. Our clients do not speak them.
    """

    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE_VERSION: ClassVar[int | None] = None
    OLDEST_SERVED: ClassVar[int] = 0

    def __init_subclass__(cls, *, api_key: int | None = None, versions: str = "", flexible: str = "", dropped: str = "") -> None:
        if versions:
            cls.MIN_VERSION, cls.MAX_VERSION = Versions.parse(versions)
            cls.FLEXIBLE_VERSION = Versions.parse(flexible).first if flexible else None
            cls.OLDEST_SERVED = Versions.parse(dropped).last + 1 if dropped else cls.MIN_VERSION
        if api_key is not None:
            cls.API_KEY = api_key

    @classmethod
    def plan(cls, version: int) -> Plan:
        """The compiled form of one version.

        Raises:
            UsageError: There is no such version.
        """
        found = cls._PLANS.get(version)
        if found is None:
            found = cls._PLANS[version] = _compile_message(cls, version)
        return found

    @classmethod
    def label(cls, version: int) -> str:
        """How errors name the message: "Fetch v12 response"."""
        for kind in ("Request", "Response"):
            if cls.__name__.endswith(kind):
                return f"{cls.__name__.removesuffix(kind)} v{version} {kind.lower()}"
        return f"{cls.__name__} v{version}"

    def encode(self, version: int) -> list[Buffer]:
        """The message in a version, without a header.

        Returns:
            A gather list: our bytes with the caller's record buffers in their places, to be sent in that order.

        Raises:
            UsageError: A value does not fit its field or the version lacks the field; the text names it.
        """
        return self.plan(version).encode(self)

    @classmethod
    def decode(cls, version: int, buffer: Buffer, offset: int = 0) -> Self:
        """Reads a message that fills a buffer from offset to its end.

        Raises:
            CorruptDataError: The bytes are not such a message; the text names the field and the offset.
        """
        message: Self = cls.plan(version).decode(buffer, offset)
        return message


class Request(Message):
    """What a client sends."""

    RESPONSE: ClassVar[type[Response]]


class Response(Message):
    """What a broker answers."""

    REQUEST: ClassVar[type[Request]]


def _compile_message(cls: type[Message], version: int) -> Plan:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UsageError(f"{cls.__name__} has versions {cls.MIN_VERSION}-{cls.MAX_VERSION}, not {version}")
    flexible = cls.FLEXIBLE_VERSION is not None and version >= cls.FLEXIBLE_VERSION
    # ApiVersions responses keep the old header, so that a client can read one whatever version the broker chose (KIP-511).
    response_flexible = flexible and not (issubclass(cls, Response) and cls.API_KEY == 18)
    return _compile(cls, version, flexible, cls.label(version), (cls.API_KEY, version, flexible, response_flexible))


def compile_plan(cls: type[Struct], version: int, flexible: bool, label: str) -> Plan:
    """Compiles a struct for one version of the message it is part of.

    Args:
        cls: The struct.
        version: Version of the message.
        flexible: Whether that version of the message is flexible.
        label: How errors name the message.
    """
    key = (version, flexible)
    found = cls._PLANS.get(key)
    if found is None:
        found = cls._PLANS[key] = _compile(cls, version, flexible, label, (Message.API_KEY, version, flexible, flexible))
    return found


def _compile(cls: type[Struct], version: int, flexible: bool, label: str, header: tuple[int, int, bool, bool]) -> Plan:
    fields: list[tuple[object, ...]] = []
    tagged: list[tuple[int, tuple[object, ...]]] = []
    absent: list[tuple[object, ...]] = []
    for slot, (name, field) in enumerate(cls.FIELDS.items()):
        there = field.versions.has(version)
        row = _row(slot, name, field, version, flexible, label, there)
        if not there:
            absent.append(row)
        elif field.tag is None:
            fields.append(row)
        elif flexible:
            tagged.append((field.tag, row))
        else:
            raise InternalError(f"{label}: tagged field {name} in a version without tagged fields")
    tagged.sort()
    return Plan(cls, label, flexible, len(cls.FIELDS), fields, tagged, absent, *header)


def _row(slot: int, name: str, field: Field, version: int, flexible: bool, label: str, there: bool) -> tuple[object, ...]:
    """One field as Plan takes it."""
    is_struct = not isinstance(field.type, WireType)
    inner = _codec.WIRE_TYPES["struct" if is_struct else field.type.name]  # type: ignore[union-attr]
    sub = None
    if is_struct and there:
        sub = compile_plan(field.type, version, flexible, label)  # type: ignore[arg-type]
    fresh = field.fresh()
    return (
        slot,
        name,
        _codec.WIRE_TYPES["array"] if field.is_array else inner,
        inner if field.is_array else 0,
        sub,
        field.nullable.has(version),
        flexible and field.flexible,
        fresh if fresh is not None else field.shared_default(),
        fresh is not None,
        field.ignorable,
    )
