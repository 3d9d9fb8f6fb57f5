"""`moepanel plan` on a machine that has neither engine nor weights nor GPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from panel.cli import main
from panel.domain.plan import Memory, Plan
from panel.widgets.memory_bar import letters, memory_bar

STORY = ("--set", "ep-size=8", "--set", "moe-a2a-backend=flashinfer")


def run(home: Path, *words: str) -> Result:
    command = ["plan", "--profile", "kimi-k2.5-8x96-sglang", *words]
    return CliRunner().invoke(main, command, env={"MOEPANEL_HOME": str(home)})


def test_figures_and_refusal_as_json(tmp_path: Path) -> None:
    result = run(tmp_path, *STORY, "--json")
    plan = msgspec.json.decode(result.stdout, type=Plan)

    assert result.exit_code == 1
    assert plan.fit is not None
    assert plan.fit.estimated
    assert plan.chips[:2] == ("tp8", "ep8")
    assert any("expert-location hook" in each.text for each in plan.problems)


def test_text_shows_table_bar_changes_and_paths(tmp_path: Path) -> None:
    text = run(tmp_path, *STORY).stdout

    assert text.startswith("from the profile ")
    assert text.splitlines()[-1] == "refused: it cannot work for what is marked X"
    assert "memory of each rank, predicted, reckoned from the config alone" in text
    assert "whole on each rank: a2a flashinfer" in text
    assert "engine   SGLANG_MOE_NVFP4_DISPATCH: not set → true" in text
    assert "path     FlashInfer all-reduce fusion: silently off" in text
    bar = next(line for line in text.splitlines() if line.startswith("  ["))
    assert len(bar) == 2 + 74
    assert bar.count("R") > 40


def test_a_sound_plan_says_so_in_its_last_line(tmp_path: Path) -> None:
    assert run(tmp_path, "--profile", "tiny").stdout.splitlines()[-1].startswith("ok: it can be")


LINES = [
    Memory(category=name, predicted=size)
    for name, size in (("attention", 3), ("big", 2), ("cache", 1), ("all", 2))
]


@pytest.mark.parametrize(
    ("total", "width", "bar"),
    [(10, 10, "AAABBCLL.."), (8, 8, "AAABBCLL"), (6, 6, "AAABB!"), (80, 8, "C.......")],
)
def test_bar(total: int, width: int, bar: str) -> None:
    assert letters(LINES) == ("A", "B", "C", "L")
    assert memory_bar(LINES, total, width) == bar
