"""Engines in other interpreters: what they have, asked of their parser or read in their source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from panel.domain.errors import UsageError
from panel.domain.flags import Installation
from panel.engines.installed import find_installed, installed_table
from panel.engines.sglang import SGLang
from panel.engines.vllm import VLLM

SGLANG = """
{imports}
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True, help="where it is")
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=1)
        parser.add_argument("--enable-thing", action="store_true")
        parser.add_argument("--sizes", type=int, nargs="+")
        parser.add_argument("--backend", choices=["one", "two"], default="one")
        parser.add_argument("--share", type=float)
"""
VLLM_CLI = """
import argparse
print("an engine says what it likes while it is imported")
def make_arg_parser(parser):
    group = parser.add_argument_group("ParallelConfig")
    group.add_argument("--tensor-parallel-size", "-tp", type=int, default=2)
    group.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    return parser
"""


def interpreter(folder: Path, files: dict[str, str], name: str, version: str) -> Path:
    """Return a `python` whose only package is made of `files`."""
    site = folder / "site"
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        for parent in (site / path).parents:
            if parent != site and site in parent.parents:
                (parent / "__init__.py").touch()
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    python = folder / "bin/python"
    python.parent.mkdir()
    calls = folder / "calls"
    python.write_text(
        f'#!/bin/sh\necho "$2" | grep -c moepanel-flags >> {calls}\n'
        f'PYTHONPATH={site} exec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    return python


@pytest.mark.usefixtures("home")
def test_the_parser_of_the_engine_is_asked_once_for_each_version(tmp_path: Path) -> None:
    source = {"sglang/srt/server_args.py": SGLANG.format(imports="")}
    python = interpreter(tmp_path, source, "sglang", "0.5.99")
    engine = SGLang(Installation(python=str(python), version="0.5.9"))

    assert engine.missing() is None
    assert engine.version() == "0.5.99"
    kinds = {flag.name: flag.kind for flag in engine.flags()}
    assert kinds == {
        "model-path": "str", "tp-size": "int", "enable-thing": "switch",
        "sizes": "ints", "backend": "choice", "share": "float",
    }  # fmt: skip
    assert engine.world_size({"tp-size": "4"}) == 4
    engine.check({"model": "x", "sizes": "1,2", "backend": "two"})
    with pytest.raises(UsageError, match="no choice"):
        engine.check({"backend": "three"})
    with pytest.raises(UsageError, match="no flag of sglang"):
        engine.check({"enable-thnig": "true"})
    installed_table.cache_clear()
    assert len(SGLang(Installation(python=str(python))).flags()) == len(kinds)
    # The first call asks where it is, the second for its flags.
    assert [int(call) > 0 for call in (tmp_path / "calls").read_text().split()] == [False, True]


@pytest.mark.usefixtures("home")
def test_the_source_is_read_where_the_engine_cannot_be_imported(tmp_path: Path) -> None:
    source = {"sglang/srt/server_args.py": SGLANG.format(imports="import no_such_library")}
    python = interpreter(tmp_path, source, "sglang", "0.5.98")
    flags = {flag.name: flag for flag in SGLang(Installation(python=str(python))).flags()}
    assert flags["tp-size"].aliases == ("tensor-parallel-size",)
    assert flags["tp-size"].default == "1"
    assert flags["backend"].choices == ("one", "two")
    assert flags["sizes"].kind == "ints"


@pytest.mark.usefixtures("home")
def test_vllm_prints_while_it_is_imported(tmp_path: Path) -> None:
    files = {
        "vllm/entrypoints/openai/cli_args.py": VLLM_CLI,
        "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser\n"
        "class FlexibleArgumentParser(ArgumentParser): pass\n",
    }
    python = interpreter(tmp_path, files, "vllm", "0.30.0")
    engine = VLLM(Installation(python=str(python)))
    flags = {flag.name: flag for flag in engine.flags()}
    assert flags["enable-prefix-caching"].kind == "switch"
    assert flags["enable-prefix-caching"].aliases == ()
    assert flags["tensor-parallel-size"].group == "parallel"
    assert engine.world_size({}) == 2


def test_an_upgrade_is_noticed(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    site.mkdir(parents=True)
    python = interpreter(tmp_path, {"vllm/__init__.py": ""}, "vllm", "0.24.0")
    found = find_installed("vllm", str(python))
    assert found is not None
    assert (found.version, found.package) == ("0.24.0", tmp_path / "site/vllm")
    (tmp_path / "site/vllm-0.24.0.dist-info").rename(tmp_path / "site/vllm-0.33.0.dist-info")
    metadata = tmp_path / "site/vllm-0.33.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("0.24.0", "0.33.0"))
    (site / "touched").mkdir()
    again = find_installed("vllm", str(python))
    assert again is not None
    assert again.version == "0.33.0"


def test_no_interpreter_and_no_package_is_nothing(tmp_path: Path) -> None:
    assert find_installed("sglang", str(tmp_path / "python")) is None
    python = interpreter(tmp_path, {"other/__init__.py": ""}, "other", "1.0")
    assert find_installed("sglang", str(python)) is None
