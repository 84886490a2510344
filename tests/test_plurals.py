"""Numbers of things in messages."""

from __future__ import annotations

from kafkacore.plurals import counted
from tests.kit.rows import each_row


@each_row(
    ("count", "words", "said"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (2, ("record",), "2 records"),
        (1, ("batch", "batches"), "1 batch"),
        (12_345, ("batch", "batches"), "12,345 batches"),
    ],
)
def test_one_and_many(count: int, words: tuple[str, ...], said: str) -> None:
    assert counted(count, *words) == said
