"""Who clients are by their certificates: the principals of connections that came in by listeners with TLS.

Source: org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder, its part for TLS.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkacore.config_authorizer import ANONYMOUS
from kafkacore.errors import SslAuthenticationFailed
from kafkacore.net.channel import ConnectionId
from kafkacore.net.selector import Selector
from kafkacore.net.transport import TlsTransport
from kafkacore.principals import MappingRules, subject_of
from kafkacore.printable import printable


class CertifiedUsers:
    """Principals by connection; each certificate is read with the first request."""

    def __init__(self, rules: Mapping[str, MappingRules]) -> None:
        """Args:
        rules: how certificates name users, by listener.
        """
        self._rules = rules
        self._known: dict[ConnectionId, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def principal(self, connection: ConnectionId, listener: str, selector: Selector | None) -> str:
        """The user that a connection's certificate names; ANONYMOUS without one.

        Args:
            connection: of the selector.
            listener: the name of the listener that it came in by.
            selector: the server's.

        Raises:
            SslAuthenticationFailed: no rule makes a user of the certificate's name.
            CorruptDataError: the certificate cannot be read.
        """
        known = self._known.get(connection)
        if known is not None:
            return known
        rules = self._rules.get(listener)
        channel = None if selector is None else selector.channel(connection)
        transport = None if channel is None else channel.transport
        shown = transport.ssl_object.getpeercert(binary_form=True) if isinstance(transport, TlsTransport) else None
        principal = ANONYMOUS
        if rules is not None and shown:
            subject = subject_of(shown)
            user = rules.name(subject)
            if user is None:
                raise SslAuthenticationFailed(f"no rule of ssl.principal.mapping.rules fits {printable(subject)}")
            principal = f"User:{user}"
        self._known[connection] = principal
        return principal

    def forget(self, connection: ConnectionId) -> None:
        """The connection is closed."""
        self._known.pop(connection, None)
