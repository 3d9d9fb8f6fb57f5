"""What a waiting command shows on standard error."""

from __future__ import annotations

import io

import pytest

from panel.commands._progress import Progress
from panel.domain.states import LaunchState
from tests.cli.samples import launch, rank


class Screen(io.StringIO):
    """A terminal of one line."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        return self.getvalue().rsplit("\r\x1b[K", 1)[1]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "40")
    return Screen()


def test_one_line_that_changes(screen: Screen) -> None:
    progress = Progress(screen)
    ranks = (rank(0, "weights", done=30, total=40), rank(1, "weights", done=10, total=40))
    view = launch(LaunchState.LAUNCHING, phase="weights", processes=ranks, t=1.0)
    progress.show(view)
    assert screen.line == "#17 weights 25%  1.0s"
    progress.show(launch(LaunchState.LAUNCHING, t=2.0, usual_ready_s=4.0))
    assert screen.line == "#17 capture  2.0s of about 4.0s"
    progress.show(launch(LaunchState.LAUNCHING, phase="x" * 60))
    assert len(screen.line) == 39
    progress.show(launch(LaunchState.STOPPING, 16))
    assert screen.line == "#16 stopping"
    progress.close()
    assert screen.line == ""
    assert "\n" not in screen.getvalue()


def test_a_line_a_phase_in_a_pipe() -> None:
    pipe = io.StringIO()
    progress = Progress(pipe)
    for phase in ("weights", "weights", "capture"):
        progress.show(launch(LaunchState.LAUNCHING, phase=phase, t=2.0))
    progress.close()
    assert pipe.getvalue() == "#17 weights 2.0s\n#17 capture 2.0s\n"
