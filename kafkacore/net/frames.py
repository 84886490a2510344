"""Cutting a byte stream into frames.

Frame layout (both directions)::

    int32 size, big-endian | size bytes of payload

Rules:

1. A size is checked before anything is allocated from it: negative or above the limit is `CorruptDataError`. A large frame within the
   limit starts with a bounded buffer that doubles only as bytes really arrive.
   What all readers of a server hold together can be bounded (`ReceiveMemory`): a frame that begins then waits.
   [test_a_bad_size_is_refused_before_anything_is_allocated, test_a_large_frame_is_given_memory_in_steps,
   test_a_frame_that_finds_no_memory_costs_only_its_connection]
2. `FrameReader` never asks for bytes past the frame it is filling once that frame has its own buffer, so the payload of a large frame
   goes from the kernel straight to its final place. Small frames are read, size and body, by one call into a staging buffer.
   [test_any_cut_gives_the_same_frames, test_a_second_frame_read_along_is_known_without_more_bytes]

`FrameReader` is compiled (native/channel.pxi). UNLIMITED is the largest frame the size field can name; it is what a client accepts.

Source: Kafka's NetworkReceive.
"""

from __future__ import annotations

from kafkacore._codec import FIRST_STEP_BYTES, STAGING_BYTES, UNLIMITED, FrameReader, ReceiveMemory

__all__ = ["FIRST_STEP_BYTES", "STAGING_BYTES", "UNLIMITED", "FrameReader", "ReceiveMemory"]
