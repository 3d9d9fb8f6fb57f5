"""Rules of SGLang and vLLM by version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.plan import Problem
from panel.engines.flagtable import load_table
from panel.planning.rules import RULES, SILENTS
from panel.planning.rules.rule import judge, settle
from tests.planning.scenes import scene

TP8 = {"tp-size": "8"}
EAGLE = {
    "speculative-algorithm": "EAGLE",
    "speculative-num-steps": "3",
    "speculative-eagle-topk": "1",
    "speculative-num-draft-tokens": "4",
}
TREE = EAGLE | {"speculative-eagle-topk": "4", "speculative-num-draft-tokens": "8"}
SPREAD = {"enable-dp-attention": "true", "dp-size": "8"}


def problems(engine: str, version: str, values: dict[str, str], **more: object) -> list[Problem]:
    settled = settle(SILENTS[engine], scene(engine, version, values, **more)).scene  # type: ignore[arg-type]
    return list(judge(RULES[engine], settled))


def refused(engine: str, version: str, values: dict[str, str], **more: object) -> list[str]:
    found = problems(engine, version, values, **more)
    return [each.text for each in found if each.severity == "refusal"]


def changed(engine: str, version: str, values: dict[str, str]) -> dict[str, tuple[str | None, str]]:
    found = settle(SILENTS[engine], scene(engine, version, values)).overrides
    return {each.name: (each.requested, each.resolved) for each in found}


@pytest.mark.parametrize(
    ("version", "values", "words"),
    [
        ("0.5.9", {"ep-size": "3"}, "ep-size 3 does not divide tp-size 8"),
        ("0.5.9", {"ep-size": "8", "ep-num-redundant-experts": "3"}, "does not divide 259 experts"),
        ("0.5.9", {"tp-size": "7"}, "attention heads cannot be shared evenly"),
        ("0.5.9", {"moe-a2a-backend": "flashinfer"}, "flashinfer_cutlass alone, not auto"),
        ("0.5.9", {"moe-runner-backend": "flashinfer_cutlass"}, "cannot compute fp8"),
        ("0.5.9", {"moe-runner-backend": "cutlass", "ep-size": "8"}, "with ep-size 1 alone"),
        ("0.5.15", {"moe-a2a-backend": "flashinfer"}, "needs data-parallel attention over all 8"),
        ("0.5.23", {"moe-a2a-backend": "pplx"}, "moe-runner-backend deep_gemm"),
        ("0.5.9", TREE | {"page-size": "64"}, "topk 4 with page-size 64"),
        ("0.5.9", TREE | {"page-size": "64", "attention-backend": "triton"}, "take topk 1"),
        ("0.5.9", TREE | {"attention-backend": "trtllm_mha"}, "verifies chains alone"),
        ("0.5.9", {"speculative-algorithm": "EAGLE", "speculative-num-steps": "3"}, "all three"),
        ("0.5.9", {"speculative-algorithm": "NGRAM"} | SPREAD, "data-parallel attention"),
        ("0.5.9", {"enable-eplb": "true"}, "ep-size above 1"),
        ("0.5.23", {"ep-size": "8", "ep-dispatch-algorithm": "static"}, "same replica"),
        ("0.5.9", {"moe-dense-tp-size": "4"}, "moe-dense-tp-size is 1 or 8"),
        ("0.5.9", {"nnodes": "3"}, "cannot be shared by 3 nodes"),
        ("0.5.9", {"served-model-name": "a:b"}, "colon"),
        ("0.5.9", {"enable-dp-attention": "true", "dp-size": "3"}, "over 3 ranks"),
    ],
)
def test_refusals_of_sglang(version: str, values: dict[str, str], words: str) -> None:
    assert any(words in text for text in refused("sglang", version, TP8 | values))


@pytest.mark.parametrize(
    ("version", "values"),
    [
        ("0.5.9", {}),
        ("0.5.9", {"ep-size": "8"}),
        ("0.5.9", EAGLE),
        ("0.5.9", TREE | {"page-size": "64", "attention-backend": "flashinfer"}),
        ("0.5.9", TREE | {"page-size": "1"}),
        ("0.5.23", TREE | {"page-size": "64", "attention-backend": "triton"}),
        ("0.5.15", {"moe-a2a-backend": "deepep"}),
        ("0.5.15", {"moe-a2a-backend": "flashinfer", "moe-runner-backend": "deep_gemm"} | SPREAD),
        (
            "0.5.23",
            {
                "moe-a2a-backend": "flashinfer",
                "moe-runner-backend": "deep_gemm",
                "attn-dp-size": "8",
            },
        ),
        ("0.5.9", {"ep-size": "8", "ep-dispatch-algorithm": "static"}),
    ],
)
def test_what_works_is_not_refused(version: str, values: dict[str, str]) -> None:
    assert refused("sglang", version, TP8 | values) == []


def test_kimi_with_any_all_to_all_asserts_before_0_5_10() -> None:
    for backend in ("deepep", "mooncake", "flashinfer"):
        values = TP8 | {"moe-a2a-backend": backend, "moe-runner-backend": "flashinfer_cutlass"}
        for version, foretold in (("0.5.5", True), ("0.5.9", True), ("0.5.10", False)):
            texts = refused("sglang", version, values, name="kimi-k2.5-nvfp4")
            assert any("expert-location hook" in text for text in texts) == foretold
    plain = TP8 | {"ep-size": "8"}
    assert refused("sglang", "0.5.9", plain, name="kimi-k2.5-nvfp4") == []


def test_suspicious_launches_are_warned_of() -> None:
    def warned(version: str, values: dict[str, str]) -> str:
        return " ".join(each.text for each in problems("sglang", version, TP8 | values))

    assert "silently wrong" in warned("0.5.15", {"ep-size": "8", "ep-dispatch-algorithm": "static"})
    assert "each all-reduce of a verify step carries 56 KiB" in warned("0.5.9", EAGLE)
    assert "wait on one another" in warned("0.5.15", {"moe-a2a-backend": "deepep"})


def test_silent_changes_of_sglang() -> None:
    found = changed("sglang", "0.5.9", TP8 | {"moe-a2a-backend": "deepep", "ep-size": "2"})
    assert found["ep-size"] == ("2", "8")
    assert found["cuda-graph-max-bs"] == (None, "512")
    assert found["chunked-prefill-size"] == (None, "8192")
    newer = changed("sglang", "0.5.15", TP8)
    assert newer["cuda-graph-max-bs-decode"] == (None, "512")

    assert changed("sglang", "0.5.9", TP8 | EAGLE)["disable-overlap-schedule"] == (None, "true")
    assert "disable-overlap-schedule" not in changed("sglang", "0.5.15", TP8 | EAGLE)
    wrong = EAGLE | {"speculative-num-draft-tokens": "8"}
    assert changed("sglang", "0.5.9", TP8 | wrong)["speculative-num-draft-tokens"] == ("8", "4")
    spread = changed("sglang", "0.5.9", TP8 | SPREAD)
    assert spread["chunked-prefill-size"] == ("8192", "1024")
    eplb = TP8 | {"enable-eplb": "true", "ep-size": "8"}
    assert changed("sglang", "0.5.9", eplb)["ep-dispatch-algorithm"] == (None, "static")
    assert changed("sglang", "0.5.23", eplb)["ep-dispatch-algorithm"] == (None, "dynamic")


def test_the_default_fraction_is_the_engines_formula() -> None:
    # 512 + 1.5 * 8192 + 2 * 512 + 1024 MiB of 96 GiB; 2 GiB more for EAGLE before 0.5.23.
    assert changed("sglang", "0.5.9", TP8)["mem-fraction-static"] == (None, "0.849")
    assert changed("sglang", "0.5.9", TP8 | EAGLE)["mem-fraction-static"] == (None, "0.828")
    assert changed("sglang", "0.5.23", TP8 | EAGLE)["mem-fraction-static"] == (None, "0.849")


def test_an_overlap_that_is_asked_for_stays() -> None:
    asked = scene("sglang", "0.5.9", TP8 | EAGLE, env={"SGLANG_ENABLE_SPEC_V2": "True"})
    names = [each.name for each in settle(SILENTS["sglang"], asked).overrides]
    assert "disable-overlap-schedule" not in names
    tree = scene("sglang", "0.5.9", TP8 | TREE, env={"SGLANG_ENABLE_SPEC_V2": "1"})
    assert any("drafts chains alone" in each.text for each in judge(RULES["sglang"], tree))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"enable-eplb": "true"}, "needs enable-expert-parallel"),
        ({"eplb-config": '{"num_redundant_experts": 8}'}, "redundant experts need enable-eplb"),
        ({"eplb-config.communicator": "pynccl"}, "set use_async to false"),
        ({"tensor-parallel-size": "7"}, "attention heads"),
        (
            {
                "enable-eplb": "true",
                "enable-expert-parallel": "true",
                "eplb-config": '{"num_redundant_experts": 3}',
            },
            "259 experts",
        ),
    ],
)
def test_refusals_of_vllm(values: dict[str, str], words: str) -> None:
    base = {"tensor-parallel-size": "8"}
    assert any(words in text for text in refused("vllm", "0.33.0", base | values))
    assert refused("vllm", "0.33.0", base) == []


def test_vllm_without_data_parallelism_has_no_all_to_all() -> None:
    base = {"tensor-parallel-size": "8", "all2all-backend": "deepep_low_latency"}
    assert any("not used with TP alone" in each.text for each in problems("vllm", "0.33", base))
    spread = base | {"data-parallel-size": "2"}
    assert problems("vllm", "0.33", spread) == []


def test_silent_changes_of_vllm() -> None:
    found = changed("vllm", "0.33.0", {"tensor-parallel-size": "8", "all2all-backend": "pplx"})

    assert found["all2all-backend"] == ("pplx", "allgather_reducescatter")
    assert found["gpu-memory-utilization"] == (None, "0.92")
    assert found["max-num-seqs"] == (None, "1024")
    assert found["max-cudagraph-capture-size"] == (None, "512")
    assert changed("vllm", "0.16.0", {})["gpu-memory-utilization"] == (None, "0.9")


def test_every_rule_names_a_flag_that_some_version_has() -> None:
    for engine, rules in RULES.items():
        tables = [load_table(engine, version) for version in ("0.5.9", "0.33.0", "")]
        silents = [each.flag for each in SILENTS[engine] if not each.flag.isupper()]
        for name in [*(rule.flag for rule in rules), *silents]:
            assert any(table.find(name) for table in tables), name


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["none", "deepep", "flashinfer"]),
    st.sampled_from(["0.5.9", "0.5.15", "0.5.23"]),
)
def test_settling_twice_changes_nothing_more(tp: int, ep: int, a2a: str, version: str) -> None:
    values = {"tp-size": str(tp), "ep-size": str(ep), "moe-a2a-backend": a2a}
    once = settle(SILENTS["sglang"], scene("sglang", version, values)).scene

    assert settle(SILENTS["sglang"], once).overrides == ()
