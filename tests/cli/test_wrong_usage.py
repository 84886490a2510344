"""What is wrong with a line of words is said before any broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkacore import __version__
from tests.kit.commands import Commands

NOBODY = ("-b", "127.0.0.1:1")


def test_words_that_do_not_fit(cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("there.parquet", "data.txt", "data.csv"):
        Path(name).write_text("")
    Path("link.parquet").symlink_to("there.parquet")
    Path("dir.parquet").mkdir()
    for words, why in (
        ("export t link.parquet", "Invalid value for FILE: link.parquet is a link to there.parquet: name the file itself"),
        ("export t dir.parquet", "Invalid value for FILE: dir.parquet is no regular file"),
        ("export t there.parquet", "Invalid value for FILE: there.parquet is there already; --force replaces it"),
        ("load data.txt t", "Invalid value for FILE: data.txt is no NAME.parquet, NAME.csv or NAME.jsonl"),
        (f"consume t --from @{1 << 63}", "is no time since 1970"),
        ("configs set --topic t --alter --entity-type users x=1", "kafkacore users set NAME"),
        ("configs set --entity-type nonsense x=1", "--entity-type nonsense"),
        ("configs set --entity-type topics --entity-default x=1", "--entity-default"),
        ("quotas set --name nonsense x=1", "--name nonsense: --user NAME"),
        ("quotas set --name user x=1", "--name user: --user NAME"),
        ("quotas set --default nonsense x=1", "--default nonsense: --user-defaults"),
        ("cluster --format yaml", "--format yaml: --json prints JSON"),
    ):
        assert why in cli.fails(*words.split(), *NOBODY, status=2), words
    assert cli("--version") == f"kafkacore {__version__}\n"
    for group in ((), ("topics",), ("acls",)):
        cli(*group, status=2)
        assert "Usage: kafkacore" in cli.out + cli.err and "--help" in cli.out + cli.err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("profiles = 3", "not profiles of another form"),
        ("other = 1\n[profiles.a]\nacks = 1", "not other"),
        ("[profiles.a]\nacks", "is no TOML"),
        ("[profiles.abcd]\nacks = 1", "has no profile abce; did you mean abcd?"),
        ("[profiles.one]\nacks = 1\n[profiles.two]\nacks = 1", "has no profile abce; it has one, two"),
        ("[profiles.abce]\nlinger_ms = true", "linger_ms must be"),
        ("[profiles.abce.enable]\nidempotence = 'x'", "enable_idempotence must be a truth value, not 'x'"),
    ],
)
def test_files_of_profiles_that_do_not_fit(cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    directory = tmp_path / "kafkacore"
    directory.mkdir()
    (directory / "config.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert why in cli.fails("produce", "t", "--profile", "abce", *NOBODY, status=2)
