"""Columns out of a JSON Schema, as a schema registry keeps it for a subject.

    string                          string; with format date-time a timestamp, with format date a date
    integer, number, boolean        bigint, double, boolean
    object                          a struct of its properties; without any a map of its additionalProperties
    array                           an array of its items
    $ref                            what it points at, within the document
    null beside one other type      that type: every column may be null

Anything else, such as several types or any at all, has no column and is refused with its path. A schema comes from elsewhere: depth and
number of fields are bounded, since references can make very much of a short text.

Source: JSON Schema 2020-12 and draft 7; io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from kafkacore.decode.column_count import ColumnCount
from kafkacore.decode.ddl import spark_list, spark_map
from kafkacore.errors import ConfigError

SIMPLE: dict[str, pa.DataType] = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
FORMATS: dict[str, pa.DataType] = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
PYTHON = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object", list: "array"}


def derived(text: str, what: str, how: str = "by .schema(...)") -> pa.Schema:
    """The columns of values with this schema.

    Args:
        text: of the schema.
        what: whose it is, for messages.
        how: how the caller names columns instead, for messages.

    Raises:
        ConfigError: it is no JSON Schema of an object, or a part of it has no column.
    """
    try:
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()      # half a surrogate pair is JSON, and the name of no column
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is no JSON Schema: {error}") from None
    kind = _Reader(document, what, how).type_of(document, "", ())
    if not pa.types.is_struct(kind):
        raise ConfigError(f"{what}: a value must be an object with properties: name the columns {how}")
    return pa.schema(list(kind))


class _Reader:
    def __init__(self, document: Any, what: str, how: str) -> None:
        self._document = document
        self._what = what
        self._how = how
        self._count = ColumnCount(what)

    def _refusal(self, path: str, why: str) -> ConfigError:
        where = f"field {path}" if path else "a value"
        return ConfigError(f"{self._what}: {where} {why}: name the columns {self._how}")

    def type_of(self, schema: Any, path: str, above: tuple[str, ...]) -> pa.DataType:
        """The Arrow type of what a schema describes; `above` are the references that led here."""
        with self._count.one():
            return self._read(schema, path, above)

    def _read(self, schema: Any, path: str, above: tuple[str, ...]) -> pa.DataType:
        if not isinstance(schema, dict):
            raise self._refusal(path, "may be anything" if schema is True else f"has {json.dumps(schema)[:40]} for a schema")
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in above:
                raise self._refusal(path, f"contains itself in {reference}, and columns have an end")
            return self.type_of(self._at(reference, path), path, (*above, reference))
        for word in ("oneOf", "anyOf", "allOf"):
            if word in schema and not {"type", "properties"} & schema.keys():
                return self.type_of(self._only(word, schema[word], path), path, above)
        name = self._name(schema, path)
        if name == "object":
            return self._object(schema, path, above)
        if name == "array":
            if not isinstance(schema.get("items"), dict) or "prefixItems" in schema:
                raise self._refusal(path, "is an array that does not say of what")
            return spark_list(self.type_of(schema["items"], f"{path}[]", above))
        if name == "string":
            return FORMATS.get(str(schema.get("format")), SIMPLE[name])
        return SIMPLE[name]

    def _at(self, reference: Any, path: str) -> Any:
        """What a reference points at."""
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise self._refusal(path, f"refers to {json.dumps(reference)}, and only references like #/definitions/NAME are followed")
        found = self._document
        for step in unquote(reference).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, TypeError, ValueError, IndexError):
                raise self._refusal(path, f"refers to {reference}, which is not there") from None
        return found

    def _only(self, word: str, choices: Any, path: str) -> Any:
        """The one of several schemas that is not null."""
        choices = choices if isinstance(choices, list) else []
        others = [each for each in choices if not isinstance(each, dict) or each.get("type") != "null"]
        if len(others) != 1:
            raise self._refusal(path, f"is of several kinds ({word}), and a column has one type")
        return others[0]

    def _name(self, schema: dict[str, Any], path: str) -> str:
        """The type's name; where none is given, what other words say of it."""
        given = schema.get("type")
        if given is None:
            given = [name for word, name in (("properties", "object"), ("items", "array")) if word in schema]
            values = schema.get("enum", [schema["const"]] if "const" in schema else [])
            if not given and isinstance(values, list):
                given = [PYTHON[type(each)] for each in values]
        given = given if isinstance(given, list) else [given]
        names = {each for each in given if isinstance(each, str)} - {"null"}
        if names == {"integer", "number"}:
            return "number"
        if len(names) == 1 and names <= {*SIMPLE, "object", "array"}:
            return names.pop()
        if len(names) > 1:
            raise self._refusal(path, f"is of the types {', '.join(sorted(names))}, and a column has one")
        raise self._refusal(path, "has no type that a column could have")

    def _object(self, schema: dict[str, Any], path: str, above: tuple[str, ...]) -> pa.DataType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            dot = f"{path}." if path else ""
            return pa.struct([pa.field(name, self.type_of(each, f"{dot}{name}", above)) for name, each in properties.items()])
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and "patternProperties" not in schema:
            return spark_map(pa.string(), self.type_of(values, f"{path}{{}}", above))
        raise self._refusal(path, "is an object without properties")
