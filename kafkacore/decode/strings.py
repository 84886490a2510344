"""Values that are text: one column, checked to be UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kafkacore.decode.base import BlockDecoder


class StringDecoder(BlockDecoder):
    """Values that are text in UTF-8."""

    def _block(self, values: Any) -> Any:
        return pa.StructArray.from_arrays([values.cast(pa.string())] * len(self.fields), fields=self.fields)

    def _row(self, value: bytes) -> Sequence[Any]:
        return [value.decode("utf-8")] * len(self.fields)
