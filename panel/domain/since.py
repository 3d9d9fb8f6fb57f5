"""What a launch has that the last good launch of its profile had not."""

from __future__ import annotations

import msgspec

from panel.domain.plan import Change


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """Differences from the newest earlier launch that got ready and did not fail."""

    launch: int
    """Its number."""
    flags: tuple[Change, ...] = ()
    versions: tuple[Change, ...] = ()
    env: tuple[Change, ...] = ()
