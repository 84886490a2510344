"""What all formats share: tombstones, the wire format's prefix, and looking for the bad values without asking again for the good ones.

A decoder makes columns of values and a note for every value that it cannot decode; what becomes of those is its caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from kafkacore import errors
from kafkacore.bounds import REGISTRY_KEPT_CHARACTERS
from kafkacore.decode import registry
from kafkacore.decode import values as v

T = TypeVar("T")

PIECES = 16
SMALL = 256
AFTER_A_FAULT = 2_048
_LEAST_CHARACTERS = 4_096  # that a schema counts for, also one that is not there


class Decoded(NamedTuple):
    """A batch of values, decoded.

    Attributes:
        columns: one array per field, each as long as the values; null where a value is null or could not be decoded. Of a value that could
            be decoded in part, what is good may be there.
        faults: why, by row, for every value that could not be decoded.
        rows: how many values.
    """

    columns: list[Any]
    faults: dict[int, str]
    rows: int

    @property
    def mask(self) -> Any:
        """Which rows could not be decoded, as a boolean array; None when all could."""
        if not self.faults:
            return None
        flags = numpy.zeros(self.rows, bool)
        flags[list(self.faults)] = True
        return pa.array(flags)


class RowFailed(Exception):
    """What is not the value's fault, and at which row it came up."""

    def __init__(self, row: int, error: errors.KafkaError) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


class Decoder:
    """Values of one format as columns. Holds no state of a batch; one thread at a time.

    Attributes:
        fields: of the columns, in order.
    """

    def __init__(self, fields: Sequence[Any]) -> None:
        self.fields = list(fields)

    def decode(self, values: Any) -> Decoded:
        """Decodes a batch.

        Args:
            values: a binary array; null is a tombstone, which is a row of nulls and no fault.

        Raises:
            RowFailed: the schema registry cannot be asked, or has no schema that can be used. Bytes never raise.
        """
        count = len(values)
        faults: dict[int, str] = {}
        where = None
        if values.null_count:
            where = numpy.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            values = values.drop_null()
        try:
            structs = self._structs(values, faults)
        except RowFailed as failed:
            if where is not None:
                failed.row = int(where[failed.row])
            raise
        if where is not None:
            faults = {int(where[row]): why for row, why in faults.items()}
            structs = v.placed(structs, where, count)
        columns = structs.flatten() if structs.null_count else [structs.field(at) for at in range(structs.type.num_fields)]
        return Decoded(columns, faults, count)

    def _structs(self, values: Any, faults: dict[int, str]) -> Any:
        """The values, none of them null, as one struct array; the rows of those that cannot be decoded are null and noted."""
        raise NotImplementedError

    def _by_rows(self, values: Any, base: int, faults: dict[int, str]) -> Any:
        """Row by row through `_row`."""
        here: dict[int, str] = {}
        rows: list[Sequence[Any] | None] = []
        for at, value in enumerate(values.to_pylist()):
            try:
                rows.append(self._row(value))
            except errors.KafkaError as error:                 # not the value's fault, though some are ValueErrors too
                raise RowFailed(base + at, error) from None
            except v.PartlyDecodable as error:
                rows.append(error.rest)
                here[at] = v.reason(error)
            except v.FAULTS as error:
                rows.append(None)
                here[at] = v.reason(error)
        structs = v.assemble(rows, self.fields, here)
        faults.update((base + at, why) for at, why in here.items())
        return structs

    def _row(self, value: bytes) -> Sequence[Any] | None:
        """One value as Python values in the fields' order; None for a row of nulls.

        Raises:
            v.PartlyDecodable: some fields cannot be decoded; `rest` is the row without them.
        """
        raise NotImplementedError


