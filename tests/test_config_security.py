"""SASL in settings: JAAS lines, what contradicts what, and that nothing secret is shown."""

import pickle
import ssl
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.config import BrokerConfig, ClientConfig, ProducerConfig
from kafkacore.config_secrets import resolve, resolve_all, resolve_hidden
from kafkacore.config_security import (
    JaasLine,
    RefreshWindow,
    SaslSettings,
    SecuritySettings,
    TokenEndpoint,
    is_loopback,
    parse_jaas,
    sasl_listener,
)
from kafkacore.config_tls import Store
from kafkacore.errors import ConfigError
from tests.kit.rows import each_row

B = {"bootstrap.servers": "h:9092"}
SECRET = "tr0ub4dor&3"
KAFKA = "org.apache.kafka.common.security."
PLAIN = f'{KAFKA}plain.PlainLoginModule required username="alice" password="{SECRET}";'
OAUTH = f"{KAFKA}oauthbearer.OAuthBearerLoginModule required "
SASL = {**B, "security.protocol": "SASL_PLAINTEXT"}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://idp/token"}
CLIENT = {
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}
USER = {**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": SECRET}
CLAIMS = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH + "unsecuredLoginStringClaim_sub=al;"}
TOKENS = {**SASL, "sasl.mechanism": "OAUTHBEARER", **ENDPOINT, **CLIENT}
STORE = "ssl.truststore.location=x "
HANDLER = f"{KAFKA}oauthbearer.OAuthBearerLoginCallbackHandler"
ENDPOINT_ALONE = ("sasl.oauthbearer.allowed.urls", "sasl.oauthbearer.proxy.url", "https.ca.location")
WINDOW = {
    "window.factor": (0.5, 1.0, 0.01),
    "window.jitter": (0.0, 0.25, 0.01),
    "min.period.seconds": (0, 900, 1),
    "buffer.seconds": (0, 3600, 1),
}
OUTSIDE = [(name, low, high, each) for name, (low, high, step) in WINDOW.items() for each in (low - step, high + step)]
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def at(url):
    return {"sasl.oauthbearer.token.endpoint.url": url}


@each_row(
    ("line", "options"),
    [
        (PLAIN, {"username": "alice", "password": SECRET}),
        (PLAIN.replace('"', "'"), {"username": "alice", "password": SECRET}),
        (f"{KAFKA}plain.PlainLoginModule required username=alice password=x-1.2/3+;", {"username": "alice", "password": "x-1.2/3+"}),
        (f'{KAFKA}plain.PlainLoginModule   REQUIRED\n  username = "a b"\n password="x;=\'" ;\n', {"username": "a b", "password": "x;='"}),
        (f'{KAFKA}plain.PlainLoginModule required password="a\\"b\\\\c\\n";', {"password": 'a"b\\c\n'}),
        (f"{KAFKA}plain.PlainLoginModule required;", {}),
    ],
)
def test_jaas_lines(line, options):
    assert parse_jaas(line).options == options


word = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=12)


@given(st.dictionaries(word, st.text(st.characters(blacklist_categories=("Cs",)), max_size=20), max_size=4))
def test_a_line_written_is_the_line_read(options):
    line = JaasLine("a.B", "required", options)
    assert parse_jaas(line.text()) == line


