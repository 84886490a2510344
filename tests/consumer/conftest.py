"""What tests of consumers share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["classic", "consumer"])
def group_protocol(request: pytest.FixtureRequest) -> str:
    """The test runs under each of them."""
    return request.param
