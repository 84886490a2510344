"""A helper for TLS.

Source: aiokafka.helpers, aiokafka 0.14.
"""

from __future__ import annotations

from ssl import Purpose, SSLContext, create_default_context
from typing import Any

__all__ = ["create_ssl_context"]


def create_ssl_context(
    *, cafile: Any = None, capath: Any = None, cadata: Any = None, certfile: Any = None, keyfile: Any = None, password: Any = None
) -> SSLContext:
    """A context for clients that checks the broker's certificate and name.

    Args:
        cafile, capath, cadata: the authorities that are trusted; the system's without any.
        certfile, keyfile, password: this client's own certificate.
    """
    context = create_default_context(Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
