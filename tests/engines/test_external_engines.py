"""SGLang and vLLM as adapters: command lines, neutral names, sizes; nothing is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from panel.domain.errors import UsageError
from panel.domain.flags import Installation, Toggle
from panel.engines import find_engine
from panel.engines.base import Engine
from panel.engines.external import External
from panel.engines.flagtable import known_versions, load_table
from panel.engines.sglang import SGLang
from panel.engines.vllm import VLLM

FOLDER = Path("/state/launches/000042")


def sglang(version: str = "0.5.15", **more: str) -> SGLang:
    return SGLang(Installation(version=version, **more))


def vllm(version: str = "0.24.0", **more: str) -> VLLM:
    return VLLM(Installation(version=version, **more))


def flags(text: str) -> dict[str, str]:
    """Return `tp-size=8 a=b` as flag texts."""
    return dict(part.split("=", 1) for part in text.split())


@pytest.mark.parametrize(
    ("version", "given", "argv"),
    [
        ("0.5.9", "cuda-graph-max-bs=64", ["--cuda-graph-max-bs", "64"]),
        ("0.5.23", "cuda-graph-max-bs=64", ["--cuda-graph-max-bs-decode", "64"]),
        ("0.5.15", "cuda-graph-bs-decode=1,2,4", ["--cuda-graph-bs-decode", "1", "2", "4"]),
        ("0.5.15", "tensor-parallel-size=8", ["--tp-size", "8"]),
        ("0.5.15", "enable-dp-attention=true", ["--enable-dp-attention"]),
        ("0.5.15", "enable-dp-attention=false", []),
    ],
)
def test_sglang_is_spelled_for_its_version(version: str, given: str, argv: list[str]) -> None:
    assert sglang(version).argv(flags(given)) == argv


def test_vllm_has_its_model_ahead_of_its_flags() -> None:
    values = {
        "tensor-parallel-size": "8",
        "enable-expert-parallel": "true",
        "model": "/srv/kimi",
        "cudagraph-capture-sizes": "1,2",
        "enable-prefix-caching": "false",
        "compilation-config.cudagraph_mode": "FULL",
    }
    argv = vllm().argv(values)
    assert argv[0] == "/srv/kimi"
    assert argv[1:4] == ["--tensor-parallel-size", "8", "--enable-expert-parallel"]
    assert "--cudagraph-capture-sizes 1 2" in " ".join(argv)
    assert "--compilation-config.cudagraph_mode FULL" in " ".join(argv)


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_every_flag_of_every_table_survives_its_command_line(name: str) -> None:
    for version in known_versions(name):
        table = load_table(name, version)
        texts = {"int": "2", "float": "0.5", "ints": "1,2", "strs": "a,b", "switch": "true"}
        values = {
            flag.name: flag.choices[0] if flag.choices else texts.get(flag.kind, "x")
            for flag in table.flags
        }
        assert table.parse(table.argv(values)) == values


def test_the_launcher_is_a_module_of_its_interpreter() -> None:
    (own,) = sglang(python="/opt/sg/bin/python").command(flags("tp-size=8"), FOLDER).processes
    assert own.argv == ["/opt/sg/bin/python", "-m", "sglang.launch_server", "--tp-size", "8"]
    assert (own.source, own.log) == ("engine", "/state/launches/000042/engine.log")
    assert (own.world_size, own.stop, own.pids) == (8, [], [])
    (served,) = vllm().command({"model": "m"}, FOLDER).processes
    assert served.argv == [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "m"]


def test_a_container_is_named_after_the_launch() -> None:
    engine = vllm(
        command="docker run --rm --name {name} vllm/vllm-openai:v0.24.0",
        stop="docker stop -t 20 {name}",
        pids="docker top {name} -eo pid",
    )
    (job,) = engine.command({"model": "m", "port": "8001"}, FOLDER).processes
    assert job.argv[:5] == ["docker", "run", "--rm", "--name", "moepanel-42"]
    assert job.argv[5:] == ["vllm/vllm-openai:v0.24.0", "m", "--port", "8001"]
    assert job.stop == ["docker", "stop", "-t", "20", "moepanel-42"]
    assert job.pids == ["docker", "top", "moepanel-42", "-eo", "pid"]
    assert engine.missing() is None
    assert engine.version() == "0.24.0"


@pytest.mark.parametrize(
    ("toggle", "text", "given", "wanted"),
    [
        ("ep", "on", "tp-size=8", {"ep-size": "8"}),
        ("ep", "on", "tensor-parallel-size=4", {"ep-size": "4"}),
        ("ep", "4", "tp-size=8", {"ep-size": "4"}),
        ("ep", "off", "tp-size=8 ep-size=8", {"ep-size": None, "moe-a2a-backend": None}),
        ("graphs", "off", "", {"disable-cuda-graph": "true"}),
        ("graphs", "64", "", {"cuda-graph-max-bs-decode": "64", "cuda-graph-bs-decode": None}),
        ("graphs", "1,2", "", {"cuda-graph-max-bs-decode": None, "cuda-graph-bs-decode": "1,2"}),
        ("spec", "ngram:6", "", {"speculative-algorithm": "NGRAM"}),
        ("spec", "eagle3:5", "", {"speculative-num-steps": "5"}),
        ("spec", "eagle3", "speculative-num-steps=4", {"speculative-num-draft-tokens": "5"}),
        ("spec", "off", "", {"speculative-algorithm": None, "speculative-num-steps": None}),
    ],
)
def test_neutral_names_of_sglang(
    toggle: Toggle, text: str, given: str, wanted: dict[str, str | None]
) -> None:
    found = sglang().neutral(toggle, text, flags(given))
    assert wanted.items() <= found.items()
    sglang().check({name: text for name, text in found.items() if text is not None})


def test_graph_flags_go_by_their_old_names_in_old_versions() -> None:
    found = sglang("0.5.9").neutral("graphs", "64", {})
    assert found["cuda-graph-max-bs"] == "64"


@pytest.mark.parametrize(
    ("toggle", "text", "given", "wanted"),
    [
        ("ep", "on", "", {"enable-expert-parallel": "true"}),
        ("ep", "8", "tensor-parallel-size=8", {"enable-expert-parallel": "true"}),
        ("ep", "off", "", {"enable-expert-parallel": None}),
        ("graphs", "off", "", {"enforce-eager": "true", "max-cudagraph-capture-size": None}),
        ("graphs", "64", "", {"max-cudagraph-capture-size": "64", "enforce-eager": None}),
        ("graphs", "1,2", "", {"cudagraph-capture-sizes": "1,2"}),
        ("spec", "off", "", {"speculative-config": None}),
    ],
)
def test_neutral_names_of_vllm(
    toggle: Toggle, text: str, given: str, wanted: dict[str, str | None]
) -> None:
    found = vllm().neutral(toggle, text, flags(given))
    assert wanted.items() <= found.items()
    vllm().check({name: text for name, text in found.items() if text is not None})


def test_speculation_of_vllm_is_one_json_object() -> None:
    ngram = vllm().neutral("spec", "ngram:4", {})["speculative-config"]
    assert json.loads(ngram or "") == {
        "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4
    }  # fmt: skip
    draft = {"speculative-config": '{"model": "/srv/draft", "draft_tensor_parallel_size": 1}'}
    eagle = vllm().neutral("spec", "eagle3:2", draft)["speculative-config"]
    assert json.loads(eagle or "") == {
        "model": "/srv/draft", "draft_tensor_parallel_size": 1,
        "method": "eagle3", "num_speculative_tokens": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "toggle", "text", "words"),
    [
        (sglang(), "spec", "medusa", "is not off, ngram"),
        (sglang(), "spec", "eagle3:many", "number of steps"),
        (vllm(), "spec", "eagle3", "needs a draft model"),
        (vllm(), "spec", "medusa", "is not off, ngram"),
        (vllm(), "ep", "4", "not at all"),
    ],
)
def test_what_a_neutral_name_cannot_mean(
    engine: External, toggle: Toggle, text: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        engine.neutral(toggle, text, {"tensor-parallel-size": "8"} if engine.name == "vllm" else {})


@pytest.mark.parametrize(
    ("engine", "given", "size"),
    [
        (sglang(), "", 1),
        (sglang(), "tp-size=8 ep-size=8", 8),
        (sglang(), "tp-size=4 pp-size=2", 8),
        (sglang(), "tp-size=8 dp-size=8 enable-dp-attention=true", 8),
        (sglang(), "tp-size=4 dp-size=2", 8),
        (sglang("0.5.23"), "tp-size=8 attn-dp-size=8", 8),
        (vllm(), "tp=8", 8),
        (vllm(), "tensor-parallel-size=2 data-parallel-size=4", 8),
        (vllm(), "tensor-parallel-size=2 pipeline-parallel-size=2 dp=2", 8),
    ],
)
def test_the_number_of_ranks(engine: External, given: str, size: int) -> None:
    assert engine.world_size(flags(given)) == size


@pytest.mark.parametrize(
    ("engine", "given", "chips"),
    [
        (sglang(), "tp-size=8 ep-size=8 cuda-graph-max-bs-decode=64", ("tp8", "ep8", "graphs≤64")),
        (
            sglang("0.5.9"),
            "tp-size=8 moe-a2a-backend=flashinfer speculative-algorithm=EAGLE3"
            " speculative-num-steps=3 cuda-graph-bs=1,2,4",
            ("tp8", "a2a flashinfer", "eagle3:3", "graphs≤4"),
        ),
        (sglang(), "disable-cuda-graph=true", ("tp1", "no graphs")),
        (vllm(), "tp=8 enable-expert-parallel=true", ("tp8", "ep8")),
        (
            vllm(),
            'dp=2 speculative-config={"method":"ngram","num_speculative_tokens":4}'
            " cudagraph-capture-sizes=1,2",
            ("tp1", "dp2", "ngram:4", "graphs≤2"),
        ),
        (vllm(), "enforce-eager=true", ("tp1", "no graphs")),
    ],
)
def test_a_launch_in_a_few_words(engine: External, given: str, chips: tuple[str, ...]) -> None:
    assert engine.chips(flags(given)) == chips


def test_addresses_and_keys() -> None:
    assert sglang().address({}) == ("127.0.0.1", 30000)
    assert vllm().address({}) == ("0.0.0.0", 8000)
    assert vllm().address({"host": "::1", "port": "81"}) == ("::1", 81)
    assert sglang().api_key({}) is None
    assert vllm().api_key({"api-key": "one,two"}) == "one"


def test_what_is_missing_is_said_with_the_way_out() -> None:
    for engine in (SGLang(), VLLM(Installation(python="/no/such/python"))):
        assert engine.version() == ""
        assert f"{engine.name} is not installed in " in (engine.missing() or "")


@pytest.mark.parametrize("engine", [find_engine("sglang"), find_engine("vllm")])
def test_titles_must_not_overwrite_the_marker_of_the_launch(engine: Engine) -> None:
    assert engine.environment()["SPT_NOENV"] == "1"


def test_sglang_is_made_to_count_and_answers_health_for_nothing() -> None:
    assert sglang().evidence_flags(FOLDER) == {"enable-metrics": "true"}
    variable = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
    assert sglang().environment()[variable] == "false"


def test_the_engine_of_the_package_has_no_other_place() -> None:
    builtin = find_engine("builtin")
    assert builtin.at(Installation()) is builtin
    with pytest.raises(UsageError, match="own interpreter"):
        builtin.at(Installation(python="/opt/bin/python"))