@each_row(
    "line",
    [
        "",
        ";",
        "x",
        PLAIN.removesuffix(";"),
        PLAIN.replace("required ", ""),
        PLAIN.replace("required", "always"),
        PLAIN.replace('="alice"', ""),
        PLAIN.replace('="alice"', "=;"),
        PLAIN.replace(f'{SECRET}"', SECRET),
        PLAIN + PLAIN,
        PLAIN.replace(";", ' username="bob";'),
    ],
)
def test_other_lines_are_refused_without_repeating_them(line):
    with pytest.raises(ConfigError) as caught:
        ClientConfig.from_user({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": line})
    assert SECRET not in str(caught.value)


@each_row("prefix", ["", "kafkashaded.", "shadeddatabricks.", "my.own.shade."])
@each_row(
    ("module", "mechanism"),
    [("plain.PlainLoginModule", "PLAIN"), ("scram.ScramLoginModule", "SCRAM-SHA-256"), ("scram.ScramLoginModule", "SCRAM-SHA-512")],
)
def test_shaded_login_modules(prefix, module, mechanism):
    line = f'{prefix}{KAFKA}{module} required username="alice" password="{SECRET}";'
    found = ClientConfig.from_user({**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": line}).sasl_settings()
    assert (found.mechanism, found.username, found.password) == (mechanism, "alice", SECRET)


@pytest.mark.parametrize("module", ["software.amazon.msk.auth.iam.IAMLoginModule", "com.ibm.security.auth.module.Krb5LoginModule"])
def test_other_login_modules_are_refused_by_name(module):
    with pytest.raises(ConfigError, match=f"{module} is Java code that cannot run here"):
        ClientConfig.from_user({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{module} required;"})


def test_both_spellings_of_a_password():
    by_line = ClientConfig.from_user({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN})
    by_name = ClientConfig.from_user({**SASL, "sasl.mechanism": "plain"}, sasl_username="alice", sasl_password=SECRET)
    assert by_line.sasl_settings() == by_name.sasl_settings()
    assert ClientConfig.from_user(B).sasl_settings() is None


@each_row(
    ("settings", "why"),
    [
        ({**SASL}, r"needs sasl_mechanism, one of PLAIN, .*, GSSAPI$"),
        ({**SASL, "sasl.mechanism": "NTLM"}, "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, not 'NTLM'"),
        ({**B, "sasl.mechanism": "PLAIN"}, "sasl_mechanism has no effect with security_protocol=PLAINTEXT"),
        ({**B, "security.protocol": "SSL", "sasl.password": SECRET}, "sasl_password has no effect with security_protocol=SSL"),
        ({**SASL, "sasl.mechanism": "PLAIN"}, "sasl_mechanism=PLAIN needs sasl_username, or sasl_jaas_config"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a"}, "needs sasl_password"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": ""}, "needs sasl_password"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": 5}, "sasl_password must be a string$"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.jaas.config": PLAIN}, "exclude each other"),
        ({**SASL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": PLAIN}, "is for PLAIN, and sasl_mechanism is SCRAM-SHA-512"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN.replace("user", "x")}, "option xname is not known"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{KAFKA}plain.PlainLoginModule required;"}, "must have username and"),
        (
            {
                **SASL,
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{KAFKA}plain.PlainLoginModule required username=u password=p tokenauth=true;",
            },
            "delegation tokens",
        ),
        ({**SASL, "sasl.mechanism": "PLAIN", **ENDPOINT}, "has no effect with sasl_mechanism=PLAIN"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.username": "x"}, "sasl_username has no effect with sasl_mechanism=OAUTHBEARER"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "one source of tokens.*there are none"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", **ENDPOINT}, "need sasl_oauthbearer_client_credentials_client_id"),
        (
            {**SASL, "sasl.mechanism": "OAUTHBEARER", **ENDPOINT, **CLIENT, "sasl.oauthbearer.token.provider": lambda: ("", 0)},
            "there are a token provider and a token endpoint",
        ),
        (
            {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH + f"clientSecret={SECRET};", **ENDPOINT, **CLIENT},
            "clientSecret is given by .*client_secret too",
        ),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH + "unsecuredLoginNumberClaim_x=1;"}, "who it is for"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH + "unsecuredLoginNumberClaim_x=y;"}, "must be a number"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH + "unsecuredLoginLifetimeSeconds=0;"}, "number of seconds"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH + "assertion=x;"}, "option assertion is not known"),
        (
            {**SASL, "sasl.mechanism": "OAUTHBEARER", **ENDPOINT, **CLIENT, "sasl.login.callback.handler.class": "io.strimzi.Handler"},
            "io.strimzi.Handler is Java code",
        ),
        ({**B, "sasl.login.refresh.buffer.seconds": 5}, "sasl_login_refresh_buffer_seconds has no effect with security_protocol=PLAINTEXT"),
        ({**USER, "sasl.login.refresh.window.jitter": 0.1}, "sasl_login_refresh_window_jitter has no effect with sasl_mechanism=PLAIN"),
        ({**USER, "sasl.kerberos.service.name": "k"}, "sasl_kerberos_service_name has no effect with sasl_mechanism=PLAIN"),
        ({**CLAIMS, "sasl.kerberos.keytab": "k"}, "sasl_kerberos_keytab has no effect with sasl_mechanism=OAUTHBEARER"),
        ({**USER, "sasl.mechanism": "GSSAPI"}, "sasl_username has no effect with sasl_mechanism=GSSAPI"),
        ({**SASL, "sasl.mechanism": "GSSAPI", **ENDPOINT}, "has no effect with sasl_mechanism=GSSAPI"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.password": SECRET, "sasl.jaas.config": PLAIN}, "sasl_password and sasl_jaas_config"),
        *(({**CLAIMS, name: "https://h"}, "has no effect without sasl_oauthbearer_token_endpoint_url") for name in ENDPOINT_ALONE),
        ({**CLAIMS, "sasl.login.callback.handler.class": HANDLER}, "sasl_login_callback_handler_class has no effect without"),
        ({**CLAIMS, "sasl.jaas.config": OAUTH + STORE + "unsecuredLoginStringClaim_sub=a;"}, r"ssl\.truststore\.location has no effect"),
        ({**TOKENS, "https.ca.location": "a", "sasl.jaas.config": OAUTH + STORE + ";"}, r"ssl\.truststore\.location is given by https_ca"),
        ({**TOKENS, "sasl.jaas.config": OAUTH + STORE + "ssl.truststore.certificates=x;"}, "exclude each other"),
        ({**TOKENS, "sasl.oauthbearer.client.credentials.client.id": ""}, "need sasl_oauthbearer_client_credentials_client_id"),
        *(({**TOKENS, f"sasl.login.refresh.{name}": each}, f"must be {low} to {high}, not") for name, low, high, each in OUTSIDE),
        ({**TOKENS, **at("idp/token")}, "must be of the form https://host/path"),
        ({**TOKENS, **at("ftp://idp/token")}, "must be of the form https://host/path"),
        ({**TOKENS, **at("https:///token")}, "must be of the form https://host/path"),
        ({**TOKENS, **at("https://idp:x/token")}, "must be of the form https://host/path"),
        ({**TOKENS, **at(f"https://me:{SECRET}@idp/token")}, "holds a name or password"),
        ({**TOKENS, **at("http://idp/token")}, "must be https, or others can read the client's secret; sasl_oauthbearer_allowed_urls"),
        ({**TOKENS, **at("http://127.0.0.1.org/token")}, "must be https"),
        ({**TOKENS, "sasl.oauthbearer.allowed.urls": "https://other/token"}, "is not among sasl_oauthbearer_allowed_urls"),
        ({**B, "security.protocol": "SSL", "ssl.context": CONTEXT, "ssl.cafile": "x"}, "ssl_context is ready made: ssl_cafile would be"),
        ({**B, "ssl.context": CONTEXT}, "ssl_context has no effect with security_protocol=PLAINTEXT"),
        ({**B, "security.protocol": "SSL", "ssl.keyfile": "x"}, "ssl_keyfile needs ssl_certfile"),
        ({**B, "security.protocol": "TLS"}, "security_protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'"),
    ],
)
def test_what_is_missing_or_contradicts(settings, why):
    with pytest.raises(ConfigError, match=why) as caught:
        ProducerConfig.from_user(settings)
    assert SECRET not in str(caught.value)


