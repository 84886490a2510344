"""What a piece of the hot paths takes, by pytest-benchmark: for a change to one piece, with its own statistics and comparisons.

    python -m pytest bench/test_pieces.py                                    # a table
    python -m pytest bench/test_pieces.py --benchmark-save=before            # keeps it
    python -m pytest bench/test_pieces.py --benchmark-compare=0001           # beside what was kept

The comparisons with other clients are the other files of this folder (`make bench`). The tests run each piece once, to see that it works.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkacore import codec
from kafkacore.broker.authorizer import ALLOW, PREFIXED, READ, TOPIC, Authorizer
from kafkacore.broker.cluster import Acl
from kafkacore.protocol import FetchRequest, MetadataRequest, decode_request, encode_request
from kafkacore.records import BatchBuilder, read_batches
from kafkacore.timer import TimingWheel

VALUES = [b"%0100d" % nth for nth in range(1_000)]


def batch(compression: str = "none") -> bytes:
    builder = BatchBuilder(max_bytes=1 << 20, compression=compression)
    for value in VALUES:
        builder.append(value, timestamp_ms=1_700_000_000_000)
    return bytes(builder.build())


def test_varints_of_an_array(benchmark: Any) -> None:
    numbers = np.random.default_rng(1).integers(-100_000, 100_000, 10_000)
    data = benchmark(codec.encode_varints, numbers)
    assert np.array_equal(codec.decode_varints(data, len(numbers))[0], numbers)


@pytest.mark.parametrize("nbytes", [100, 16_384, 1 << 20])
def test_crc32c(benchmark: Any, nbytes: int) -> None:
    assert benchmark(codec.crc32c, bytes(nbytes)) == codec.crc32c(bytes(nbytes))


def test_a_batch_of_1000_records_is_built(benchmark: Any) -> None:
    assert len(benchmark(batch)) > 100_000


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_batch_of_1000_records_is_read(benchmark: Any, compression: str) -> None:
    data = batch(compression)
    found = benchmark(lambda: [record for each in read_batches(data, check_crcs=True) for record in each.records()])
    assert [record.value for record in found] == VALUES


@pytest.mark.parametrize("request_type", [FetchRequest, MetadataRequest])
def test_a_request_is_encoded_and_decoded(benchmark: Any, request_type: Any) -> None:
    def there_and_back() -> Any:
        frame = b"".join(bytes(part) for part in encode_request(request_type(), request_type.MAX_VERSION, 1, "bench"))
        return decode_request(memoryview(frame)[4:])

    header, _ = benchmark(there_and_back)
    assert header.client_id == "bench"


def test_a_timer_is_added_and_cancelled(benchmark: Any) -> None:
    wheel = TimingWheel(1, 20, 0)

    def add_and_cancel() -> None:
        handles = [wheel.call_at(delay_ms, print) for delay_ms in range(1, 1_001)]
        for handle in handles:
            wheel.cancel(handle)

    benchmark(add_and_cancel)
    assert len(wheel) == 0


@pytest.mark.parametrize("acls", [10, 10_000])
@pytest.mark.parametrize("known", [True, False], ids=["remembered", "looked up"])
def test_a_thousand_names_are_asked_about(benchmark: Any, acls: int, known: bool) -> None:
    """By a broker's authorizer: names it has an answer to, and names it looks up."""
    own = [Acl(TOPIC, f"team-{nth}.", PREFIXED, f"User:u{nth % 100}", "*", READ, ALLOW) for nth in range(acls)]
    authorizer = Authorizer()
    authorizer.change({nth.to_bytes(16): acl for nth, acl in enumerate([*own, Acl(TOPIC, "team-1", PREFIXED, "User:a", "*", READ, ALLOW)])})
    names = [f"team-1{nth}.events" for nth in range(1_000)]

    def ask() -> int:
        if not known:
            authorizer.change({})
        return sum(authorizer.allows("User:a", "/127.0.0.1", READ, TOPIC, name) for name in names)

    assert benchmark(ask) == 1_000
