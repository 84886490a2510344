"""Client settings out of files: -F, --profile and the user's own file, for every command."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.cli import completion, setting_files
from kafkacore.cli.app import application, run
from kafkacore.config import ClientConfig
from kafkacore.config_names import ELSEWHERE
from kafkacore.config_properties import NoProperties, parse_properties
from kafkacore.decode import registry
from kafkacore.testing import EmbeddedCluster
from tests.kit.commands import Commands
from tests.kit.rows import each_row

PASSWORD = "open sesame: \\ = # é"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(users={"alice": PASSWORD}) as started:
        started.create_topic("flights", partitions=1)
        yield started


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No setting of the machine counts."""
    for name in ("KAFKACORE_BOOTSTRAP_SERVERS", "KAFKACORE_PROFILE", "KAFKACORE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "kafkacore").mkdir(parents=True)
    return tmp_path


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def login(cluster: EmbeddedCluster, password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": password,
    }


def properties(settings: dict[str, str]) -> str:
    return "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items())


def toml(**profiles: dict[str, str]) -> str:
    def lines(settings: dict[str, str]) -> str:
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())

    return "".join(f"[profiles.{name}]\n{lines(settings)}" for name, settings in profiles.items())


# ---- properties


@each_row(
    ("text", "found"),
    [
        ("", {}),
        ("# a\n! b\n\n  \t\n", {}),
        ("a=1\nb: 2\r\nc 3\rd\t=\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a==1\nb=:2\nc\nd=", {"a": "=1", "b": ":2", "c": "", "d": ""}),
        ("a\\ b\\=\\:=c\\=d ", {"a b=:": "c=d "}),
        ("a = x\\\n   y\\\n\tz\nb=1", {"a": "xyz", "b": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a=\\t\\n\\q\\u00e9\\ud83d\\ude00\\", {"a": "\t\nqé😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("\ufeffa=1", {"a": "1"}),
        ('jaas=org.x.Plain required user="a" password="b#c";', {"jaas": 'org.x.Plain required user="a" password="b#c";'}),
    ],
)
def test_properties_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@each_row(("text", "why"), [("a=1\nb=\\u12", "line 2: "), ("=secret", "line 1 has no name")])
def test_what_is_no_properties_file(text: str, why: str) -> None:
    with pytest.raises(NoProperties, match=why) as refused:
        parse_properties(text)
    assert "secret" not in str(refused.value)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=4))
def test_escaped_text_comes_back(settings: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for at in text for pair in _units(at))

    def _units(at: str) -> list[bytes]:
        coded = at.encode("utf-16-be", "surrogatepass")
        return [coded[n : n + 2] for n in range(0, len(coded), 2)]

    assert parse_properties("".join(f"{escaped(name)}={escaped(value)}\n" for name, value in settings.items())) == settings


# ---- commands


def test_every_command_that_takes_settings_takes_files() -> None:
    def walk(command: Any, path: str) -> Iterator[tuple[str, set[str]]]:
        if hasattr(command, "commands"):
            for name, below in command.commands.items():
                yield from walk(below, f"{path} {name}")
        else:
            yield path, {word for param in command.params for word in param.opts}

    found = dict(walk(typer.main.get_command(application(())), ""))
    with_settings = {path for path, words in found.items() if "-X" in words}
    assert len(with_settings) > 30
    assert with_settings == {path for path, words in found.items() if {"-F", "--command-config", "--profile"} <= words}


def test_a_file_logs_in_for_commands_of_every_kind_of_client(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Commands
) -> None:
    more = {"linger.ms": "1", "auto.offset.reset": "earliest", "compression.type": "lz4"}  # of one kind of client each
    file = str(written(tmp_path / "client.properties", "# mine\n" + properties(login(cluster) | more)))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"UA\n")))
    cli("produce", "flights", "-F", file)
    assert cli("consume", "flights", "-e", "--command-config", file) == "UA\n"  # from earliest, as the file says
    assert cli("consume", "flights", "-e", "--from", "latest", "-F", file) == ""  # what is typed goes first
    written(tmp_path / "t.csv", "a\n1\n")
    for words, out in (
        (["topics", "list"], "flights\n"),
        (["query", "select count(*) as n from flights", "--json"], '{"n":1}\n'),
        (["export", "flights", str(tmp_path / "f.parquet")], ""),
        (["load", str(tmp_path / "t.csv"), "flights"], ""),
    ):
        assert cli(*words, "-F", file).startswith(out)
        assert "warning" not in cli.err
    for words, said in ((["-X", "sasl.password=wrong"], "SASL_AUTHENTICATION_FAILED"), (["-b", "127.0.0.1:1"], "127.0.0.1:1 ")):
        cli("topics", "list", "-F", file, *words, status=1)  # as typed words do
        assert said in cli.err


