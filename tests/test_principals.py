"""Names of certificates as Java writes them, and the users that mapping rules make of them. The expected values are those of Java 17 and
Kafka 4.3.1; `tests/interop/test_principals_alike.py` asks these two."""

from __future__ import annotations

import ssl

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.errors import ConfigError, CorruptDataError
from kafkacore.principals import MappingRules, name_of, subject_of
from tests.kit.reached import Reached
from tests.kit.rows import each_row

ALICE = trustme.CA().issue_cert(common_name="alice", organization_name="acme")
CERTIFICATE = ssl.PEM_cert_to_DER_cert(ALICE.cert_chain_pems[0].bytes().decode())
DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


def der(*parts: tuple[str, int, bytes]) -> bytes:
    """A name of parts with one type and value each."""
    return _sequence(0x30, *(_sequence(0x31, _sequence(0x30, bytes.fromhex(oid), _sequence(tag, value))) for oid, tag, value in parts))


def _sequence(tag: int, *content: bytes) -> bytes:
    joined = b"".join(content)
    size = bytes([len(joined)]) if len(joined) < 128 else bytes([0x82]) + len(joined).to_bytes(2, "big")
    return bytes([tag]) + size + joined


ALICES = bytes.fromhex("0603550403") + b"\x0c\x05alice"
CN, OU, EMAIL = "0603550403", "060355040b", "06092a864886f70d010901"


@each_row(
    ("name", "shown"),
    [
        (der(), ""),
        (der((OU, 0x0C, b"eng"), (CN, 0x0C, b"alice")), "CN=alice,OU=eng"),
        (der((CN, 0x13, b" a,b+c=d ")), r"CN=\ a\,b\+c\=d\ "),
        (der((CN, 0x0C, b"  ")), r"CN=\ \ "),
        (der((CN, 0x0C, b'#q"\\;<>')), r"CN=\#q\"\\\;\<\>"),
        (der((CN, 0x0C, "ünï\0".encode())), "CN=ünï\\00"),
        (der((EMAIL, 0x16, b"a@b")), "1.2.840.113549.1.9.1=#1603614062"),
        (der((CN, 0x14, b"a"), (CN, 0x16, b"b"), (CN, 0x1B, b"c"), (CN, 0x1E, b"\0d")), "CN=\\00d,CN=c,CN=b,CN=a"),
        (der((CN, 0x12, b"12")), "CN=#12023132"),  # a NumericString is no text there
        (der((CN, 0x0C, b"x" * 200)), "CN=" + "x" * 200),
        (der((CN, 0x0C, b"\ra b\r")), "CN=\\\ra b\\\r"),
        (der(("060a0992268993f22c640101", 0x0C, b"u"), ("06028837", 0x0C, b""), ("060129", 0x05, b"")), "1.1=#0500,2.999=#0c00,UID=u"),
        (der(*((f"0601{arcs:02x}", 5, b"") for arcs in (80, 79, 40, 39))), "0.39=#0500,1.0=#0500,1.39=#0500,2.0=#0500"),
        (_sequence(0x30, _sequence(0x31, _sequence(0x30, ALICES), _sequence(0x30, ALICES))), "CN=alice+CN=alice"),
        (b"\x30\x81\x00", ""),
        (b"\x30\x84\0\0\0\0", ""),
    ],
)
def test_names(name: bytes, shown: str) -> None:
    assert name_of(name) == shown


@each_row(
    "name",
    [
        *(b"", b"\x30", b"\x30\x80", b"\x30\x80\0", b"\x30\x85\0\0\0\0\0", b"\x30\x81", b"\x30\x82\0", b"\x30\x01", b"\x31\0"),
        *(_sequence(0x30, each) for each in (b"\x30\0", _sequence(0x31, b"\x31\0"), _sequence(0x31, b"\x30\0"), b"\x31\1", b"\x31")),
        *(_sequence(0x30, _sequence(0x31, _sequence(0x30, each))) for each in (ALICES[:5], ALICES + b"\x0c\0", ALICES[5:] + ALICES[:5])),
        *(der((oid, 0x0C, b"")) for oid in ("0600", "060188", "06025588")),
    ],
)
def test_names_that_are_none(name: bytes) -> None:
    with pytest.raises(CorruptDataError):
        name_of(name)


