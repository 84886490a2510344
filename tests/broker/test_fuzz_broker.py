"""Whatever a peer sends, only its own connection suffers, and the broker logs no traceback."""

import random
import struct
from collections.abc import Iterator

import pytest
from fuzz_broker import Attack, broker_to_attack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkacore import protocol
from kafkacore.broker.emulation import NEWEST


@pytest.fixture(scope="module", params=[NEWEST, "0.9", "2.x"])
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    broker = broker_to_attack(request.param)
    made = Attack(broker, random.Random(11))
    yield made
    made.close()
    broker.stop()


@pytest.mark.slow
def test_mutated_requests_of_every_api(attack: Attack) -> None:
    for _ in range(3_000):
        attack.round()
    assert set(attack.sent) == set(attack.broker.api_versions)


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_any_bytes(attack: Attack, data: bytes) -> None:
    attack.step(data)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_any_body_under_a_proper_header(attack: Attack, data: st.DataObject) -> None:
    api_key = data.draw(st.sampled_from(sorted(attack.broker.api_versions)))
    low, high = attack.broker.api_versions[api_key]
    version = data.draw(st.integers(low, high))
    flexible = protocol.APIS[api_key].request.FLEXIBLE_VERSION
    header = struct.pack(">hhih", api_key, version, 1, -1) + (b"\0" if flexible is not None and version >= flexible else b"")
    body = data.draw(st.binary(max_size=120))
    attack.step(struct.pack(">i", len(header) + len(body)) + header + body)
