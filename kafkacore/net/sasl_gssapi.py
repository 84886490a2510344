"""SASL's GSSAPI as pure state machines, client and server. The tokens come from a security context (net/kerberos.py).

    client                                        server
    context token (AP-REQ)                    ->
                                              <-  context token (AP-REP), where the client wants the broker proved
    empty                                     ->
                                              <-  wrapped: which security layers (1 byte), most bytes of a message (3)
    wrapped: layer 1 (none), 0, who           ->
                                              <-  empty

Rules:

1. There is no layer of SASL's own below Kafka's frames: layer 1, "no security layer", is the only one. TLS does that work.
   [test_what_is_chosen_is_no_layer_and_the_clients_own_name, test_offers_that_a_client_refuses, test_choices_that_a_broker_refuses]
2. A client names its own principal as the authorization id, as Java's does. A server does not look at it, as Kafka's does not (kafka-python
   sends the broker's name there): the user is the ticket's principal alone. [test_what_is_chosen_is_no_layer_and_the_clients_own_name,
   test_the_user_is_whom_the_ticket_names_whatever_the_client_says]
3. A context that is not established, or a message that its key did not wrap, ends the dialogue. [test_changed_bytes_let_nobody_in]

Source: RFC 4752; RFC 2743; org.apache.kafka.common.security.authenticator: SaslClientAuthenticator, SaslServerCallbackHandler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkacore.errors import SaslAuthentication

__all__ = ["GssContext", "GssapiClient", "GssapiServer"]

MECHANISM = "GSSAPI"
NO_LAYER = 1
_OFFER = bytes((NO_LAYER, 0, 0, 0))
_MAX_CHOICE_BYTES = 4 + 1_024


class GssContext(Protocol):
    """One side's security context. Each method raises SaslAuthentication."""

    @property
    def complete(self) -> bool:
        """Whether it is established."""

    @property
    def peer(self) -> str:
        """The principal of the other side, once established."""

    def step(self, token: bytes) -> bytes | None:
        """Takes the other side's token and gives the next one, if there is one."""

    def wrap(self, message: bytes) -> bytes:
        """Protects a message against changes."""

    def unwrap(self, message: bytes) -> bytes:
        """The message that the other side wrapped."""


class GssapiClient:
    """Proves a Kerberos principal by a ticket, and has the broker prove that it is the service.

    Args:
        context: has given its first token.
        first: that token.
        user: the principal that it proves.
        service: the principal that the ticket is for, for messages.
        on_refusal: called when the broker refuses the ticket.
    """

    mechanism = MECHANISM

    def __init__(
        self, context: GssContext, first: bytes, user: str, service: str, on_refusal: Callable[[], None] = lambda: None
    ) -> None:
        self.user = user
        self.refusal = f"the ticket was for {service}"
        self.on_refusal = on_refusal
        self.done = False
        self.context = context
        self._first: bytes | None = first
        self._chosen = False

    def step(self, challenge: bytes | None) -> bytes | None:
        first, self._first = self._first, None
        if first is not None and challenge is None:
            return first
        if first is not None or challenge is None or self.done:
            raise SaslAuthentication("the broker goes on with GSSAPI out of its order")
        if not self.context.complete:
            token = self.context.step(challenge)
            if not token and not self.context.complete:
                raise SaslAuthentication("the Kerberos dialogue ended before both sides were proved")
            return token or b""
        if not self._chosen:
            self._chosen = True
            return self._choice(challenge)
        if challenge:
            raise SaslAuthentication(f"the broker sent a challenge of {len(challenge)} bytes where GSSAPI has none")
        self.done = True
        return None

    def _choice(self, challenge: bytes) -> bytes:
        offer = self.context.unwrap(challenge)
        if len(offer) != len(_OFFER):
            raise SaslAuthentication(f"the broker offers its security layers in {len(offer)} bytes instead of {len(_OFFER)}")
        if not offer[0] & NO_LAYER:
            raise SaslAuthentication("the broker wants a security layer of SASL's own, which Kafka does not have: TLS protects connections")
        return self.context.wrap(_OFFER + self.user.encode())


class GssapiServer:
    """Checks a ticket for this broker.

    Args:
        context: fresh.
        user_of: gives the user's name for a principal; raises SaslAuthentication where the principal has none.
    """

    mechanism = MECHANISM

    def __init__(self, context: GssContext, user_of: Callable[[str], str]) -> None:
        self.user = self.claimed = ""
        self.done = False
        self.context = context
        self._user_of = user_of
        self._user = ""
        self._offered = False

    def step(self, token: bytes) -> bytes:
        if self.done:
            raise SaslAuthentication("the client goes on with GSSAPI after its end")
        if not self.context.complete:
            answer = self.context.step(token)
            if answer:
                return answer
            return self._offer()
        if not self._offered:
            if token:
                raise SaslAuthentication(f"the client sent {len(token)} bytes where GSSAPI has none")
            return self._offer()
        self._check(token)
        self.user = self._user
        self.done = True
        return b""

    def _offer(self) -> bytes:
        if not self.context.complete:
            raise SaslAuthentication("the Kerberos dialogue ended before the client was proved")
        self.claimed = self.context.peer
        self._user = self._user_of(self.claimed)
        self._offered = True
        return self.context.wrap(_OFFER)

    def _check(self, token: bytes) -> None:
        choice = self.context.unwrap(token)
        if not len(_OFFER) <= len(choice) <= _MAX_CHOICE_BYTES:
            raise SaslAuthentication(f"the client chooses a security layer in {len(choice)} bytes")
        if choice[0] != NO_LAYER:
            raise SaslAuthentication(f"the client chooses security layer {choice[0]}: only {NO_LAYER} (none) was offered")
