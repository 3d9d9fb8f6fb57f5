"""The terminal that the panel would be drawn on."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NamedTuple

from panel.probes.check import Check


class Terminal(NamedTuple):
    """What the environment says of it."""

    tty: bool
    term: str
    colorterm: str
    encoding: str
    columns: int
    lines: int


def read_terminal() -> Terminal:
    """Return what this process knows of its terminal."""
    columns, lines = shutil.get_terminal_size()
    return Terminal(
        tty=sys.stdout.isatty(),
        term=os.environ.get("TERM", ""),
        colorterm=os.environ.get("COLORTERM", ""),
        encoding=(sys.stdout.encoding or "").lower().replace("-", ""),
        columns=columns,
        lines=lines,
    )


def terminal(found: Terminal) -> Check:
    """Judge the terminal."""
    if not found.tty:
        return Check(name="terminal", grade="info", text="standard output is not a terminal")
    if found.term in ("", "dumb"):
        text = f"TERM is {found.term or 'not set'}: the panel cannot draw"
        return Check(name="terminal", grade="fail", text=text, mend="export TERM=xterm-256color")
    colours = "16 colours"
    if found.colorterm in ("truecolor", "24bit"):
        colours = "true colour"
    elif "256color" in found.term:
        colours = "256 colours"
    text = f"{found.term}, {colours}, {found.columns}x{found.lines}"
    if found.encoding != "utf8":
        text += f", encoding {found.encoding or 'not known'}: lines and signs will be wrong"
        return Check(name="terminal", grade="warn", text=text, mend="export LANG=C.UTF-8")
    if found.columns < 80 or found.lines < 24:
        text += ": the panel needs 80x24"
        return Check(name="terminal", grade="warn", text=text)
    return Check(name="terminal", grade="pass", text=text)
