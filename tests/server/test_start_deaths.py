"""A death while the engine starts: the front end's last line names the rank that died."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from panel.server.exits import Exit
from tests.server.live import SERVE
from tests.server.support import DEADLINE, free_port


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("rank=2,phase=weights,kind=kill", 128 + signal.SIGKILL, "the engine stopped: rank 2 (pid"),
        ("rank=1,phase=capture,kind=oom", Exit.MEMORY, "the engine stopped: rank 1 (pid"),
        ("rank=0,phase=weights,kind=kill", 128 + signal.SIGKILL, "rank 0 is gone without a word"),
    ],
)
def test_the_front_end_names_the_rank_that_died(
    fault: str, code: int, words: str, tmp_path: Path
) -> None:
    flags = [f"--port={free_port()}", "--tp-size=4", "--load-format=dummy", f"--fault={fault}"]
    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        ended = subprocess.run(
            [sys.executable, "-c", SERVE, *flags], stderr=output, timeout=DEADLINE, check=False
        )
    assert ended.returncode == code
    (line,) = [each for each in log.read_text().splitlines() if "this process ends too" in each]
    assert f"ERROR {words}" in line
