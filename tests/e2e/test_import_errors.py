"""An engine that dies while it imports: its traceback is the evidence, and no rank is blamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("safetensors", "raise ImportError('libx.so.13: cannot open')", "libx.so.13: cannot open"),
        ("uvicorn", "import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_what_a_dying_import_said_is_the_verdict(
    node: Node, tmp_path: Path, module: str, text: str, said: str
) -> None:
    """The ranks' modules and the front end's, each before any process of the gang exists."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / f"{module}.py").write_text(f"{text}\n")
    profile = node.home / "profiles" / "tiny.toml"
    profile.write_text(f'{profile.read_text()}\n[env]\nPYTHONPATH = "{broken}"\n')

    assert node.run("up", "--wait").returncode == 1
    launch = node.json("status")["launch"]
    verdict = launch["verdict"]
    assert launch["state"] == "crashed"
    assert (verdict["status"], verdict["root_ranks"]) == ("crashed", [])
    assert verdict["phase"] == "import"
    assert said in verdict["headline"]
    deciding = verdict["evidence"][0]
    assert deciding["source"] == "spawner"
    log = (node.home / "launches/000001/spawner.log").read_bytes()
    assert log[deciding["offset"] :].decode().startswith(deciding["text"])
