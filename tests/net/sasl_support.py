"""Brokers that authenticate clients, for tests of connections."""

from kafkacore import protocol
from kafkacore.errors import SaslAuthentication
from kafkacore.net.client import NetworkClient
from kafkacore.net.sasl import PlainServer, ScramServer, salted_password, scram_credential
from tests.net.net_support import Cluster

PASSWORD = "correct horse"
CREDENTIAL = scram_credential("SCRAM-SHA-512", salted_password("SCRAM-SHA-512", PASSWORD, b"salt", 4096), b"salt", 4096)


class SaslBroker:
    """Answers what a client asks while it authenticates."""

    def __init__(self, peer, *, authenticate=(0, 2), handshake=(0, 1), lifetime_ms=0, password=PASSWORD, code=0, machine=None):
        self.peer = peer
        self.ranges = {17: handshake, 36: authenticate}
        self.lifetime_ms = lifetime_ms
        self.password = password
        self.code = code
        self.machine = machine
        self.asked = []

    def serve(self):
        """Answers what has come; the number of requests."""
        new = self.peer.read()
        for header, request in new:
            self.answer(header, request)
        return len(new)

    def answer(self, header, request):
        key = header.request_api_key
        self.asked.append((key, header.request_api_version))
        if key == 18:
            ranges = [(each, *known) for each, known in self.ranges.items() if known]
            keys = [protocol.ApiVersion(api_key=each, min_version=low, max_version=high) for each, low, high in ranges]
            self.peer.answer(header, protocol.ApiVersionsResponse(error_code=0, api_keys=keys))
        elif key == 17:
            self.machine = self.machine or (
                PlainServer(lambda user, word: word == self.password)
                if request.mechanism == "PLAIN"
                else ScramServer(request.mechanism, {"alice": CREDENTIAL}.get)
            )
            self.peer.answer(header, protocol.SaslHandshakeResponse(error_code=self.code, mechanisms=["PLAIN", "GSSAPI"]))
        else:
            try:
                answer = protocol.SaslAuthenticateResponse(
                    error_code=0, auth_bytes=self.machine.step(bytes(request.auth_bytes)), session_lifetime_ms=self.lifetime_ms
                )
            except SaslAuthentication as error:
                answer = protocol.SaslAuthenticateResponse(error_code=58, error_message=error.message, auth_bytes=b"")
            self.peer.answer(header, answer)


class SaslCluster(Cluster):
    """A cluster whose connections begin with SASL; a subclass gives the authenticator."""

    lifetime_ms = 0

    def make_client(self) -> NetworkClient:
        self.brokers: dict[int, SaslBroker] = {}
        return super().make_client()

    def sasl_broker(self, peer) -> SaslBroker:
        """The broker's end of a connection."""
        broker = self.brokers.setdefault(id(peer), SaslBroker(peer))
        broker.lifetime_ms = self.lifetime_ms
        return broker

    def machine(self, peer):
        """The server's side of a new dialogue; None leaves the choice to the broker."""

    def note_request(self, peer, key: int) -> None:
        """A request has come."""

    def serve(self) -> bool:
        any_requests = False
        for peer in self.peers:
            broker = self.sasl_broker(peer)
            for header, request in peer.read():
                any_requests = True
                key = header.request_api_key
                self.note_request(peer, key)
                if key in (17, 36) or (key == 18 and header.request_api_version == 0):
                    if key == 17:
                        broker.machine = self.machine(peer)
                    broker.answer(header, request)
                elif key == 18:
                    peer.answer(header, self.api_versions())
                elif key == 3:
                    peer.answer(header, self.metadata_response([topic.name for topic in request.topics or ()]))
        return any_requests
