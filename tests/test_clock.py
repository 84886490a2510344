"""clock.py: two scales, moved by hand in tests."""

from types import SimpleNamespace

import pytest

from kafkacore.clock import Clock, JumpingClock, ManualClock, SystemClock


def read(clock: Clock) -> tuple[int, int, int]:
    return clock.now_ms(), clock.now_ns(), clock.wall_ms()


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacore.clock.time", SimpleNamespace(monotonic_ns=lambda: 5_999_999, time_ns=lambda: 7_000_999_999))


def test_manual_clock_moves_both_scales_and_only_when_told():
    assert read(ManualClock()) == (0, 0, 1_400_000_000_000)
    clock = ManualClock(now_ms=10, wall_ms=1_000)
    assert read(clock) == read(clock) == (10, 10_000_000, 1_000)
    assert clock.advance(5) == clock.advance(0) == 15
    assert read(clock) == (15, 15_000_000, 1_005)
    clock.set_wall_ms(1)
    assert read(clock) == (15, 15_000_000, 1)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_system_clock_reads_whole_milliseconds_of_the_machines_clocks():
    assert read(SystemClock()) == (5, 5_999_999, 7_000)


def test_a_machine_that_slept_moves_all_scales_and_a_jump_the_wall_alone():
    clock = JumpingClock()
    assert read(clock) == read(SystemClock())
    for _ in range(2):
        clock.sleep(100)
        clock.sleep(0)
        clock.jump(-1000)
    assert read(clock) == (205, 205_999_999, 5_200)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.sleep(-1)