@each_row("place", [0, 1])
def test_a_refresh_window_may_be_at_its_bounds(place):
    given = {f"sasl.login.refresh.{name}": bounds[place] for name, bounds in WINDOW.items()}
    assert ClientConfig.from_user({**TOKENS, **given}).sasl_settings().refresh == RefreshWindow(*(each[place] for each in WINDOW.values()))
    assert ClientConfig.from_user(TOKENS).sasl_settings().refresh == RefreshWindow(0.8, 0.05, 60, 300)


@each_row(
    ("life_s", "random", "delay_s", "window"),
    [
        (3_600, 0, 2_880, ()),
        (3_600, 1, 3_060, ()),
        (3_600, 0.5, 2_970, ()),
        (1_000, 1, 700, ()),
        (361, 0, 61, ()),
        (360, 0, 60, ()),
        (359, 0, 287.2, ()),
        (100, 1, 100, (1.0, 0.25)),
        (1_000, 0, 900, (0.8, 0.05, 900, 100)),
    ],
)
def test_when_a_token_is_refreshed(life_s, random, delay_s, window):
    assert RefreshWindow(*window).delay_ms(life_s * 1000, random) == delay_s * 1000


@each_row("host", ["localhost", "127.0.0.1", "127.10.20.30", "::1"])
def test_what_goes_to_this_machine_may_go_by_http(host):
    url = f"http://[{host}]/" if ":" in host else f"http://{host}:8080/"
    assert ClientConfig.from_user({**TOKENS, **at(url)}).sasl_settings().token_endpoint.url == url
    assert is_loopback(host) and not is_loopback(f"{host}.org") and not is_loopback(f"x{host}")
    allowed = {"sasl.oauthbearer.allowed.urls": "http://a/,http://idp/"}
    assert ClientConfig.from_user({**TOKENS, **at("http://idp/"), **allowed}).sasl_settings().token_endpoint.url == "http://idp/"


