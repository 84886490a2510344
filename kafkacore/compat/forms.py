"""Forms of settings and patterns that other clients have in common: addresses, tokens, names of topics."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

DEFAULT_PORT = 9092
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
TOKEN_LIFE_MS = 3_600_000
"""How long a token is taken to be valid that does not say so itself."""
_FLAGS = re.compile(r"\(\?[aiLmsux]+\)")


def addresses(servers: Any) -> list[str]:
    """host or host:port, one or several, as host:port."""
    given = servers.split(",") if isinstance(servers, str) else list(servers)
    return [_address(each.strip()) for each in given if each.strip()]


def _address(server: str) -> str:
    rest = server.rpartition("://")[2]
    if rest.startswith("["):
        has_port = "]:" in rest
    elif rest.count(":") > 1:  # a bare IPv6 address
        return f"[{rest}]:{DEFAULT_PORT}"
    else:
        has_port = ":" in rest
    return rest if has_port else f"{rest}:{DEFAULT_PORT}"


def service_name(name: str | None) -> str | None:
    """The Kerberos name of the brokers' service; the default is the engine's, too, which takes it with GSSAPI only."""
    return None if name == "kafka" else name


def at_beginning(pattern: Any) -> re.Pattern[str]:
    """A pattern that matches the beginning of a name, as one that matches all of it, which the engine wants."""
    text, flags = (pattern.pattern, pattern.flags) if isinstance(pattern, re.Pattern) else (pattern, re.compile(pattern).flags)
    named = _FLAGS.match(text)
    return re.compile(f"(?:{text[named.end() :] if named else text})[\\s\\S]*", flags)


def expiry_ms(token: str) -> int:
    """When a token expires, which a JWT says: milliseconds since 1970."""
    try:
        body = token.split(".")[1]
        return int(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]) * 1000
    except (IndexError, KeyError, TypeError, ValueError):
        return int(time.time() * 1000) + TOKEN_LIFE_MS