def test_profiles_and_the_default_one(
    cluster: EmbeddedCluster, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "config" / "kafkacore" / "config.toml"
    good, bad = login(cluster), login(cluster, "wrong")
    monkeypatch.setenv("PASSWORD_OF_ALICE", PASSWORD)
    by_reference = login(cluster, "secret://env/PASSWORD_OF_ALICE") | {"sasl_username": "alice"}
    del by_reference["sasl.username"]
    written(file, 'default_profile = "good"\n' + toml(good=good, bad=bad, reference=by_reference))

    def listed(*words: str) -> int:
        return run(["topics", "list", *words])

    assert [listed(), listed("--profile", "good"), listed("--profile", "reference"), listed("--profile", "bad")] == [0, 0, 0, 1]
    monkeypatch.setenv("KAFKACORE_PROFILE", "bad")
    assert [listed(), listed("--profile", "good")] == [1, 0]
    monkeypatch.delenv("KAFKACORE_PROFILE")
    capsys.readouterr()
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert [listed(), listed("--profile", "good")] == [1, 0]  # the default one does not count where something else names the cluster
    assert "no broker at 127.0.0.1:1" in capsys.readouterr().err
    monkeypatch.delenv("KAFKACORE_BOOTSTRAP_SERVERS")
    assert listed("-b", cluster.bootstrap_servers, "-X", "default.api.timeout.ms=500") == 1
    assert listed("-X", f"bootstrap.servers={cluster.bootstrap_servers}", "-X", "default.api.timeout.ms=500") == 1
    assert listed("-b", cluster.bootstrap_servers, "--profile", "good") == 0
    monkeypatch.setenv("KAFKACORE_CONFIG", str(written(home / "other.toml", toml(only=good))))
    assert [listed("--profile", "only"), listed("--profile", "good")] == [0, 2]
    assert "has no profile good; it has only" in capsys.readouterr().err


def test_a_file_says_how_the_schema_registry_is_asked(
    cluster: EmbeddedCluster, home: Path, registry_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
    number = registry_server.add("coded-value", json.dumps(schema))
    cluster.create_topic("coded", partitions=1)
    cluster.produce("coded", [registry.prefix_of(number) + b"\x04UA"])
    query = ["query", "select carrier from coded", "--json", "--format", "avro"]
    export = ["export", "coded", str(home / "f.parquet"), "--force", "--format", "avro"]
    consume = ["consume", "coded", "--from", "earliest", "-e", "--value-format", "avro"]
    monkeypatch.setenv("LOGIN", "me:hush")
    who = {"schema.registry.basic.auth.user.info": "secret://env/LOGIN"}
    there = {"schema.registry.url": registry_server.url}
    typed = ["--registry", registry_server.url]
    config = home / "config" / "kafkacore" / "config.toml"

    def asked(words: list[str]) -> list[str | None]:
        at = len(registry_server.authorizations)
        monkeypatch.setattr(registry, "_kept", {})  # as in a process of its own
        status = run(words)
        out, err = capsys.readouterr()
        assert status == 0 and ("UA" in out or "1 record of coded" in out), err
        return list(dict.fromkeys(registry_server.authorizations[at:]))

    def basic(login: str) -> list[str]:
        return ["Basic " + base64.b64encode(login.encode()).decode()]

    file = ["-F", str(written(home / "f", properties(login(cluster) | who)))]
    whole = ["-F", str(written(home / "w", properties(login(cluster) | who | there)))]
    place = written(home / "place", properties(there))
    for command in (query, export, consume):
        assert asked([*command, *file, *typed]) == basic("me:hush")
        assert asked([*command, *whole]) == basic("me:hush")  # the URL of the file, too
        assert asked([*command, "-F", str(place), *file]) == basic("me:hush")  # and of two files
        assert asked([*command, *whole, "-X", "schema.registry.basic.auth.user.info=a:b"]) == basic("a:b")
        assert run([*command, *file]) != 0  # nobody says where
        assert asked([*command, *file, "-X", f"schema.registry.url={registry_server.url}"]) == basic("me:hush")
        monkeypatch.setenv("KAFKACORE_PROFILE", "p")
        written(config, 'default_profile = "p"\n' + toml(p=login(cluster) | who | {"schema_registry_url": registry_server.url}))
        assert asked(command) == basic("me:hush")
        monkeypatch.delenv("KAFKACORE_PROFILE")
        assert asked(command) == asked([*command, *typed]) == basic("me:hush")
        written(config, 'default_profile = "p"\n' + toml(p=login(cluster) | who | {"schema.registry.url": "http://127.0.0.1:1"}))
        capsys.readouterr()
        assert asked([*command, *typed]) == [None]  # named otherwise: no password of the default profile
        config.unlink()
    assert run(["query", "select value from coded", "--json", *whole]) == 0  # values are read by themselves, as without the file
    assert run(["topics", "list", *whole]) == 0
    assert "warning" not in capsys.readouterr().err
    assert run([*query, *whole, *typed, "-X", "schema.registry.url=http://h"]) == 2
    assert "schema.registry.url is --registry" in capsys.readouterr().err


@each_row(
    ("text", "words", "why"),
    [
        ("retentionms = 1", [], "no client here has the setting retentionms"),
        ('"security.protocl" = "SSL"', [], "unknown setting 'security.protocl'; did you mean security.protocol?"),
        ('"request.required.acks" = 1', [], "did you mean acks?"),
        ('"sasl.mechanism" = "PLAIN"\n"sasl.mechanisms" = "PLAIN"', [], "'sasl.mechanisms' is given twice"),
        ("acks = [1]", [], "[profiles.p]: acks is text, a number, true or false"),
        ('client.id = "a"\nclient_id = "b"', [], "'client_id' is given twice"),
        ("acks = ", [], "is no TOML: "),
        ('client.id = "secret://env/HOME"', [], "client.id: a secret:// reference is for a password"),
        ('sasl.password = "secret://env/NOT_THERE"', [], "NOT_THERE is not set"),
        ('schema.registry.url = "http://h"\nschema_registry_url = "b"', [], "'schema_registry_url' is given twice"),
        ('schema.registry.basic.auth.userinfo = "b"', [], "did you mean schema.registry.basic.auth.user.info?"),
        ('schema.registry.ssl.truststore.type = "JKS"', [], "no schema registry here has the setting schema.registry.ssl.truststore.type"),
        ("", ["--profile", "pp"], "has no profile pp; did you mean p?"),
        ("", ["-F", "file"], "either --command-config or --profile"),
        ('bootstrap.controllers = "127.0.0.1:1"', [], "names controllers, and this command asks brokers"),
    ],
)
def test_what_is_wrong_in_a_profile_is_one_line(
    home: Path, text: str, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(home / "config" / "kafkacore" / "config.toml", f"[profiles.p]\n{text}\n")
    status = run(["topics", "list", "--profile", "p", *words, "-X", "default.api.timeout.ms=100"])
    said = capsys.readouterr().err
    assert why in said and "Traceback" not in said and (status == 1 if "here has" in why else (status, said.count("\n")) == (2, 1))


def test_several_files_are_read_in_turn(cluster: EmbeddedCluster, tmp_path: Path, cli: Commands) -> None:
    """As with kcat: the servers of the first, the login of the second, and where both say something, what the second says."""
    settings = login(cluster)
    first = {"bootstrap.servers": settings.pop("bootstrap.servers"), "sasl.password": "another", "client.id": "first"}
    files = [str(written(tmp_path / name, properties(each))) for name, each in (("first", first), ("second", settings))]
    assert "flights" in cli("topics", "list", "-F", files[0], "--command-config", files[1])
    found = setting_files.read([Path(each) for each in files], None, elsewhere=False)
    assert found.where == ", ".join(files)
    assert dict(found.settings) == first | settings
    other = str(written(tmp_path / "third", "a=\\u1"))
    cli("topics", "list", "-F", files[0], "-F", other, status=2)
    assert f"{other}: line 1" in cli.err


def test_names_of_kcat_and_java_that_mean_the_same(cluster: EmbeddedCluster, tmp_path: Path, cli: Commands) -> None:
    settings = login(cluster)
    settings["metadata.broker.list"] = settings.pop("bootstrap.servers")
    settings["sasl.mechanisms"] = settings.pop("sasl.mechanism")
    settings["api.version.request"] = "true"
    cli("topics", "list", "-F", str(written(tmp_path / "kcat.conf", properties(settings))))
    assert "api.version.request: leave it out" in cli.err
    assert all(ELSEWHERE[name] in ClientConfig.names() for name in setting_files.SAME)
    tls = written(tmp_path / "tls", "ssl.ca.location=ca\nssl.certificate.location=c\nssl.key.location=k\nssl.key.password=p\n")
    found = setting_files.read([tls], None, elsewhere=False)
    assert dict(found.settings) == {"ssl.cafile": "ca", "ssl.certfile": "c", "ssl.keyfile": "k", "ssl.password": "p"}
    for text, checks in (("https", "true"), ("", "false"), ("none", "false")):
        file = written(tmp_path / "java", f"ssl.endpoint.identification.algorithm={text}\n")
        assert dict(setting_files.read([file], None, elsewhere=False).settings) == {"ssl.check.hostname": checks}


def test_files_that_are_none(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(home / "f", "a=\\u1")
    for words, why in (
        (["-F", str(file)], f"{file}: line 1: "),
        (["-F", str(home / "missing")], "missing: No such file"),
        (["--profile", "p"], "no profile p: there is no file "),
    ):
        assert run(["topics", "list", *words]) in (1, 2)
        said = capsys.readouterr().err
        assert why in said and said.count("\n") == 1
    file.write_bytes(b"\xff")
    assert run(["topics", "list", "-F", str(file)]) == 2
    assert "is not UTF-8" in capsys.readouterr().err
    file.write_text("bootstrap.controllers=127.0.0.1:1\ndefault.api.timeout.ms=100\n")
    assert run(["cluster", "-F", str(file)]) == 1
    assert "no controller at 127.0.0.1:1" in capsys.readouterr().err


def test_a_password_that_others_may_read_is_warned_about(
    cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = ((PASSWORD, 0o644, True), (PASSWORD, 0o600, False), ("secret://env/PW", 0o644, False))
    for number, (password, mode, warns) in enumerate(cases):
        file = written(tmp_path / f"{number}.properties", properties(login(cluster, password)), mode)
        run(["topics", "list", "-F", str(file)])
        said = capsys.readouterr().err
        assert (f"{file} holds sasl.password and other users may read it: chmod 600 {file}" in said) is warns
        assert PASSWORD not in said
    for name, value in (("basic.auth.user.info", "me:hush"), ("bearer.auth.token", "hush"), ("url", "http://me:hush@h")):
        text = properties(login(cluster, "secret://env/PW") | {f"schema.registry.{name}": value})
        file = written(tmp_path / "registry.properties", text, 0o644)
        run(["topics", "list", "-F", str(file)])
        assert f"{file} holds schema.registry.{name} and other users may read it" in capsys.readouterr().err


def test_the_shell_completes_with_a_profile(cluster: EmbeddedCluster, home: Path) -> None:
    written(home / "config" / "kafkacore" / "config.toml", 'default_profile = "p"\n' + toml(p=login(cluster)))
    command = typer.main.get_command(application(["consume"])).commands["consume"]  # type: ignore[attr-defined]
    before = setting_files.current()
    try:
        for words in ([], ["--profile", "p"]):
            context = command.make_context("consume", [*words, "fl"], resilient_parsing=True)
            context.params["topics"] = None
            assert completion.topics(context, "fl") == ["flights"]
    finally:
        setting_files.set_current(before)
