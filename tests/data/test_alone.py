"""Each library takes records where pyarrow is not installed, or nothing of the extra `data` is."""

from __future__ import annotations

import pytest

from tests.kit.clusters import embedded
from tests.kit.programs import run_python

BEGIN = """
import sys
for name in {absent}:
    sys.modules[name] = None
from kafkacore import KafkaConsumer
consumer = KafkaConsumer(bootstrap_servers={address!r})
"""
DATA = ["pyarrow", "polars", "pandas", "duckdb", "datafusion", "fastavro", "google.protobuf", "httpx"]
PROGRAMS = {
    "polars": """
import polars as pl
assert pl.DataFrame(consumer.read("t", value="string"))["value"].to_list() == ["a", None, "a value longer than a view"]
consumer.seek(("t", 0), 0)
consumer.resume(("t", 0))
frame = pl.DataFrame(consumer.poll_batch(10))
assert frame["offset"].to_list() == [0, 1, 2] and frame["value"].dtype == pl.Binary and frame["headers"].to_list() == [[], [], []]
[columns] = consumer.read_range(("t", 0), 0, 3)
assert pl.DataFrame(columns).height == 3 and pl.Series(columns.values).null_count() == 1
assert pl.DataFrame(consumer.read("empty")).columns == frame.columns
""",
    "nothing": """
capsule = consumer.read("t", value="string").__arrow_c_stream__()
assert "arrow_array_stream" in repr(capsule)
for use in (lambda: consumer.read("t", json="a INT"), lambda: list(consumer.read("t")), lambda: consumer.poll_batch(0).to_arrow()):
    try:
        use()
    except ImportError as error:
        assert "pyarrow" in str(error), error
    else:
        raise AssertionError
assert not [name for name in sys.modules if name.split(".")[0] in {data} and sys.modules[name] is not None]
""",
}


cluster = embedded({"t": [["a", None, "a value longer than a view"]], "empty": 1})


@pytest.mark.parametrize("library", PROGRAMS)
def test_records_without_pyarrow(cluster, library):
    absent = [name for name in DATA if name != library]
    begin = BEGIN.format(absent=absent, address=cluster.bootstrap_servers)
    program = begin + PROGRAMS[library].replace("{data}", repr(DATA)) + "consumer.close()\n"
    done = run_python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")
