"""What a peer can make grow, and how far: one number for each, in the unit that its name ends with.

A peer sends bytes: a broker, a program that writes to a topic, a schema registry, a token endpoint. A bound that a setting can move is that
setting's default. SECURITY.md has the table: what grows, its bound, the setting, the test that holds it. Lengths of the protocol need no
number: nothing is sized by one before the bytes are there.
"""

from typing import Final

# -- records (native/batch_read.pxi, native/fetch_queue.pxi)

UNPACKED_BYTES: Final = 134_217_728
"""Of one compressed batch; and of one call that reads, which opens no further batch beyond it. Setting: max_decompressed_bytes."""
CONTROL_BATCH_BYTES: Final = 65_536
"""Of a compressed batch that holds a transaction's marker, which is some 20 bytes."""
KEPT_OPEN_BYTES: Final = 1 << 20
"""Of a batch that stays unpacked while its partition is paused; a larger one is unpacked again."""
ROWS_PER_CALL: Final = 4_194_304
"""Of one call that hands out columns: a record of 7 bytes has a row of 36."""

# -- frames (net/)

SASL_ANSWER_BYTES: Final = 1 << 20
"""Of one answer of a broker that has not proved who it is."""
SCRAM_ITERATIONS: Final = 100_000
"""Of the hash that a broker makes a client compute, once per salt: 0.1 s (SHA-256) or 0.25 s (SHA-512). Kafka stores at most 16384."""

# -- groups (consumer/group/)

ASSIGNED_PARTITIONS: Final = 200_000
"""Of one member's assignment: what is advised for a whole cluster with ZooKeeper, and seconds of a poll."""

# -- schemas (decode/)

SCHEMA_FIELDS: Final = 10_000
"""Of the columns of one schema, nested ones counted, with names replaced by what they stand for."""
SCHEMA_TYPES: Final = 100_000
"""Of one Avro schema that values are read with, columns or not, with names replaced by what they stand for."""
SCHEMA_DEPTH: Final = 64
"""Of columns within columns."""
SCHEMA_REFERENCES: Final = 1_000
"""Of one schema to others, those of its references included."""
SCHEMA_SECONDS: Final = 60.0
"""For all references of one schema."""
SCHEMAS_KEPT: Final = 10_000
"""Of one registry, in memory; so many ids that it does not know. Beyond it all are forgotten, and asked for again."""
REGISTRY_KEPT_CHARACTERS: Final = 64 << 20
"""Of the texts of these schemas together; and of those that a decoder has made readers of."""
MESSAGE_INDEXES: Final = 64
"""Before a Protobuf value of a registry."""

# -- HTTP (http_client.py)

HTTP_SECONDS: Final = 10.0
"""Of one question: resolving the name, connecting, every byte. Setting of the registry: timeout_s."""
REGISTRY_ANSWER_BYTES: Final = 16 << 20
"""Of one answer of a schema registry, after decompression."""
TOKEN_ANSWER_BYTES: Final = 1 << 20
"""Of one answer of a token endpoint, after decompression."""
HTTP_UNRETURNED: Final = 16
"""Of a process: questions whose time is up and whose threads still stand, in the resolver of names. No further one is asked beside them."""

# -- calls that hang

TOKENS_UNANSWERED: Final = 3
"""Of a client: calls for a token that have not returned after their time. No further one is made beside them."""
TICKETS_ASKED: Final = 8
"""Of a client: threads that ask a KDC."""
