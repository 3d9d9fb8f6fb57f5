"""`docs/commands.md` names every field that JSON prints."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from panel.cli import COMMANDS
from panel.commands._loglines import FoldedLine, LogLine
from panel.commands._outcome import Outcome, RankOutcome
from panel.commands.diff import Difference
from panel.commands.down import Ended
from panel.domain import plan, snapshot, verdict, wire
from panel.domain.flags import Hardware, Installation, Profile, Request
from panel.probes.check import Check

DOC = (Path(__file__).parents[2] / "docs/commands.md").read_text()


@pytest.mark.parametrize(
    "shape",
    [
        Outcome, RankOutcome, Ended, LogLine, FoldedLine, Difference, Check, Request, Profile,
        wire.Accepted, wire.LaunchRecord, verdict.Verdict, verdict.Evidence, verdict.Advice,
        plan.Plan, plan.Resolved, plan.Memory, plan.Problem, plan.Change,
        plan.Override, plan.Fit, plan.Capability, Installation, Hardware,
        snapshot.Snapshot, snapshot.Supervisor, snapshot.Host, snapshot.LaunchView,
        snapshot.ProcessView, snapshot.ProcessExit, snapshot.Metrics, snapshot.Speculation,
        snapshot.KeptWeights,
    ],
)  # fmt: skip
def test_every_field_is_documented(shape: type[msgspec.Struct]) -> None:
    assert set(shape.__struct_fields__) <= set(re.findall(r'"(\w+)"', DOC))


def test_every_command_is_documented() -> None:
    assert all(re.search(rf"`{name}\b", DOC) for name in COMMANDS)
