"""An async test that hangs is cancelled."""

from __future__ import annotations

import anyio
import pytest

TEST_SECONDS = 0.05


@pytest.mark.xfail(raises=TimeoutError, strict=True)
async def test_a_test_that_hangs_is_cancelled() -> None:
    await anyio.sleep_forever()
