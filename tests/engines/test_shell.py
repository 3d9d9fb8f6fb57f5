"""Profiles from command lines, and back."""

from __future__ import annotations

import contextlib
import shlex

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from panel.cli import main
from panel.domain.errors import UsageError
from panel.domain.flags import Profile
from panel.engines.shell import read_command, write_command

SGLANG = "NCCL_P2P_LEVEL=SYS A='b c' python3 -m sglang.launch_server --model /m --tp 8 --ep 8"


def read(line: str, version: str = "0.5.9") -> Profile:
    return read_command(shlex.split(line), "mine", version)


def test_a_command_line_of_sglang() -> None:
    profile = read(SGLANG + " --cuda-graph-bs 1 2 4 --enable-metrics")

    assert (profile.name, profile.engine) == ("mine", "sglang")
    assert profile.env == {"NCCL_P2P_LEVEL": "SYS", "A": "b c"}
    assert profile.installation.version == "0.5.9"
    assert profile.installation.python == profile.installation.command == ""
    assert profile.flags == {
        "model-path": "/m",
        "tp-size": "8",
        "ep-size": "8",
        "cuda-graph-bs": "1,2,4",
        "enable-metrics": "true",
    }


def test_old_names_are_followed() -> None:
    assert read("sglang serve --cuda-graph-max-bs 64", "0.5.23").flags == {
        "cuda-graph-max-bs-decode": "64"
    }


def test_vllm_takes_its_model_without_dashes() -> None:
    profile = read("vllm serve /m -tp 2 --no-enable-prefix-caching", "0.33.0")

    assert profile.flags == {
        "model": "/m",
        "tensor-parallel-size": "2",
        "enable-prefix-caching": "false",
    }
    assert "serve /m --tensor-parallel-size 2 --no-enable-prefix-caching" in write_command(profile)


def test_interpreters_and_containers_are_kept() -> None:
    own = read("/venv/bin/python -m sglang.launch_server --tp 8")
    assert own.installation.python == "/venv/bin/python"
    boxed = read("docker run --gpus all img python3 -m sglang.launch_server --tp 8")
    assert boxed.installation.command == (
        "docker run --gpus all img python3 -m sglang.launch_server"
    )
    assert write_command(boxed) == f"{boxed.installation.command} --tp-size 8"


@pytest.mark.parametrize(
    "line",
    [
        SGLANG,
        "env A=1 /v/python -m sglang.launch_server --model /m --page-size 64 --enable-eplb",
        "moepanel serve --tp-size=4 --dp-attention --port 3",
    ],
)
def test_there_and_back_again(line: str) -> None:
    profile = read(line)
    again = read(write_command(profile))

    assert (again.flags, again.env) == (profile.flags, profile.env)
    assert again.installation.python == profile.installation.python


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls -l", "no engine in this command line"),
        ("", "no engine in this command line"),
        ("sglang serve --tpp 8", "tpp: no flag of sglang 0.5.9"),
        ("sglang serve --cuda-graph 8", "cuda-graph: ambiguous"),
        ("moepanel serve --tpsize 8", "tpsize: no flag of the engine"),
        ("sglang serve 8", "belongs to no flag"),
    ],
)
def test_what_is_not_understood_is_named(line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read(line)


def test_secrets_stay_in_the_profile() -> None:
    profile = read(SGLANG + " --api-key hush-hush")

    assert profile.flags["api-key"] == "hush-hush"
    assert "hush" not in write_command(profile)


@given(st.lists(st.text(max_size=8), max_size=6))
def test_no_words_break_the_reader(words: list[str]) -> None:
    with contextlib.suppress(UsageError):
        assert read_command(["sglang", "serve", *words], "mine", "0.5.9").engine == "sglang"


def test_commands_import_and_export(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = {"MOEPANEL_HOME": str(tmp_path_factory.mktemp("home"))}
    line = ["--name", "k", "--engine-version", "0.5.9", "--", *shlex.split(SGLANG)]

    made = CliRunner().invoke(main, ["profile", "import", *line], env=home)
    assert made.exit_code == 0, made.output
    assert made.output.strip().endswith("profiles/k.toml")
    told = CliRunner().invoke(main, ["profile", "export", "k"], env=home)
    assert read(told.output.strip()) == read(SGLANG)
    listed = CliRunner().invoke(main, ["profile", "list"], env=home).output
    assert "k " in listed
    assert "kimi-k2.5-8x96-sglang" in listed
    lost = CliRunner().invoke(main, ["profile", "export", "kimi"], env=home)
    assert lost.exit_code == 3
