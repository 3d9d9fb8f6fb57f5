"""The group itself: the panel without a command, and the engine alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from click.testing import Result

from panel.domain.errors import NotFoundError

Run = Callable[..., Result]


def replace(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_without_a_command_the_panel_opens(moepanel: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def run(**options: bool) -> int:
        opened.append(options)
        return 7

    replace(monkeypatch, "panel.app", run=run)
    assert moepanel().exit_code == 7
    moepanel("--no-mouse", "--ascii")
    assert opened == [
        {"mouse": True, "ascii_signs": False}, {"mouse": False, "ascii_signs": True},
    ]  # fmt: skip


def test_a_panel_that_cannot_open_says_why(moepanel: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**_: bool) -> int:
        raise NotFoundError("no supervisor starts", "see supervisor.log")

    replace(monkeypatch, "panel.app", run=run)
    done = moepanel()
    assert (done.exit_code, done.stderr) == (
        3, "moepanel: no supervisor starts\n  see supervisor.log\n",
    )  # fmt: skip


def test_serve_hands_every_flag_to_the_engine(
    moepanel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def serve(flags: list[str]) -> int:
        seen.append(flags)
        return 10

    replace(monkeypatch, "panel.server.standalone", main=serve)
    flags = ["--tp-size", "2", "--json", "--help", "-x", "--model-path=m"]
    assert moepanel("serve", *flags).exit_code == 10
    assert seen == [flags]


def test_serve_without_the_engine(moepanel: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panel.engines.builtin._NEEDED", ("no_such_module",))
    done = moepanel("serve")
    assert done.exit_code == 1
    assert "pip install 'moepanel[engine]'" in done.stderr
