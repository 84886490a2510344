# cython: nonecheck=True, auto_pickle=False
"""Kafka's bytes: the compiled half of codec, records, protocol and producer.

One extension, split into rooms by include so that every cdef call stays direct. Order matters: a room uses
only rooms above it. Python reaches these names through kafkacore.codec, .records, .protocol and .producer.
"""

cimport cython

include "native/cursor.pxi"
include "native/checksum.pxi"
include "native/varints.pxi"
include "native/buffers.pxi"
include "native/fileslice.pxi"
include "native/sock.pxi"
include "native/filewrite.pxi"
include "native/epoll.pxi"
include "native/columns.pxi"
include "native/json_columns.pxi"
include "native/batch_build.pxi"
include "native/record.pxi"
include "native/header_column.pxi"
include "native/record_columns.pxi"
include "native/batch_read.pxi"
include "native/legacy.pxi"
include "native/log.pxi"
include "native/plan.pxi"
include "native/plan_decode.pxi"
include "native/plan_encode.pxi"
include "native/partitions.pxi"
include "native/measure.pxi"
include "native/delivery.pxi"
include "native/producer_batch.pxi"
include "native/many.pxi"
include "native/append.pxi"
include "native/send_call.pxi"
include "native/accumulate.pxi"
include "native/partitioner.pxi"
include "native/channel.pxi"
include "native/selector.pxi"
include "native/client.pxi"
include "native/sender.pxi"
include "native/seal.pxi"
