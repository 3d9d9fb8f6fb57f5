"""A real sshd of one's own: port, host key and authorized keys lie in a folder of the test's."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from panel.supervisor import procfs

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PROGRAMS = all((SSHD, shutil.which("ssh"), shutil.which("ssh-keygen")))
# sshd of root wants this empty folder of the system's, which its own start makes.
EMPTY = Path("/run/sshd")
LISTENS_S = 10.0


class Sshd:
    """Runs as the test's user; a client that has `config` gets in as `beta`."""

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(mode=0o700)
        self._folder, self._port = folder, port
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("host", "user", "stranger"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(argv, check=True)
        shutil.copy(folder / "user.pub", folder / "authorized")
        key = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{port} {key}")
        self._write("sshd_config", {
            "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "authorized", "PidFile": "none", "UsePAM": "no",
            "StrictModes": "no", "PasswordAuthentication": "no", "PermitRootLogin": "yes",
        })  # fmt: skip
        self.config = self._client("config", "user")
        """Of the client: a name for the way, nothing of the system's or the user's."""

    @property
    def stranger(self) -> Path:
        """A client's config whose key is not let in."""
        return self._client("stranger_config", "stranger")

    def start(self) -> None:
        """Start it; return once it listens."""
        assert SSHD is not None
        if os.getuid() == 0:
            EMPTY.mkdir(mode=0o755, exist_ok=True)
        argv = [SSHD, "-D", "-e", "-f", str(self._folder / "sshd_config")]
        with (self._folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log)
        until = time.monotonic() + LISTENS_S
        while not self._listens():
            assert self._process.poll() is None, (self._folder / "sshd.log").read_text()
            assert time.monotonic() < until, "sshd does not listen"
            time.sleep(0.01)

    def drop(self) -> None:
        """End all connections; new ones are accepted."""
        assert self._process is not None
        for each in procfs.descendants(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End all connections; new ones are refused."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGSTOP)  # It accepts nobody in between.
            self.drop()
            self._process.kill()
            self._process.wait()

    def _client(self, name: str, key: str) -> Path:
        here = {
            "Host": "beta", "HostName": "127.0.0.1", "Port": self._port, "User": getpass.getuser(),
            "IdentityFile": self._folder / key, "IdentitiesOnly": "yes", "IdentityAgent": "none",
            "UserKnownHostsFile": self._folder / "known", "StrictHostKeyChecking": "yes",
            "GlobalKnownHostsFile": "none",
        }  # fmt: skip
        return self._write(name, here)

    def _write(self, name: str, words: dict[str, object]) -> Path:
        path = self._folder / name
        path.write_text("".join(f"{key} {shlex.quote(str(each))}\n" for key, each in words.items()))
        return path

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
