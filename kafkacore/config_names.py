"""Names that are no settings here: what may be meant by them."""

from __future__ import annotations

import difflib
from collections.abc import Collection

ELSEWHERE = {
    "api_version_auto_timeout_ms": "request_timeout_ms",
    "auto_commit_enable": "enable_auto_commit",
    "batch_num_messages": "batch_size",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "message_send_max_retries": "retries",
    "message_timeout_ms": "delivery_timeout_ms",
    "metadata_broker_list": "bootstrap_servers",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_messages": "buffer_memory",
    "queue_buffering_max_ms": "linger_ms",
    "request_required_acks": "acks",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "socket_timeout_ms": "request_timeout_ms",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
}
"""Names that other clients have for a setting."""

CALLS = {
    "api_version": "leave it out, each broker is asked for its versions",
    "consumer_timeout_ms": "poll(timeout=...) says how long to wait for records, in seconds",
    "default_topic_config": "give its settings beside the others, they are the client's here",
    "enable_partition_eof": "compare position() with end_offsets(), or read up to an offset with read_range()",
    "statistics_interval_ms": "ask metrics(), at any time",
}
"""What other clients have a setting for, and these a call."""


RESETS = {"beginning": "earliest", "smallest": "earliest", "end": "latest", "largest": "latest", "error": "none"}
"""Values of auto_offset_reset that other clients have."""


def hint(name: str, known: Collection[str], *, dotted: bool) -> str:
    """What may be meant by a name that is not known: the setting or the call that stands for another client's, else the nearest name.

    Args:
        name: what was given, with underscores.
        known: the names of all settings.
        dotted: how the user writes names.

    Returns:
        The end of a sentence; "" where nothing is near.
    """
    if name in CALLS:
        return f": {CALLS[name]}"
    meant = ELSEWHERE.get(name)
    if meant not in known:
        meant = next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.6)), None)
    if meant is None:
        return ""
    return f"; did you mean {meant.replace('_', '.') if dotted else meant}?"
