"""A node of its own for each test: a home, a free port, and proof that nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.terminal import Terminal

MOEPANEL = [sys.executable, "-m", "panel.cli"]


@dataclass(frozen=True)
class Node:
    """One `MOEPANEL_HOME` and the commands run in it."""

    home: Path
    port: int

    @property
    def env(self) -> dict[str, str]:
        """Environment of its commands."""
        return {"MOEPANEL_HOME": str(self.home)}

    @property
    def url(self) -> str:
        """Address of the engine's API."""
        return f"http://127.0.0.1:{self.port}"

    def run(self, *words: str, seconds: float = 90.0) -> subprocess.CompletedProcess[str]:
        """Run `moepanel WORDS…`."""
        return subprocess.run(
            [*MOEPANEL, *words],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def ok(self, *words: str, seconds: float = 90.0) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self.run(*words, seconds=seconds)
        assert done.returncode == 0, f"moepanel {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def json(self, *words: str, seconds: float = 90.0) -> Any:
        """Run a command with `--json`; return the value it prints."""
        return json.loads(self.ok(*words, "--json", seconds=seconds))

    def terminal(self, columns: int = 80, rows: int = 24) -> Terminal:
        """Open the panel in a terminal."""
        return Terminal(MOEPANEL, self.env, columns, rows)

    def complete(self, prompt: str, tokens: int = 32) -> str:
        """Return the engine's greedy continuation."""
        return "".join(token for token, _ in self.greedy(prompt, tokens))

    def greedy(self, prompt: str, tokens: int = 32) -> list[tuple[str, float]]:
        """Return the greedy continuation's tokens, each with its lead over the second best."""
        body = {
            "model": "moe-tiny",
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "logprobs": 2,
        }
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=60)
        answer.raise_for_status()
        found = answer.json()["choices"][0]["logprobs"]
        leads = [max(top.values()) - min(top.values()) for top in found["top_logprobs"]]
        return list(zip(found["tokens"], leads, strict=True))

    def processes(self) -> list[str]:
        """Command lines of all processes that belong to this home, of whatever kind."""
        mark = f"MOEPANEL_HOME={self.home}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


def same_greedy_text(one: list[tuple[str, float]], other: list[tuple[str, float]]) -> bool:
    """Whether two greedy texts are equal up to the first token that was nearly a tie.

    The sums of a matrix product depend on the number of its rows in the last bits, so that another
    split or a verify step may break a tie otherwise.
    """
    firm = next((at for at, (_, lead) in enumerate(one) if lead < 1e-3), len(one))
    assert firm > len(one) // 2, "nothing to compare: the reference is all near ties"
    return [token for token, _ in one[:firm]] == [token for token, _ in other[:firm]]


@contextmanager
def fresh_node(home: Path, port: int) -> Iterator[Node]:
    """A node whose default profile listens on a free port; leaves no process behind."""
    node = Node(home, port)
    profiles = node.home / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "tiny.toml").write_text(
        f'engine = "builtin"\n\n[flags]\nmodel-path = "moe-tiny"\ntp-size = 8\nport = {port}\n'
    )
    yield node
    node.run("shutdown", "--now")
    assert node.processes() == []


@pytest.fixture
def node(tmp_path: Path, free_port: int) -> Iterator[Node]:
    """A node of this test's own."""
    with fresh_node(tmp_path / "home", free_port) as node:
        yield node