class SchemaDecoder(Decoder):
    """For formats whose values are read one by one, all with one schema, or each with the one that its prefix names.

    Attributes:
        hint: how the caller has values of an unusable schema taken for corrupt, for messages.
    """

    hint = "with the option onUnusableSchema=corrupt"

    def __init__(self, fields: Sequence[Any], schemas: registry.Registry | None, framed: bool, lenient: bool = False) -> None:
        """Prepares.

        Args:
            fields: the columns wanted.
            schemas: where the schemas are that values name; None where one is known for all.
            framed: values begin with the registry's prefix.
            lenient: a value whose schema cannot be used is corrupt. Otherwise that is an error, since it is hardly ever the value's fault.
        """
        super().__init__(fields)
        self._schemas, self._framed, self._lenient = schemas, framed, lenient
        self._kept: dict[Any, Any] = {}  # what was made of schemas, by what a value names
        self._kept_characters = 0

    def _of_schema(self, number: int, kind: str, make: Callable[[registry.Schema, str], T]) -> T:
        """Something made of a schema of the registry and its name.

        Raises:
            Undecodable: it cannot be used, and values of it count as corrupt.
            registry.UnusableSchema: it cannot be used.
            errors.KafkaError: the registry does not answer.
        """
        schemas = self._schemas
        assert schemas is not None
        what = f"schema {number} of the registry"
        self._weigh(_LEAST_CHARACTERS)

        def made() -> T:
            found = schemas.by_id(number, kind, patient=not self._lenient)
            self._weigh(len(found.text) + sum(len(each.text) for _, each in found.references))
            return make(found, what)

        return self._usable(number, made)

    def _weigh(self, characters: int) -> None:
        """Makes room for what is kept of one more schema."""
        self._kept_characters += characters
        if self._kept_characters > REGISTRY_KEPT_CHARACTERS:
            self._kept.clear()
            self._kept_characters = characters

    def _usable(self, number: int, make: Callable[[], T]) -> T:
        try:
            return make()
        except registry.WrongPlace:
            raise
        except errors.ConfigError as error:
            why = error.message or str(error)
            if self._lenient:
                raise v.Undecodable(why) from None
            place = "" if self._schemas is None or self._schemas.places in why else f" ({self._schemas.places}, schema {number})"
            raise registry.UnusableSchema(f"{why}{place}; {self.hint} such values are taken for corrupt") from None

    def _structs(self, values: Any, faults: dict[int, str]) -> Any:
        return self._by_rows(values, 0, faults)


class BlockDecoder(Decoder):
    """For formats with a library that decodes many values in one call, and fails for all of them when one is bad.

    When a call fails, the error often says at which row: the rows before it are decoded, it goes by itself through `_row`, and the rest
    follows. Where the row is not known, the next call takes a sixteenth. Where bad rows stand close together, more and more go through
    `_row` without a try. So every value is looked at a bounded number of times, however many are bad and wherever they are.
    """

    def _structs(self, values: Any, faults: dict[int, str]) -> Any:
        pieces = []
        start, step, singly, suspect = 0, len(values), 1, -1
        while start < len(values):
            if start == suspect:
                step = min(singly, len(values) - start)
                pieces.append(self._by_rows(values.slice(start, step), start, faults))
                start, step = start + step, AFTER_A_FAULT
                continue
            part = values.slice(start, step)
            try:
                pieces.append(self._block(part))
                start, step = start + len(part), len(part) * 4
            except v.FAULTS as error:
                row = self._row_of(error)
                if row is None or row >= len(part):
                    step = -(-len(part) // PIECES)
                    if len(part) <= SMALL:
                        suspect, singly = start, SMALL
                else:
                    step, suspect = row, start + row
                    singly = 1 if row >= SMALL // 4 else min(singly * 4, SMALL)
        return v.joined(pieces, self.fields)

    @staticmethod
    def _row_of(error: BaseException) -> int | None:
        """Which row an error of `_block` is about, if it says so. It may be wrong."""
        return None

    def _block(self, values: Any) -> Any:
        """All values as one struct array with as many rows.

        Raises:
            Exception: one of v.FAULTS, when any value is bad or none of this way's business.
        """
        raise NotImplementedError


class Unframed(Decoder):
    """Takes the schema registry's prefix from values before another decoder gets them."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__(inner.fields)
        self._inner = inner

    def _structs(self, values: Any, faults: dict[int, str]) -> Any:
        framed = pc.and_(pc.starts_with(values, pattern=b"\0"), pc.greater_equal(pc.binary_length(values), registry.PREFIX_BYTES))
        where = numpy.flatnonzero(framed.to_numpy(zero_copy_only=False))
        count = len(values)
        if len(where) < count:
            values = values.filter(framed)
            faults.update(dict.fromkeys(numpy.flatnonzero(~framed.to_numpy(zero_copy_only=False)).tolist(), registry.NOT_FRAMED))
        here: dict[int, str] = {}
        structs = self._inner._structs(pc.binary_replace_slice(values, 0, registry.PREFIX_BYTES, b""), here)
        faults.update((int(where[row]), why) for row, why in here.items())
        return v.placed(structs, where, count)
