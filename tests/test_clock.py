"""clock.py: two scales, moved by hand in tests."""

import time

import pytest

from kafkacore.clock import Clock, JumpingClock, ManualClock, SystemClock


def read(clock: Clock) -> tuple[int, int]:
    return clock.now_ms(), clock.wall_ms()


def test_manual_clock_moves_both_scales_and_only_when_told():
    clock = ManualClock(now_ms=10, wall_ms=1_000)
    assert read(clock) == read(clock) == (10, 1_000)
    assert clock.advance(5) == 15
    assert read(clock) == (15, 1_005)
    clock.set_wall_ms(1)
    assert read(clock) == (15, 1)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_system_clock_reads_whole_milliseconds_of_the_machines_clocks():
    before = time.monotonic() * 1000, time.time() * 1000
    now = read(SystemClock())
    after = time.monotonic() * 1000, time.time() * 1000
    assert all(isinstance(value, int) for value in now)
    assert int(before[0]) <= now[0] <= after[0]
    assert int(before[1]) <= now[1] <= after[1]


def test_a_machine_that_slept_moves_all_scales_and_a_jump_the_wall_alone():
    clock, system = JumpingClock(), SystemClock()
    clock.sleep(10**12)
    clock.jump(-(10**13))
    ahead = clock.now_ms() - system.now_ms(), clock.now_ns() // 10**6 - system.now_ms(), clock.wall_ms() - system.wall_ms()
    assert [round(ms, -8) for ms in ahead] == [10**12, 10**12, -9 * 10**12]  # to a day: no time of the test shows
    with pytest.raises(ValueError, match="cannot go back"):
        clock.sleep(-1)
