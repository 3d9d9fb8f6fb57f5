"""The ledger in the heartbeat file: who came to how many meetings, readable from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from panel.server.heartbeat import HeartbeatFile
from panel.server.phases import Phase
from panel.server.roster import PeerLostError, Roster


def test_meetings_are_seen_from_outside_and_beats_leave_them_alone(tmp_path: Path) -> None:
    inside = HeartbeatFile(tmp_path / "beats", 3, create=True)
    roster = Roster(memoryview(bytearray(Roster.size(3))), 3, 1.0, inside.ledger())
    roster.join(1, 4711, step_of=lambda: 0, interrupted=lambda: None)
    roster.arrive()
    roster.arrive()
    inside.beat(1, Phase.SERVING, 7)

    outside = HeartbeatFile(tmp_path / "beats", 3)
    assert [beat.meetings for beat in outside.read_all()] == [0, 2, 0]
    assert outside.read(1).step == 7
    outside.close()


def test_only_who_waits_for_long_counts_as_waiting(tmp_path: Path) -> None:
    file = HeartbeatFile(tmp_path / "beats", 2, create=True)
    roster = Roster(memoryview(bytearray(Roster.size(2))), 2, 60.0, file.ledger())
    roster.join(0, 4711, step_of=lambda: 0, interrupted=lambda: None)
    seen: list[bool] = []

    def acquire(_block: bool, _seconds: float) -> bool:
        seen.append(file.read(0).waiting)
        return len(seen) == 3

    roster.wait(acquire)
    assert seen == [False, True, True]
    assert not file.read(0).waiting


def test_a_device_that_stands_still_is_not_blamed_on_the_rank_that_waits(tmp_path: Path) -> None:
    file = HeartbeatFile(tmp_path / "beats", 1, create=True)
    roster = Roster(memoryview(bytearray(Roster.size(1))), 1, 0.3, file.ledger())
    roster.join(0, 4711, step_of=lambda: 7, interrupted=lambda: None)
    seen: list[bool] = []
    roster.watch(lambda: seen.append(True) or len(seen) > 2)
    with pytest.raises(PeerLostError, match="the GPUs have not ended step 7"):
        roster.watch(lambda: False)
