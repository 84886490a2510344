"""Leader epochs without a batch do not survive a crash: recovery learns epochs from batches. No position looks truncated for it."""

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st
from logs import FAST_DIRECTORY, Disk

from kafkacore.records import read_batches
from tests.kit.batches import batch
from tests.kit.reached import Reached

crashes = Reached("an epoch without a batch is lost", "an epoch with a batch survives", "a position of a lost epoch behind a batch")
STEPS = st.lists(st.one_of(st.just("lead"), st.just("write"), st.just("crash")), max_size=25)


@crashes.by
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_no_position_looks_truncated_after_a_crash(steps):
    """A consumer stands at (offset, epoch) wherever an epoch was current. After a crash the broker leads again, in a new epoch, and is
    asked where the position's epoch ended (KIP-320): never before the position."""
    with tempfile.TemporaryDirectory(dir=FAST_DIRECTORY) as directory:
        store = Disk(directory)
        log = store.log()
        epoch = 0
        log.begin_epoch(epoch)
        positions = {(0, 0)}
        for step in [*steps, "crash"]:
            if step == "lead":
                epoch += 1
                log.begin_epoch(epoch)
            elif step == "write":
                log.append(next(iter(read_batches(batch()))), epoch)
            else:
                known = {each for each, _ in log.epochs}
                store.crash()
                log = store.log()
                lost = known - {each for each, _ in log.epochs}
                crashes("an epoch without a batch is lost", lost)
                crashes("an epoch with a batch survives", log.epochs)
                crashes("a position of a lost epoch behind a batch", any(at and each in lost for at, each in positions))
                epoch += 1
                log.begin_epoch(epoch)  # as every leader does (Partition._lead)
            positions.add((log.end_offset, epoch))
            for offset, asked in positions:
                ended_epoch, ended_at = log.end_offset_for_epoch(asked)
                assert ended_at >= offset and ended_epoch <= asked, (offset, asked, log.epochs)
        store.manager.close()
