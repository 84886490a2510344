"""Text of others has no effect on a terminal, and nothing of it is lost."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from kafkacore.printable import printable, printable_json, quoted
from tests.kit.reached import Reached
from tests.kit.rows import each_row

JOINERS = "\u200c\u200d"
PIECES = ("a", "\x1b", "\n", "\u202e", "\u200d", "\ud83d", "\ud83d\udc69")
TEXT = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=())).map("".join)
reached = Reached("with an effect", "without an effect")
joined = Reached("a pair of surrogates", "text that needs an escape")


def has_effect(text: str) -> bool:
    """By the categories of this Python's Unicode: an oracle apart from the expression in use."""
    # Signs that are drawn, in spite of their category: Arabic and Kaithi number signs, hieroglyphs, musical beams, shorthand.
    drawn = {"ARABIC", "KAITHI", "EGYPTIAN", "MUSICAL", "SHORTHAND"}
    for each in text:
        if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") and each not in JOINERS:
            name = unicodedata.name(each, "").split(" ")[0]
            if name not in drawn or each == "\u061c":
                return True
    return False


@each_row(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("c\x1b[31mRED\x9b2J\u202egnp", r"c\x1b[31mRED\x9b2J\u202egnp"),
        ("g\x1b]0;PWNED\x07", r"g\x1b]0;PWNED\x07"),
        ("refused\nkafkacore: deleted everything", r"refused\nkafkacore: deleted everything"),
        ("a\tb\r\x7f\u2028\u2066\ufeff\ud800\U000e0041", r"a\tb\r\x7f\u2028\u2066\ufeff\ud800\U000e0041"),
        ("ключ 👩\u200d💻 ü", "ключ 👩\u200d💻 ü"),
    ],
)
def test_what_has_an_effect_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@reached.by
@given(TEXT)
def test_no_text_has_an_effect(text: str) -> None:
    reached("with an effect" if has_effect(text) else "without an effect")
    assert not has_effect(printable(text))
    assert printable(printable(text)) == printable(text)
    if not has_effect(text):
        assert printable(text) == text


def test_every_character_by_itself() -> None:
    assert not has_effect(printable("".join(map(chr, range(0x110000)))))


@joined.by
@given(TEXT)
def test_json_means_the_same(text: str) -> None:
    joined("a pair of surrogates", "\ud83d\udc69" in text)
    joined("text that needs an escape", has_effect(text))
    document = printable_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert not has_effect(document)
    found = json.loads(document)
    # in JSON a pair of lone surrogates is a character
    pairs_joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert found == {pairs_joined: [pairs_joined]}


def test_a_long_refusal_is_cut() -> None:
    assert quoted("x" * 200) == "x" * 200
    assert quoted("\x1b" + "x" * 30_000) == r"\x1b" + "x" * 199 + "..."
