"""Around the application: how often it paints, what it says when it is left."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from panel.app import farewell, paints_a_second, run
from panel.domain.errors import UsageError
from panel.domain.states import LaunchState
from tests.screens.stage import launch


def test_a_terminal_over_ssh_is_painted_less_often() -> None:
    assert paints_a_second({}) == 10
    assert paints_a_second({"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22"}) == 4


def test_leaving_says_that_the_engine_keeps_running() -> None:
    said = farewell(launch(LaunchState.SERVING))
    assert "#17 tiny" in said
    assert "keeps running" in said
    assert "http://127.0.0.1:30000" in said


def test_leaving_a_node_without_an_engine_says_so() -> None:
    for last in (None, launch(LaunchState.STOPPED), launch(LaunchState.CRASHED)):
        assert "no engine is running" in farewell(last)


def test_leaving_an_engine_that_is_ending_does_not_say_that_it_keeps_running() -> None:
    for last in (launch(LaunchState.STOPPING), launch(LaunchState.FAILING)):
        assert "was ending" in farewell(last)


def test_without_a_terminal_the_panel_says_so_and_does_not_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOEPANEL_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(UsageError, match="needs a terminal"):
        run()
    assert not list(tmp_path.iterdir())
