"""Weights that stay in memory from launch to launch, in a line."""

from __future__ import annotations

from panel.domain.snapshot import KeptWeights
from panel.widgets.words import size


def kept_words(kept: KeptWeights) -> str:
    """Return `weights kept: 31.2G by pid 4711, used by 8 ranks`; `down` lets them go."""
    if not kept.bytes:
        return f"weights will be kept by pid {kept.pid}, none yet"
    if kept.users:
        use = f"used by {kept.users} ranks" if kept.users > 1 else "used by 1 rank"
    else:
        use = "for the next launch" if kept.whole == kept.ranks else "incomplete"
    if kept.leaving:
        use = f"{use}; freed when it stops" if kept.users else "being freed"
    return f"weights kept: {size(kept.bytes)} by pid {kept.pid}, {use}"
