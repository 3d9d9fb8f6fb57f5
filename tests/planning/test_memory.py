"""The memory of a rank, whether it fits, and the way out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.config.home import find_home
from panel.config.models import model_config, shipped_models
from panel.config.profiles import load_profile, profile_files
from panel.domain.errors import UsageError
from panel.domain.flags import Hardware, Profile, Request
from panel.domain.plan import Problem
from panel.engines import find_engine
from panel.planning.build import build_plan, change_request
from panel.planning.capabilities import capabilities
from panel.planning.fit import fit_problems, predict
from panel.planning.model import parse_model
from panel.planning.rules import SILENTS
from panel.planning.rules.rule import settle
from panel.planning.scene import GIB, Scene
from panel.planning.weights import weigh
from panel.server.config import model_folder, read_config
from panel.server.memory import Demand
from panel.server.options import resolve
from panel.server.parallel import shard_of
from panel.server.sizes import settled
from tests.planning.scenes import scene

HOME = find_home({"MOEPANEL_HOME": "/nowhere"})
H200 = Hardware(gpus=8, memory=140 * GIB, capability="9.0", link="nvlink")


def problems(asked: Scene) -> tuple[Problem, ...]:
    return fit_problems(asked, settle(SILENTS[asked.engine], asked).scene)


def test_kv_tokens_are_the_engines_formula() -> None:
    budget = predict(scene("sglang", "0.5.9", {"tp-size": "8", "mem-fraction-static": "0.9"}))
    cell = 576 * 61 * 2
    free = 96 * GIB - budget.of("context and NCCL")
    room = budget.fit.after_weights - free * 0.1

    assert cell == 70_272
    assert budget.fit.kv_tokens == pytest.approx(room / cell, abs=1)
    half = {"tp-size": "8", "mem-fraction-static": "0.9", "kv-cache-dtype": "fp8_e4m3"}
    assert predict(scene("sglang", "0.5.9", half)).fit.kv_tokens == pytest.approx(
        2 * budget.fit.kv_tokens, abs=2
    )


@given(
    st.sampled_from(["sglang", "vllm"]),
    st.sampled_from(shipped_models()),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(20, 400),
)
def test_lines_and_what_is_left_make_the_whole_gpu(
    engine: str, name: str, ranks: int, gib: int
) -> None:
    flag = "tp-size" if engine == "sglang" else "tensor-parallel-size"
    hardware = Hardware(gpus=8, memory=gib * GIB)
    budget = predict(scene(engine, "0.33", {flag: str(ranks)}, name, hardware))

    assert sum(line.predicted for line in budget.lines) + budget.fit.left == gib * GIB
    assert all(line.predicted > 0 for line in budget.lines)
    assert (budget.short > 0) == (budget.fit.kv_tokens == 0)


@given(st.sampled_from(shipped_models()), st.sampled_from([2, 4, 8]))
def test_more_ranks_leave_more_memory(name: str, ranks: int) -> None:
    def after(count: int) -> int:
        asked = scene("sglang", "0.5.23", {"tp-size": str(count)}, name, H200)
        return predict(asked).fit.after_weights

    assert after(ranks) > after(ranks // 2)


def small_model(engine: str, version: str, values: dict[str, str]) -> Scene:
    """Return a scene of four layers of DeepSeek-V2-Lite on two H200, as real engines ran it."""
    raw = json.loads(model_config("deepseek-v2-lite").read_text()) | {"num_hidden_layers": 4}
    found = parse_model(raw | {"max_position_embeddings": 4096})
    gpus = Hardware(gpus=2, memory=round(139.8 * GIB), capability="9.0", link="nvlink")
    return Scene(engine, version, values, {}, found, weigh(found), gpus)


def test_predicted_is_near_what_real_launches_measured() -> None:
    values = {"tp-size": "2", "ep-size": "2", "mem-fraction-static": "0.3"}
    budget = predict(small_model("sglang", "0.5.15", values))
    loaded = 139.8 * GIB - budget.of("context and NCCL") - budget.fit.after_weights
    assert loaded / GIB == pytest.approx(2.12, rel=0.02)
    assert budget.fit.kv_tokens == pytest.approx(9_164_457, rel=0.01)

    values = {
        "tensor-parallel-size": "2",
        "enable-expert-parallel": "true",
        "gpu-memory-utilization": "0.5",
    }
    tokens = predict(small_model("vllm", "0.24.0", values)).fit.kv_tokens
    assert tokens == pytest.approx(15_495_424, rel=0.03)


def test_numbers_as_vllm_reads_them_and_nonsense_do_no_harm() -> None:
    values = {"max-num-batched-tokens": "8k", "max-model-len": "auto", "block-size": "0"}
    assert scene("vllm", "0.33.0", values).number("max-num-batched-tokens") == 8000
    predict(scene("vllm", "0.33.0", values | {"tensor-parallel-size": "0"}))
    predict(scene("sglang", "0.5.9", {"tp-size": "0", "dp-size": "0", "page-size": "0"}))


def test_the_smallest_change_is_found_and_fits() -> None:
    asked = scene("sglang", "0.5.9", {"tp-size": "4"}, "qwen3-235b-a22b")
    (problem,) = problems(asked)

    assert problem.severity == "refusal"
    assert "short by" in problem.text
    assert problem.remedy == {"tp-size": "8"}
    assert "smallest change that fits: tp-size 8" in problem.text
    assert problems(asked.with_values(problem.remedy)) == ()


def test_what_no_flag_mends_is_said() -> None:
    small = Hardware(gpus=8, memory=24 * GIB)
    (problem,) = problems(scene("vllm", "0.33.0", {"tensor-parallel-size": "8"}, hardware=small))

    assert "no flag mends it" in problem.text
    assert problem.remedy == {}


def test_a_large_fraction_leaves_too_little_for_graphs() -> None:
    values = {"tp-size": "8", "mem-fraction-static": "0.97", "context-length": "4096"}
    asked = scene("sglang", "0.5.9", values, "deepseek-v2-lite")
    (problem,) = problems(asked)

    assert problem.severity == "warning"
    assert "short by" in problem.text
    assert problems(asked.with_values(problem.remedy)) == ()


def test_vllm_refuses_a_context_that_the_cache_cannot_hold() -> None:
    values = {"tensor-parallel-size": "8"}
    asked = scene("vllm", "0.33.0", values, "deepseek-v3")
    (problem,) = problems(asked)

    assert (problem.severity, problem.flag) == ("refusal", "max-model-len")
    assert "less than one request of 163840" in problem.text
    assert problems(asked.with_values(problem.remedy)) == ()


def test_draft_of_the_model_itself_is_counted() -> None:
    plain = {"tp-size": "8", "mem-fraction-static": "0.9"}
    eagle = plain | {"speculative-algorithm": "EAGLE"}
    without, with_draft = (predict(scene("sglang", "0.5.9", each)) for each in (plain, eagle))

    assert with_draft.of("prediction layers") > GIB
    assert without.of("prediction layers") == 0
    assert with_draft.of("draft") * 61 == pytest.approx(with_draft.of("KV cache"), rel=0.01)


def test_memory_of_the_embedded_engine_is_its_own_arithmetic() -> None:
    engine, profile = find_engine("builtin"), load_profile(HOME, "tiny")
    plan = build_plan(engine, profile, Request(profile="tiny"))
    options = settled(resolve(dict(profile.flags)), on_gpu=False)
    config = read_config(model_folder("moe-tiny"))
    table = Demand(config, shard_of(options, 0), options, 4, False).table()

    assert sum(line.predicted for line in plan.memory) == sum(table.values())
    assert plan.memory[0].category == "weights"
    assert plan.fit is None


@pytest.mark.parametrize("name", sorted(profile_files(HOME)))
def test_shipped_profiles_can_be_launched_where_engine_and_weights_are(name: str) -> None:
    profile = load_profile(HOME, name)
    engine = find_engine(profile.engine).at(profile.installation)
    plan = build_plan(engine, profile, change_request(engine, profile, Request(profile=name), {}))
    absent = ("not installed", "no config.json")
    others = [
        each
        for each in plan.problems
        if each.severity != "note" and not any(words in each.text for words in absent)
    ]

    assert others == []
    assert plan.memory
    assert name == "tiny" or (plan.fit is not None and plan.fit.left > 0)


def test_a_plan_without_a_model_says_so() -> None:
    profile = Profile(name="mine", engine="sglang", flags={"model-path": "some/hub-name"})
    engine = find_engine("sglang")
    plan = build_plan(engine, profile, Request(profile="mine"))

    assert plan.memory == ()
    assert any("no memory plan: model-path is no folder" in each.text for each in plan.problems)


def test_more_ranks_than_gpus_are_refused() -> None:
    profile = load_profile(HOME, "deepseek-v2-lite-8x80-sglang")
    engine = find_engine("sglang").at(profile.installation)
    request = change_request(engine, profile, Request(profile=profile.name), {"tp-size": "16"})

    texts = [each.text for each in build_plan(engine, profile, request).problems]
    assert "16 ranks, but 8 GPUs" in texts


def test_unknown_model_is_told() -> None:
    with pytest.raises(UsageError, match="did you mean deepseek-v3"):
        model_config("deepsek-v3")
    assert all(json.loads(model_config(name).read_text()) for name in shipped_models())


def test_capabilities_follow_the_gpus() -> None:
    def states(asked: Scene) -> dict[str, str]:
        return {each.path: each.state for each in capabilities(asked, 8)}

    hopper = states(scene("sglang", "0.5.23", {}, hardware=H200))
    assert hopper["FlashInfer all-reduce fusion"] == "there"
    assert hopper["custom all-reduce"] == "there"
    assert "FlashInfer one-shot over PCIe" not in hopper
    assert states(scene("vllm", "0.33.0", {}))["FlashInfer one-shot over PCIe"] == "opt-in"
    assert states(scene("vllm", "0.24.0", {}))["FlashInfer one-shot over PCIe"] == "refused"
    unknown = Hardware(gpus=8, memory=80 * GIB)
    assert capabilities(scene("sglang", "0.5.9", {}, hardware=unknown), 8) == ()
