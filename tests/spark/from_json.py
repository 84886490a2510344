"""What Spark 4.3's `from_json` makes of good and bad JSON: the values, and the columns that are not null.

`live/test_decode.py` asks Spark again.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

SCHEMA = (
    "a INT, b STRING, s STRUCT<x: INT, y: STRING>, l ARRAY<INT>, m MAP<STRING, INT>, ls ARRAY<STRUCT<x: INT, y: STRING>>, z BOOLEAN, "
    "ms MAP<STRING, STRUCT<x: INT>>, ll ARRAY<ARRAY<INT>>, d DECIMAL(5,2), t TIMESTAMP, dt DATE, bin BINARY, f DOUBLE"
)
ROWS: list[tuple[str, dict[str, Any]]] = [
    ('{"a":1,"b":"x"}', {"a": 1, "b": "x"}),
    ('{"a":"bad","b":"keep me"}', {"b": "keep me"}),
    ('{"b":"keep me","a":"bad"}', {"b": "keep me"}),
    ('{"a":1.5,"b":"k"}', {"b": "k"}),
    ('{"a":99999999999,"b":"k"}', {"b": "k"}),
    ('{"a":true,"b":"k"}', {"b": "k"}),
    ('{"a":{"q":1},"b":"k"}', {"b": "k"}),
    ('{"a":[1,2],"b":"k"}', {"b": "k"}),
    ('{"a":[{"b":"inner"}],"b":"k"}', {"b": "k"}),
    ('{"a":null,"b":"k"}', {"b": "k"}),
    ('{"b":5,"a":1}', {"a": 1, "b": "5"}),
    ('{"s":{"x":"bad","y":"k"},"b":"k"}', {"b": "k", "s": {"x": None, "y": "k"}}),
    ('{"s":{"x":1,"y":2},"b":"k"}', {"b": "k", "s": {"x": 1, "y": "2"}}),
    ('{"s":5,"b":"k"}', {"b": "k"}),
    ('{"s":[1],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"s":{"x":{"y":"deep"},"y":"k"},"b":"k"}', {"b": "k", "s": {"x": None, "y": "k"}}),
    ('{"s":{"x":[1],"y":"k"},"b":"k"}', {"b": "k", "s": {"x": None, "y": "k"}}),
    ('{"l":[1,"bad",3],"b":"k"}', {"b": "k"}),
    ('{"l":[1,2,"bad"],"b":"k"}', {"b": "k"}),
    ('{"l":["bad"],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"l":[1,null,3],"b":"k"}', {"b": "k", "l": [1, None, 3]}),
    ('{"l":5,"b":"k"}', {"b": "k"}),
    ('{"l":{"b":"inner"},"b":"k"}', {"b": "k"}),
    ('{"l":[{"b":"inner"},2],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"l":[[1],2],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"m":{"p":1,"q":"bad","r":3},"b":"k"}', {"b": "k"}),
    ('{"m":{"p":"bad"},"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"m":{"p":1,"q":null},"b":"k"}', {"b": "k", "m": {"p": 1, "q": None}}),
    ('{"m":5,"b":"k"}', {"b": "k"}),
    ('{"m":{"p":{"b":"inner"},"q":2},"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"m":{"p":1,"p":2},"b":"k"}', {"b": "k", "m": {"p": 2}}),
    ('{"ls":[{"x":1,"y":"k"},{"x":"bad","y":"k"}],"b":"k"}', {"b": "k", "ls": [{"x": 1, "y": "k"}, {"x": None, "y": "k"}]}),
    ('{"ls":[{"x":1},5],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"ls":[5,{"x":1}],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"ls":{"x":1,"y":"one"},"b":"k"}', {"b": "k"}),
    ('{"ls":[{"x":1},[2]],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"ms":{"p":{"x":1},"q":{"x":"bad"}},"b":"k"}', {"b": "k", "ms": {"p": {"x": 1}, "q": {"x": None}}}),
    ('{"ms":{"p":{"x":1},"q":5},"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"ll":[[1],[2,"bad"]],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"ll":[[1],2],"b":"k","z":true}', {"b": "k", "z": True}),
    ('{"a":1,"a":2,"b":"k"}', {"a": 2, "b": "k"}),
    ('{"a":1,"a":"bad","b":"k"}', {"a": 1, "b": "k"}),
    ('{"a":"bad","a":1,"b":"k"}', {"a": 1, "b": "k"}),
    ('{"a":1,"a":null,"b":"k"}', {"b": "k"}),
    ('{"s":{"x":1,"x":"bad","y":"k"},"b":"k"}', {"b": "k", "s": {"x": 1, "y": "k"}}),
    ('{"s":{"x":1},"s":{"y":"k"},"b":"k"}', {"b": "k", "s": {"x": None, "y": "k"}}),
    ('{"a":1,"b":"k"} garbage', {"a": 1, "b": "k"}),
    ('{"a":1,"b":"k"}{"a":2}', {"a": 1, "b": "k"}),
    ('{"a":1,"b":"k"}]', {"a": 1, "b": "k"}),
    ('{"a":1,"b":"k"}\x00', {"a": 1, "b": "k"}),
    ('{"a":"bad","b":"k"} garbage', {"b": "k"}),
    ('{"a":1,"b":"k"', {}),
    ('{"a":1,"b":', {}),
    ('{"a":1,"b"', {}),
    ('{"a":1,"b":"k', {}),
    ('{"a":1,"b":tru}', {}),
    ('{"a":tru,"b":"k"}', {}),
    ('{"a":1,"u":tru,"b":"k"}', {}),
    ('{"a":"bad","b":"k"', {}),
    ('{"a":1,"b":"k",}', {}),
    ("{a:1}", {}),
    ('{"a":01,"b":"k"}', {}),
    ('{"a":NaN,"b":"k"}', {"b": "k"}),
    ('{"f":NaN,"b":"k"}', {"b": "k", "f": float("nan")}),
    ('{"f":"NaN","b":"k"}', {"b": "k", "f": float("nan")}),
    ('{"f":"bad","b":"k"}', {"b": "k"}),
    ('{"f":Infinity,"b":"k"}', {"b": "k", "f": float("inf")}),
    ('{"a":-,"b":"k"}', {}),
    ('{"a":1,"b":"k\n"}', {}),
    ('{"a":1,"b":"k\\q"}', {}),
    ("", {}),
    (" ", {}),
    ("null", {}),
    ("5", {}),
    ('"x"', {}),
    ("[]", {}),
    ('[{"a":1}]', {}),
    ('[{"a":1},{"a":2}]', {}),
    ("{}", {}),
    ("true", {}),
    ("not JSON", {}),
    ("[5]", {}),
    ('{"b":"k"} {', {"b": "k"}),
    ('/*c*/{"a":1}', {}),
    ('{"a":1}/*c*/', {"a": 1}),
    ('\ufeff{"a":1}', {}),
    ('{"d":1.555,"b":"k"}', {"b": "k", "d": "1.56"}),
    ('{"d":12345.1,"b":"k"}', {"b": "k"}),
    ('{"d":"1.5","b":"k"}', {"b": "k", "d": "1.50"}),
    ('{"d":"bad","b":"k"}', {"b": "k"}),
    ('{"d":true,"b":"k"}', {"b": "k"}),
    ('{"d":1e2,"b":"k"}', {"b": "k", "d": "100.00"}),
    ('{"t":"2020-01-01T00:00:00Z","b":"k"}', {"b": "k", "t": "2020-01-01 00:00:00"}),
    ('{"t":"bad","b":"k"}', {"b": "k"}),
    ('{"t":5,"b":"k"}', {"b": "k", "t": "1970-01-01 00:00:05"}),
    ('{"t":1.5,"b":"k"}', {"b": "k"}),
    ('{"t":true,"b":"k"}', {"b": "k"}),
    ('{"t":"2020-13-01","b":"k"}', {"b": "k"}),
    ('{"dt":"2020-01-01","b":"k"}', {"b": "k", "dt": "2020-01-01"}),
    ('{"dt":"bad","b":"k"}', {"b": "k"}),
    ('{"dt":5,"b":"k"}', {"b": "k"}),
    ('{"dt":true,"b":"k"}', {"b": "k"}),
    ('{"dt":"2020-01-01T05:00:00","b":"k"}', {"b": "k", "dt": "2020-01-01"}),
    ('{"bin":"AQI=","b":"k"}', {"b": "k", "bin": "b0102"}),
    ('{"bin":"???","b":"k"}', {"b": "k"}),
    ('{"bin":5,"b":"k"}', {"b": "k"}),
    ('{"z":"true","b":"k"}', {"b": "k"}),
    ('{"z":1,"b":"k"}', {"b": "k"}),
    ('{"a":"5","b":"k"}', {"b": "k"}),
    ('{"a":"","b":"k"}', {"b": "k"}),
    ('{"s":"","b":"k"}', {"b": "k"}),
    ('{"l":"","b":"k"}', {"b": "k"}),
    ('{"z":"","b":"k"}', {"b": "k"}),
    ('{"f":"","b":"k"}', {"b": "k"}),
    ('{"f":"1.5","b":"k"}', {"b": "k"}),
    ('{"f":1,"b":"k"}', {"b": "k", "f": 1.0}),
    ('{"f":1e400,"b":"k"}', {"b": "k", "f": float("inf")}),
    ('{"a":1e2,"b":"k"}', {"b": "k"}),
    ('{"a":1.0,"b":"k"}', {"b": "k"}),
    ('{"s":{"x":1,"y":"k"}', {}),
    ('{"s":{"x":"bad","y":"k"},"b":}', {}),
    ('{"l":[1,2,"b":"k"}', {}),
    ('{"A":1,"b":"k"}', {"b": "k"}),
    ('{"b":"k","a":{}}', {"b": "k"}),
    ('{"b":true,"a":1}', {"a": 1, "b": "true"}),
    ('{"b":null,"a":"bad"}', {}),
]


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow or of Spark in the form that it has in ROWS."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: plain(value[each.name], each.type) for each in kind}
    if pa.types.is_list(kind):
        return [plain(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {key: plain(each, kind.item_type) for key, each in dict(value).items()}
    if isinstance(value, (bytes, bytearray)):
        return "b" + bytes(value).hex()
    if isinstance(value, datetime.datetime):
        return str(value.replace(tzinfo=None))
    return str(value) if isinstance(value, (decimal.Decimal, datetime.date)) else value