def test_a_subject_is_the_fifth_field_behind_the_version() -> None:
    version, subject = _sequence(0xA0, b"\x02\1\2"), der((CN, 0x0C, b"alice"))
    fields = b"\x02\1\1", b"\x30\0", der((CN, 0x0C, b"issuer")), b"\x30\0"
    for each in ((*fields, subject), (version, *fields, subject), (version, *fields, subject, b"\x30\0")):
        assert subject_of(_sequence(0x30, _sequence(0x30, *each), b"\x30\0")) == "CN=alice"
    for each in ((), (version, *fields), fields, (*fields, b"\x31\0")):
        with pytest.raises(CorruptDataError):
            subject_of(_sequence(0x30, _sequence(0x30, *each)))
    for tag, inner in ((0x31, 0x30), (0x30, 0x31)):
        with pytest.raises(CorruptDataError):
            subject_of(_sequence(tag, _sequence(inner, *fields, subject)))
    with pytest.raises(CorruptDataError):
        subject_of(b"\x30\0")


def test_subjects() -> None:
    shown = subject_of(CERTIFICATE)
    assert shown.startswith("CN=alice,OU=Testing cert \\#") and shown.endswith(",O=acme")


garbage = Reached("read", "refused")


@garbage.by
@given(st.data())
def test_garbage_is_corrupt_data_and_nothing_else(data: st.DataObject) -> None:
    changed = bytearray(CERTIFICATE)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for each in (bytes(changed[: data.draw(st.integers(0, len(changed)))]), bytes(changed)):
        for read in (subject_of, name_of):
            try:
                assert isinstance(read(each), str)
                garbage("read")
            except CorruptDataError:
                garbage("refused")


@each_row(
    ("rules", "user"),
    [
        ("DEFAULT", DUKE),
        ("", None),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=Nobody.*$/$1/", None),
        ("RULE:^CN=(.*?),OU=Nobody.*$/$1/, DEFAULT", DUKE),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),.*$/$1@$2.$3/L", "duke@serviceusers.org"),
        ("RULE:^.*[Cc]N=([a-zA-Z0-9.]*).*$/$1/U", "DUKE"),
        ("RULE:^CN=(.*?),.*$/$1$9/", "Duke$9"),  # no such group: a text
        ("RULE:^(C)(N)(=)(D)(u)(k)(e)(,)(O)(U).*$/$10$11/", "UC1"),  # of ten groups the tenth, or the first and a 1
        ("RULE:^(C)(N)(=)(D)(u)(k)(e)(,)(O)(U)(=)(S).*$/$12$1/", "SC"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}!/", "Duke!"),
        ("RULE:(.*)/[$1]/", f"[{DUKE}][]"),  # Java's replaceAll finds the empty end, too
        (r"RULE:^CN=(.*?),.*$/a\/$1/", "a/Duke"),
        (r"RULE:^CN=(.*?),.*$/\$1$0/", f"$1{DUKE}"),
        ("RULE:^(C)N.*$/$12/", "C2"),
        ("RULE:^(C)N.*$/$10-$19-$20/", "C0-C9-$20"),
        ("RULE:^(C)N.*$/$09/", f"{DUKE}9"),
        ("RULE:CN=D[.]ke.*/x/, RULE:(?i)cn=.*/y/", "y"),
        ("RULE:[(?s)CN=]+D(?i:UKE).*/x/", "x"),
        (r"RULE:[(?<a>C\]N]+[^]]+[]S]erv.*/x/", "x"),
    ],
)
def test_rules(rules: str, user: str | None) -> None:
    assert MappingRules(rules).name(DUKE) == user


def test_a_dot_is_no_end_of_a_line() -> None:
    rules = MappingRules("RULE:a.b/x/")
    assert [rules.name(f"a{each}b") for each in ("c", "\n", "\r", "\x85", "\u2028", "\u2029", "")] == ["x", *[None] * 6]


@each_row(
    ("rules", "problem"),
    [
        ("duke", "neither DEFAULT nor"),
        ("RULE:a/b/X", "neither DEFAULT nor"),
        ("RULE:(/b/", "cannot be used"),
        ("RULE:.*/$1/", "no group 1"),
        ("RULE:.*/a$/", "a group's number"),
        ("RULE:.*/${who}/", "no group who"),
        (r"RULE:\p{Alpha}/b/", "cannot be used"),
        ("RULE:[a[b]]/b/", "Java's alone"),
        ("RULE:(?s).*/b/", "flags"),
        ("RULE:[a&&b]/b/", "Java's alone"),
        ("RULE:^CN=(.*?),.*$/$8$9/", "no group 9"),  # Kafka escapes the second where it was before the first was
        ("RULE:.*/$x/", "a group's number"),
    ],
)
def test_rules_that_cannot_be(rules: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        MappingRules(rules)
