"""The launch that cost its operators a day, planned before anything is started."""

from __future__ import annotations

import msgspec
import pytest

from panel.config.home import find_home
from panel.config.profiles import load_profile
from panel.domain.flags import Profile, Request
from panel.domain.plan import Plan, Problem
from panel.engines import find_engine
from panel.planning.build import build_plan, change_request

GIB = 1 << 30
A2A = {"ep-size": "8", "moe-a2a-backend": "flashinfer"}
EAGLE = {
    "speculative-algorithm": "EAGLE3",
    "speculative-draft-model-path": "/draft",
    "speculative-num-steps": "3",
    "speculative-eagle-topk": "1",
    "speculative-num-draft-tokens": "4",
}


@pytest.fixture
def profile() -> Profile:
    return load_profile(find_home({"MOEPANEL_HOME": "/nowhere"}), "kimi-k2.5-8x96-sglang")


def plan(profile: Profile, wanted: dict[str, str], version: str = "0.5.9") -> Plan:
    profile = msgspec.structs.replace(
        profile, installation=msgspec.structs.replace(profile.installation, version=version)
    )
    engine = find_engine("sglang").at(profile.installation)
    request = change_request(engine, profile, Request(profile=profile.name), wanted)
    return build_plan(engine, profile, request)


def line(planned: Plan, category: str) -> int:
    return sum(each.predicted for each in planned.memory if each.category == category)


def refusals(planned: Plan) -> list[Problem]:
    """Return the refusals but for the engine, which need not be installed here."""
    return [
        each
        for each in planned.problems
        if each.severity == "refusal" and "not installed" not in each.text
    ]


@pytest.mark.parametrize(
    ("more", "gap", "workspace"), [({}, 5.43, 1.125), (EAGLE, 6.06, 1.754)], ids=["nvfp4", "eagle"]
)
def test_the_missing_memory_is_predicted_by_its_two_parts(
    profile: Profile, more: dict[str, str], gap: float, workspace: float
) -> None:
    without, with_a2a = plan(profile, more), plan(profile, A2A | more)

    assert without.fit is not None
    assert with_a2a.fit is not None
    missing = (without.fit.after_weights - with_a2a.fit.after_weights) / GIB
    assert missing == pytest.approx(gap, abs=0.15)
    shared = line(with_a2a, "shared experts") - line(without, "shared experts")
    assert shared / GIB == pytest.approx(4.31, abs=0.01)
    assert line(with_a2a, "all-to-all workspace") / GIB == pytest.approx(workspace, abs=0.001)
    (told,) = [each.text for each in with_a2a.problems if "more of each GPU" in each.text]
    assert "4.31 GiB because each rank holds the shared experts whole" in told
    assert f"{workspace:.3f} GiB for its workspace" in told
    assert with_a2a.fit.estimated


def test_free_memory_after_the_weights_is_near_what_the_log_said(profile: Profile) -> None:
    fit = plan(profile, {}).fit

    assert fit is not None
    assert fit.after_weights / GIB == pytest.approx(21.7, abs=1.0)


def test_the_assertion_in_graph_capture_is_foretold(profile: Profile) -> None:
    assert refusals(plan(profile, {})) == []
    (refusal,) = refusals(plan(profile, A2A))

    assert refusal.flag == "moe-a2a-backend"
    assert "will assert in graph capture" in refusal.text
    assert "no expert-location hook" in refusal.text
    assert "take a2a none, or 0.5.10 or later" in refusal.text
    assert refusal.remedy == {"moe-a2a-backend": "none"}
    assert refusals(plan(profile, A2A | refusal.remedy)) == []


def test_later_versions_have_the_hook_and_then_ask_for_attention_dp(profile: Profile) -> None:
    assert refusals(plan(profile, A2A, "0.5.10")) == []
    for version in ("0.5.15", "0.5.23"):
        (refusal,) = refusals(plan(profile, A2A, version))
        assert "needs data-parallel attention over all 8 ranks" in refusal.text
    spread = A2A | {"enable-dp-attention": "true", "dp-size": "8"}
    # It may be launched as far as the rules go; attention whole on each rank leaves no memory.
    assert [each.flag for each in refusals(plan(profile, spread, "0.5.15"))] == [
        "mem-fraction-static"
    ]


def test_the_engines_own_fraction_leaves_no_room(profile: Profile) -> None:
    """Their first failure: out of memory, with the fraction that the engine chose itself."""
    bare = msgspec.structs.replace(
        profile,
        flags={name: text for name, text in profile.flags.items() if name != "mem-fraction-static"},
    )
    problem = next(each for each in refusals(plan(bare, A2A)) if each.flag == "mem-fraction-static")

    assert "does not fit: short by" in problem.text
    assert "smallest change that fits: " in problem.text
    mended = plan(bare, A2A | problem.remedy)
    assert all(each.flag == "moe-a2a-backend" for each in refusals(mended))
    assert mended.fit is not None
    assert mended.fit.kv_tokens > 0
    assert mended.fit.left >= 0


def test_what_speculation_changes_in_silence_is_told(profile: Profile) -> None:
    found = {each.name: each for each in plan(profile, EAGLE).overrides}

    assert found["max-running-requests"].requested is None
    assert found["max-running-requests"].resolved == "48"
    assert "set it to keep more" in found["max-running-requests"].reason
    assert found["disable-overlap-schedule"].resolved == "true"
    assert "SGLANG_ENABLE_SPEC_V2" in found["disable-overlap-schedule"].reason
    kept = plan(profile, EAGLE | {"max-running-requests": "256"})
    assert "max-running-requests" not in {each.name for each in kept.overrides}


def test_all_to_all_forces_ep(profile: Profile) -> None:
    (override,) = [
        each
        for each in plan(profile, {"moe-a2a-backend": "flashinfer"}).overrides
        if each.name == "ep-size"
    ]

    assert (override.requested, override.resolved) == (None, "8")


def test_dead_ends_of_the_story_are_told(profile: Profile) -> None:
    states = {each.path: each for each in plan(profile, {}).capabilities}

    assert states["FlashInfer all-reduce fusion"].state == "silently off"
    assert states["custom all-reduce"].state == "silently off"
    assert states["torch symmetric memory"].state == "refused"
    assert "0.5.23" in states["FlashInfer one-shot over PCIe"].unlock
    newer = {each.path: each for each in plan(profile, {}, "0.5.23").capabilities}
    assert newer["FlashInfer one-shot over PCIe"].state == "opt-in"
    asked = plan(profile, {"enable-flashinfer-allreduce-fusion": "true"})
    assert any("does nothing here" in each.text for each in asked.problems)
