"""Where the files are."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from panel.config.home import find_home
from panel.domain.errors import PanelError


def test_one_folder_overrides_all(tmp_path: Path) -> None:
    home = find_home({"MOEPANEL_HOME": str(tmp_path), "XDG_STATE_HOME": "/elsewhere"})

    assert home.config_file == tmp_path / "config.toml"
    assert home.ledger == tmp_path / "ledger.sqlite"
    assert home.launch(17) == tmp_path / "launches/000017"
    assert home.socket == tmp_path / "supervisor.sock"


def test_xdg_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOEPANEL_HOME", raising=False)
    for name, letter in (("CONFIG_HOME", "c"), ("STATE_HOME", "s"), ("RUNTIME_DIR", "r")):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / letter))
    home = find_home()

    assert home.profiles == tmp_path / "c/moepanel/profiles"
    assert home.lock == tmp_path / "s/moepanel/supervisor.lock"
    assert home.socket == tmp_path / "r/moepanel/supervisor.sock"


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOEPANEL_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nobody")
    home = find_home()

    assert home.config == Path("/nobody/.config/moepanel")
    assert home.state == Path("/nobody/.local/state/moepanel")
    assert home.socket == home.state / "supervisor.sock"


def test_loose_folders_are_tightened(tmp_path: Path) -> None:
    (tmp_path / "launches").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    home = find_home({"MOEPANEL_HOME": str(tmp_path)})

    home.prepare()

    for folder in (home.state, home.launches, home.profiles):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_short_socket_depends_on_the_home(tmp_path: Path) -> None:
    long = "x" * 120
    one, two = (find_home({"MOEPANEL_HOME": str(tmp_path / long / name)}) for name in "ab")

    assert one.socket != two.socket
    assert one.socket == find_home({"MOEPANEL_HOME": str(tmp_path / long / "a")}).socket
    assert len(os.fsencode(one.socket)) <= 100


def test_short_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environ = {"MOEPANEL_HOME": str(tmp_path / ("x" * 120))}
    folder = find_home(environ).socket.parent
    target = tmp_path / "target"
    target.mkdir()
    folder.symlink_to(target)

    with pytest.raises(PanelError, match="not a folder of this user"):
        find_home(environ)


def test_import_is_cheap() -> None:
    code = "import sys; import panel.config.home; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert not {"platformdirs", "tempfile", "hashlib", "dataclasses", "msgspec"} & set(
        eval(done.stdout)
    )