def test_where_an_endpoint_is_and_whom_it_is_trusted_by():
    line = OAUTH + "ssl.truststore.certificates=PEM ssl.truststore.password=pw scope=all;"
    found = ClientConfig.from_user({**TOKENS, "sasl.jaas.config": line, "sasl.oauthbearer.proxy.url": "http://p:1"}).sasl_settings()
    endpoint = TokenEndpoint("https://idp/token", "me", SECRET, "all", Store(None, "PEM", "pw"), "http://p:1")
    assert (found.token_endpoint, found.username, found.claims, found.lifetime_s) == (endpoint, "me", None, 3_600)
    by_file = ClientConfig.from_user({**TOKENS, "https.ca.location": "ca.pem"}).sasl_settings().token_endpoint
    assert (by_file.ca, by_file.proxy, by_file.scope) == (Store("ca.pem", None, None), None, None)
    assert TokenEndpoint("https://idp/token?key=x", "me", SECRET, None).shown == "https://idp/token"


@each_row("value", ["true", "TRUE", "false"])
def test_the_secret_of_a_delegation_token_goes_by_scram(value):
    line = f"{KAFKA}scram.ScramLoginModule required username=u password=p tokenauth={value};"
    found = ClientConfig.from_user({**SASL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": line}).sasl_settings()
    assert found.is_delegation_token == (value != "false")


def test_a_brokers_users_may_be_given_as_they_are():
    found = BrokerConfig.from_user(sasl_listener({"al": "a", "bo": "b"}))
    name, own, users = found.plain_users()
    assert (name, users) == ("broker", {"broker": own, "al": "a", "bo": "b"}) and len(own) > 20
    assert BrokerConfig.from_user(sasl_listener({"broker": "b"})).plain_users() == ("broker", "b", {"broker": "b"})
    for principal, service in (("*", "kafka"), ("k/host@R", "k"), ("k@R", "k")):
        settings = sasl_listener({"al": "a"}, keytab="/k", principal=principal)
        assert settings["sasl.kerberos.service.name"] == service
        assert settings["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,GSSAPI"
        keys = parse_jaas(settings["gssapi.sasl.jaas.config"])
        assert keys.options == {"useKeyTab": "true", "storeKey": "true", "keyTab": "/k", "principal": principal}


def test_a_token_provider_takes_extensions_from_the_line():
    def provider():
        return "token", 0

    settings = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": provider}
    found = ClientConfig.from_user({**settings, "sasl.jaas.config": OAUTH + 'extension_cluster="lkc-1";'}).sasl_settings()
    assert (found.token_provider, found.extensions) == (provider, {"cluster": "lkc-1"})
    with pytest.raises(ConfigError, match="a token provider and unsecured claims"):
        ClientConfig.from_user({**settings, "sasl.jaas.config": OAUTH + 'unsecuredLoginStringClaim_sub="al";'})


def a_token():
    """Named by `module:function` below."""
    return "token", 0


class Tokens:
    """The same as a method."""

    @staticmethod
    def provider():
        return "token", 0


OF_PROVIDER = "sasl.oauthbearer.token.provider"


def test_a_token_provider_by_its_name(monkeypatch, tmp_path):
    settings = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
    for config in (ClientConfig, ProducerConfig):
        assert config.from_user({**settings, OF_PROVIDER: f"{__name__}:a_token"}).sasl_settings().token_provider is a_token
    found = ClientConfig.from_user({**settings, OF_PROVIDER: f" {__name__}:Tokens.provider"}).sasl_settings()
    assert found.token_provider is Tokens.provider
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tokens_of_mine.py").write_text("import not_installed_here\n")
    (tmp_path / "broken_tokens.py").write_text("1 / 0\n")
    for text, why in {
        "a_token": "a function, or the name of one as module:function, not 'a_token'",
        "json:": "a function, or the name of one",
        "json:dumbs": r"module json has no dumbs; did you mean dumps\?",
        "json:decoder": "decoder of module json is a module",
        "nowhere_at_all.tokens:f": "there is no module nowhere_at_all that is installed or on PYTHONPATH",
        "json.nowhere:f": r"there is no module json\.nowhere",
        "tokens_of_mine:f": "module tokens_of_mine needs not_installed_here, which is not installed",
        "broken_tokens:f": "module broken_tokens fails with ZeroDivisionError",
    }.items():
        with pytest.raises(ConfigError, match=f"^sasl_oauthbearer_token_provider must be .*{why}"):
            ClientConfig.from_user({**settings, OF_PROVIDER: text})


@each_row(
    "given",
    [
        {"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
        {"sasl.mechanism": "AWS_MSK_IAM"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": "com.google.cloud.kafka.GcpLoginCallbackHandler"},
    ],
)
def test_settings_of_java_code_that_gives_tokens_are_answered_with_what_does_it_here(given):
    with pytest.raises(ConfigError, match=r"cannot run here.* Python function gives the tokens: sasl\.oauthbearer\.token\.provider=mod"):
        ClientConfig.from_user({**SASL, **given})


def test_tokens_by_claims_and_from_an_endpoint():
    line = OAUTH + 'unsecuredLoginStringClaim_sub="al" unsecuredLoginListClaim_scope=",a,b" extension_x=y unsecuredLoginLifetimeSeconds=60;'
    found = ClientConfig.from_user({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": line}).sasl_settings()
    assert (found.username, found.claims, found.extensions, found.lifetime_s) == ("al", {"sub": "al", "scope": ["a", "b"]}, {"x": "y"}, 60)
    line = f"kafkashaded.{OAUTH}clientId=me clientSecret='{SECRET}' scope=kafka;"
    handler = f"kafkashaded.{KAFKA}oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    given = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": line, **ENDPOINT, "sasl.login.callback.handler.class": handler}
    found = ClientConfig.from_user(given).sasl_settings()
    assert found.token_endpoint == TokenEndpoint("https://idp/token", "me", SECRET, "kafka")
    assert SECRET not in repr(found)


@each_row(
    "settings",
    [
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN},
        {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": SECRET},
        {"sasl.mechanism": "OAUTHBEARER", **ENDPOINT, **CLIENT},
    ],
)
def test_secrets_are_shown_by_no_repr(settings):
    config = ProducerConfig.from_user({**SASL, **settings})
    for shown in (repr(config), str(config), repr(config.sasl_settings()), repr(config.replace(client_id="x"))):
        assert SECRET not in shown
    assert pickle.loads(pickle.dumps(config)) == config


def test_what_no_repr_holds():
    """What may be a secret, or may hold one."""
    client = ("sasl_password", "sasl_jaas_config", *OAUTH_SECRETS, "ssl_context", "ssl_password", *STORE_SECRETS)
    assert [each.name for each in fields(SecuritySettings) if not each.repr] == list(client)
    assert [each.name for each in fields(SaslSettings) if not each.repr] == ["password", "token_provider", "extensions"]


OAUTH_SECRETS = (
    "sasl_oauthbearer_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_allowed_urls",
    "sasl_oauthbearer_proxy_url",
)
STORE_SECRETS = (
    "ssl_truststore_password",
    "ssl_truststore_certificates",
    "ssl_keystore_password",
    "ssl_keystore_certificate_chain",
    "ssl_keystore_key",
)


BROKER = f'{KAFKA}plain.PlainLoginModule required username="b" password="{SECRET}" user_b="{SECRET}" user_al="x";'
LISTENER = {"security.inter.broker.protocol": "SASL_PLAINTEXT"}


def test_a_brokers_users():
    config = BrokerConfig.from_user({**LISTENER, "sasl.jaas.config": BROKER, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"})
    assert config.plain_users() == ("b", SECRET, {"b": SECRET, "al": "x"})
    assert config.sasl_mechanisms() == ("PLAIN", "SCRAM-SHA-512")
    assert SECRET not in repr(config)


@each_row(
    ("settings", "why"),
    [
        ({"sasl.jaas.config": BROKER}, "has no effect without a listener that is SASL_PLAINTEXT or SASL_SSL"),
        (LISTENER, "needs sasl_jaas_config"),
        ({**LISTENER, "sasl.jaas.config": BROKER.replace("user_b", "user_c")}, "must have user_b with the same password"),
        ({**LISTENER, "sasl.jaas.config": BROKER.replace("plain.Plain", "scram.Scram")}, "is for PlainLoginModule"),
        ({**LISTENER, "sasl.jaas.config": BROKER, "sasl.enabled.mechanisms": "PLAIN,NTLM"}, "not 'NTLM'"),
        ({**LISTENER, "sasl.jaas.config": BROKER, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "must hold PLAIN"),
    ],
)
def test_a_brokers_wrong_settings(settings, why):
    with pytest.raises(ConfigError, match=why) as caught:
        BrokerConfig.from_user(settings)
    assert SECRET not in str(caught.value)


# ---- secrets by reference


def test_secrets_stand_where_they_are_referred_to(monkeypatch, tmp_path):
    monkeypatch.setenv("PW", SECRET)
    file = tmp_path / "pw"
    file.write_text(f"{SECRET}\n\n")
    for value in ("secret://env/PW", f"secret://file{file}", f"secret://file/{file}", SECRET):
        assert resolve("p", value) == SECRET
    line = f'{KAFKA}plain.PlainLoginModule required username="secret://env/PW" password="secret://file{file}";'
    settings = {"sasl.jaas.config": line, "listener.name.x.plain.sasl_jaas_config": line, "a": "secret://env/PW", "b": "1"}
    found = resolve_all(settings)
    assert [parse_jaas(found[name]).options for name in [*settings][:2]] == [{"username": SECRET, "password": SECRET}] * 2
    assert (found["a"], found["b"]) == (SECRET, "1") and resolve_hidden(settings, lambda name: name != "b", "--set") == found
    with pytest.raises(ConfigError, match=r"^--set a: a secret:// reference is for a password, key or JAAS line"):
        resolve_hidden(settings, lambda name: name != "a", "--set")


@each_row(
    ("value", "why"),
    [
        *(
            (f"secret://{each}", "option p: a secret is secret://env/NAME or secret://file/PATH")
            for each in ("env/", "file/", "vault/x", "env")
        ),
        ("secret://env/NOT_THERE", "option p: the environment variable NOT_THERE is not set in this process yet"),
        ("secret://file/not/there", "option p: /not/there cannot be read in this process: No such file"),
        ("secret://file{path}", "option p: .* is not UTF-8 text"),
    ],
)
def test_secrets_that_are_not_there(value, why, tmp_path):
    (tmp_path / "x").write_bytes(b"hush\xff")
    with pytest.raises(ConfigError, match=why) as caught:
        resolve("p", value.format(path=tmp_path / "x"), " yet")
    assert "hush" not in repr(caught.value.__cause__)
