"""Where a client's secret may be sent for a token, and what of it shows."""

import logging
import ssl
import threading

import pytest
import trustme

from kafkacore.client_credentials import ClientCredentials
from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.config_security import TokenEndpoint
from kafkacore.errors import AuthenticationFailedError, ConfigError
from tests.kit.late import late_or_skip
from tests.kit.rows import each_row
from tests.net.token_endpoint import Endpoint, token_endpoint

httpx = late_or_skip("httpx")
OAUTH = {
    "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.credentials.client.id": "me", "sasl.oauthbearer.client.credentials.client.secret": "hush",
}  # fmt: skip
TOKEN = {"access_token": "abc", "expires_in": 60}


def endpoint(url, **settings):
    return ClientConfig.from_user({**OAUTH, "sasl.oauthbearer.token.endpoint.url": url, **settings}).sasl_settings().token_endpoint


@each_row(
    ("url", "why"),
    [
        ("http://idp/token?api_key=hunter2", "must be https"),
        ("http://127.0.0.1.evil.example/", "must be https"),
        ("http://10.0.0.1/", "must be https"),
        ("file:///etc/passwd", "must be of the form"),
        ("ftp://idp/hunter2", "must be of the form"),
        ("https:///token", "must be of the form"),
        ("https://idp:hunter2/", "must be of the form"),
        ("https://[::1", "must be of the form"),
        ("https://user:hunter2@idp/token", "holds a name or password"),
        ("http://hunter2@localhost/token", "holds a name or password"),
    ],
)
def test_a_secret_goes_to_https_or_stays_here(url, why):
    with pytest.raises(ConfigError, match=why) as caught:
        endpoint(url)
    assert "hunter2" not in str(caught.value)


@each_row("url", ["https://idp/token", "http://localhost:8080/t", "http://127.1.2.3/t", "http://[::1]:1/t", "HTTPS://IDP/"])
def test_urls_that_may_be_used(url):
    assert endpoint(url).url == url


def test_only_allowed_urls_are_used_where_they_are_named():
    allowed = {"sasl.oauthbearer.allowed.urls": "http://idp/token,https://other/token"}
    assert endpoint("http://idp/token", **allowed).url == "http://idp/token"
    for url in ("https://idp/token", "http://localhost/token", "http://idp/token/"):
        with pytest.raises(ConfigError, match="not among sasl_oauthbearer_allowed_urls"):
            endpoint(url, **allowed)


@each_row(
    "useless",
    [{"sasl.oauthbearer.allowed.urls": "https://x/"}, {"sasl.oauthbearer.proxy.url": "http://x/"}, {"https.ca.location": "ca.pem"}],
)
def test_settings_of_an_endpoint_go_with_one(useless):
    given = {name: value for name, value in OAUTH.items() if "client" not in name}
    with pytest.raises(ConfigError, match="has no effect"):
        ClientConfig.from_user({**given, "sasl.oauthbearer.token.provider": lambda: ("t", 1), **useless})


def test_the_query_of_a_url_shows_nowhere(caplog):
    caplog.set_level(logging.DEBUG)
    config = ClientConfig.from_user(
        {
            **OAUTH,
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token?key=hunter2",
            "sasl.oauthbearer.proxy.url": "http://u:hunter2@p:1",
        }
    )
    shown = [repr(config), repr(config.sasl_settings()), str(config.sasl_settings().token_endpoint)]
    with token_endpoint(401, {"error": "no"}) as server:
        with pytest.raises(AuthenticationFailedError) as caught:
            ClientCredentials(TokenEndpoint(f"{server.url}?key=hunter2", "me", "hush", None), ManualClock())()
        shown += [str(caught.value), caplog.text]
        assert server.asked
    assert not [each for each in shown if "hunter2" in each]
    assert "/token gives me no token" in str(caught.value)
    logging.getLogger("httpx").info("heard again")
    assert "heard again" in caplog.text


@pytest.fixture
def private(tmp_path):
    """An endpoint with a certificate of an authority that nobody else knows, and that authority's file."""
    authority = trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Endpoint((200, TOKEN)) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server, server.url.replace("http:", "https:"), ca
        server.shutdown()
        thread.join()


def test_a_private_authority(private):
    server, url, ca = private
    with pytest.raises(AuthenticationFailedError, match="cannot be asked"):
        ClientCredentials(endpoint(url), ManualClock())()
    assert not server.asked
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    pem = ca.read_text().replace("\n", "\\n")
    for settings in (
        {"https.ca.location": str(ca)},
        {"sasl.jaas.config": f'{module} required ssl.truststore.location="{ca}";'},
        {"sasl.jaas.config": f'{module} required ssl.truststore.certificates="{pem}";'},
    ):
        assert ClientCredentials(endpoint(url, **settings), ManualClock(0, 0))()[0] == "abc"


def test_an_authority_that_cannot_be_read_is_an_error_of_the_settings(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        ClientCredentials(endpoint("https://idp/", **{"https.ca.location": str(tmp_path / "nowhere.pem")}), ManualClock())


def test_a_proxy():
    with token_endpoint(403, b"") as proxy:  # it gets what is for another host
        found = endpoint("http://127.0.0.1:1/token", **{"sasl.oauthbearer.proxy.url": proxy.url.removesuffix("/token")})
        with pytest.raises(AuthenticationFailedError, match=r"127\.0\.0\.1:1/token gives me no token: HTTP 403"):
            ClientCredentials(found, ManualClock())()
    assert len(proxy.asked) == 1
    with pytest.raises(ConfigError, match="sasl_oauthbearer_proxy_url"):
        ClientCredentials(endpoint("https://idp/", **{"sasl.oauthbearer.proxy.url": "gopher://hunter2"}), ManualClock())
