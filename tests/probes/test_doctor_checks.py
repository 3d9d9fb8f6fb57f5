"""What each reading of the node means."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.probes import clock, driver, host, pci, place, software, terminal
from panel.probes.driver import Driver
from panel.probes.gpu.recording import Player, Recording
from panel.probes.pci import Bridges, Iommu
from panel.probes.terminal import Terminal

GIB = 1 << 30
DATA = Path(__file__).parent / "data"
ENGINE = dict.fromkeys(software.ENGINE, "1.0")


def test_python() -> None:
    assert software.python((3, 11, 0)).grade == "pass"
    assert software.python((3, 10, 14)).grade == "fail"


@pytest.mark.parametrize(
    ("versions", "cuda", "driver_cuda", "grade", "mend"),
    [
        ({}, None, None, "warn", "moepanel[engine]"),
        ({}, None, 12, "warn", "moepanel[cuda12]"),
        ({"torch": "2.13.0"}, None, None, "fail", "moepanel[engine]"),
        (ENGINE, None, None, "pass", ""),
        ({k: v for k, v in ENGINE.items() if k != "triton"}, None, None, "pass", ""),
        (ENGINE, None, 13, "warn", "moepanel[cuda13]"),
        (ENGINE, "12.8", 13, "pass", ""),
        (ENGINE, "13.0", 12, "fail", "moepanel[cuda12]"),
    ],
)
def test_engine(
    versions: dict[str, str], cuda: str | None, driver_cuda: int | None, grade: str, mend: str
) -> None:
    check = software.engine(versions, cuda, driver_cuda)
    assert check.grade == grade
    assert mend in check.mend
    assert bool(mend) == bool(check.mend)


def test_two_nccl_wheels_never_meet() -> None:
    both = {"nvidia-nccl-cu12": "2.27", "nvidia-nccl-cu13": "2.28"}
    check = software.nccl(both, "12.8", None)
    assert check.grade == "fail"
    assert "nvidia-nccl-cu12 and nvidia-nccl-cu13" in check.text
    assert check.mend.endswith("pip install nvidia-nccl-cu12")
    assert software.nccl(both, "13.0", None).mend.endswith("pip install nvidia-nccl-cu13")
    assert software.nccl({"nvidia-nccl-cu13": "2.28"}, "13.0", "2.28").grade == "pass"
    assert software.nccl({}, None, None).grade == "info"


def test_another_nccl_than_torch_was_built_with() -> None:
    check = software.nccl({"nvidia-nccl-cu13": "2.29.1"}, "13.0", "2.28.9")
    assert check.grade == "warn"
    assert check.mend == "pip install nvidia-nccl-cu13==2.28.9"


def test_installed_reads_metadata() -> None:
    assert software.installed(["click", "no-such-package"]).keys() == {"click"}


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '12.8'\nhip = None", "12.8"),
        ('cuda = "13.0"', "13.0"),
        ("cuda: Optional[str] = None", None),
        ("cuda_extra = '1'", None),
    ],
)
def test_torch_cuda_without_importing_torch(
    text: str, cuda: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "version.py").write_text(f"__version__ = '2.13.0'\n{text}\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert software.torch_cuda() == cuda


@pytest.mark.parametrize(
    ("found", "grade", "words"),
    [
        (Driver(absent=True, trouble="library not found"), "info", "CPU"),
        (Driver(trouble="Driver/library version mismatch"), "fail", "mismatch"),
        (Driver("580.1", 13, ("RTX",) * 7 + ("H200",)), "pass", "7 x RTX, 1 x H200"),
        (Driver("580.1", 13), "warn", "no GPU"),
    ],
)
def test_driver(found: Driver, grade: str, words: str) -> None:
    check = driver.driver(found)
    assert check.grade == grade
    assert words in check.text


def test_read_driver() -> None:
    nvml = Player(Recording.load(DATA / "nvml-h200-x2.json"))
    found = driver.read_driver(nvml)
    assert found.gpus == ("NVIDIA H200", "NVIDIA H200")
    assert found.cuda == 13
    assert [pair.nvlink for pair in found.pairs] == [True]
    assert nvml.calls[-1] == "nvmlShutdown"
    nvml.broken = {"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}
    assert driver.read_driver(nvml).absent
    nvml.broken = {"nvmlInit": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
    found = driver.read_driver(nvml)
    assert not found.absent
    assert found.trouble


def test_read_driver_without_topology() -> None:
    nvml = Player(Recording.load(DATA / "nvml-h200-x2.json"))
    nvml.broken = {"nvmlDeviceGetTopologyCommonAncestor": pynvml.NVML_ERROR_UNKNOWN}
    found = driver.read_driver(nvml)
    assert (len(found.gpus), found.pairs, found.trouble) == (2, (), "")


@pytest.mark.parametrize(
    ("size", "grade"), [(None, "fail"), (64 << 20, "warn"), (GIB, "pass"), (64 * GIB, "pass")]
)
def test_shm(size: int | None, grade: str) -> None:
    check = host.shm(size)
    assert check.grade == grade
    assert bool(check.mend) == (grade != "pass")


@pytest.mark.parametrize(("limit", "grade"), [(1024, "warn"), (4096, "pass"), (-1, "pass")])
def test_open_files(limit: int, grade: str) -> None:
    assert host.open_files(limit).grade == grade


@pytest.mark.parametrize(
    ("scope", "capable", "grade"),
    [
        (None, False, "pass"),
        (0, False, "pass"),
        (1, False, "warn"),
        (1, True, "pass"),
        (2, True, "pass"),
        (3, True, "warn"),
    ],
)
def test_ptrace(scope: int | None, capable: bool, grade: str) -> None:
    assert host.ptrace(scope, capable).grade == grade


def test_kernel_log_that_cannot_be_read_is_no_clean_one() -> None:
    check = host.kernel_log("Operation not permitted")
    assert check.grade == "warn"
    assert "not available" in check.text
    assert host.kernel_log("").grade == "pass"


@pytest.mark.parametrize(
    ("answers", "grade", "mend"),
    [
        (None, "info", ""),
        ((False, False), "pass", ""),
        ((True, False), "warn", "enable-linger"),
        ((True, True), "warn", "systemd-run --user --scope"),
    ],
)
def test_logout(answers: tuple[bool, bool] | None, grade: str, mend: str) -> None:
    check = host.logout(answers)
    assert check.grade == grade
    assert mend in check.mend


def test_logind_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.read_logout() is None
    loginctl = tmp_path / "loginctl"
    loginctl.write_text(
        '#!/bin/sh\nif [ "$1" = show-session ]; then echo KillUserProcesses=yes;'
        " else echo Linger=no; fi\n"
    )
    loginctl.chmod(0o755)
    assert host.read_logout() == (True, False)
    loginctl.write_text("#!/bin/sh\necho Failed to connect >&2; exit 1\n")
    assert host.read_logout() is None


@pytest.mark.parametrize(
    ("limit", "gpus", "grade"),
    [(-1, 8, "pass"), (64 << 20, 8, "pass"), (8 << 20, 8, "warn"), (8 << 20, 0, "pass")],
)
def test_locked_memory(limit: int, gpus: int, grade: str) -> None:
    assert host.locked_memory(limit, gpus).grade == grade


@pytest.mark.parametrize(
    ("found", "gpus", "grade"),
    [
        (Iommu(False, False), 8, "pass"),
        (Iommu(True, True), 8, "pass"),
        (Iommu(True, False), 8, "warn"),
        (Iommu(True, False), 1, "pass"),
    ],
)
def test_iommu(found: Iommu, gpus: int, grade: str) -> None:
    check = pci.iommu(found, gpus)
    assert check.grade == grade
    assert ("iommu=pt" in check.mend) == (grade == "warn")


def test_iommu_is_read(tmp_path: Path) -> None:
    command = tmp_path / "cmdline"
    command.write_text("quiet iommu=pt\n")
    units = tmp_path / "iommu"
    assert pci.read_iommu(units, command) == Iommu(False, True)
    (units / "dmar0").mkdir(parents=True)
    assert pci.read_iommu(units, command) == Iommu(True, True)


def _config(acs: int | None) -> bytes:
    config = bytearray(4096)
    # An unrelated capability first, which points to the second.
    config[0x100:0x104] = (0x0001 | 0x140 << 20).to_bytes(4, "little")
    if acs is not None:
        config[0x140:0x144] = (0x000D).to_bytes(4, "little")
        config[0x146:0x148] = acs.to_bytes(2, "little")
    return bytes(config)


def test_acs_of_bridges(tmp_path: Path) -> None:
    def device(name: str, kind: str, config: bytes) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "class").write_text(f"{kind}\n")
        (tmp_path / name / "config").write_bytes(config)

    device("0000:00:01.0", "0x060400", _config(0x1D))
    device("0000:00:02.0", "0x060400", _config(0x00))
    device("0000:00:03.0", "0x060400", _config(None))
    device("0000:00:04.0", "0x060400", bytes(64))
    device("0000:01:00.0", "0x030200", _config(0x1D))
    found = pci.read_bridges(tmp_path)
    assert found == Bridges(seen=4, redirecting=1, hidden=1)
    assert pci.acs(found, 8).grade == "warn"
    assert pci.acs(found, 1).grade == "info"
    assert pci.acs(Bridges(4, 0, 1), 8).mend == "sudo moepanel doctor"
    assert pci.acs(Bridges(4, 0, 0), 8).grade == "pass"
    assert pci.read_bridges(tmp_path / "absent") == Bridges(0, 0, 0)


def test_the_port_above_a_gpu(tmp_path: Path) -> None:
    gpu = tmp_path / "pci0000:40/0000:40:01.1/0000:41:00.0"
    gpu.mkdir(parents=True)
    root = tmp_path / "pci0000:40/0000:40:02.0"
    root.mkdir()
    devices = tmp_path / "devices"
    devices.mkdir()
    for device in (gpu, root):
        (devices / device.name).symlink_to(device)
    assert pci.bridge_of("0000:41:00.0", devices) == "0000:40:01.1"
    assert pci.bridge_of("0000:40:02.0", devices) is None
    assert pci.bridge_of("0000:99:00.0", devices) is None


@given(st.binary(max_size=4096))
def test_any_configuration_can_be_read(config: bytes) -> None:
    assert 0 <= pci.acs_control(config) <= 0xFFFF


@pytest.mark.parametrize(("state", "grade"), [(True, "pass"), (False, "warn"), (None, "info")])
def test_clock(state: bool | None, grade: str) -> None:
    assert clock.clock(state).grade == grade


def test_the_clock_can_be_asked() -> None:
    assert clock.read_synchronised() in (True, False, None)


@pytest.mark.parametrize(("free", "grade"), [(100 << 20, "fail"), (GIB, "warn"), (9 * GIB, "pass")])
def test_disk(free: int, grade: str) -> None:
    assert place.disk(Path("/state"), free).grade == grade


def test_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert place.read_disk(tmp_path / "a" / "b") > 0


def test_home_modes(tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    private.mkdir(mode=0o700)
    public.mkdir()
    public.chmod(0o755)
    modes = place.read_modes([private, public, tmp_path / "absent"])
    assert modes == {private: (0o700, os.getuid()), public: (0o755, os.getuid())}
    assert place.home({private: modes[private]}, os.getuid()).grade == "pass"
    opened = place.home(modes, os.getuid())
    assert (opened.grade, opened.mend) == ("warn", f"chmod -R go= {public}")
    assert place.home(modes, os.getuid() + 1).grade == "fail"
    assert place.home({}, 0).grade == "info"


def test_port(free_port: int) -> None:
    assert place.read_port("127.0.0.1", free_port) == ""
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port))
        other.listen()
        trouble = place.read_port("127.0.0.1", free_port)
    assert "taken" in trouble
    check = place.port("127.0.0.1", 30000, trouble, None)
    assert check.grade == "fail"
    assert "--set port=30001" in check.mend
    assert place.port("127.0.0.1", 30000, "", None).grade == "pass"
    assert "#17" in place.port("127.0.0.1", 30000, "", 17).text


GOOD = Terminal(True, "xterm-256color", "truecolor", "utf8", 120, 40)


@pytest.mark.parametrize(
    ("found", "grade", "words"),
    [
        (GOOD, "pass", "true colour, 120x40"),
        (GOOD._replace(colorterm=""), "pass", "256 colours"),
        (GOOD._replace(colorterm="", term="linux"), "pass", "16 colours"),
        (GOOD._replace(columns=79), "warn", "80x24"),
        (GOOD._replace(lines=23), "warn", "80x24"),
        (GOOD._replace(encoding="ascii"), "warn", "ascii"),
        (GOOD._replace(term="dumb"), "fail", "dumb"),
        (GOOD._replace(term=""), "fail", "not set"),
        (GOOD._replace(tty=False), "info", "not a terminal"),
    ],
)
def test_terminal(found: Terminal, grade: str, words: str) -> None:
    check = terminal.terminal(found)
    assert check.grade == grade
    assert words in check.text
