"""A profile over several nodes: what each is asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from panel.domain.errors import UsageError
from panel.domain.flags import Hardware, Installation, Profile, ProfileNode, Request
from panel.engines import find_engine
from panel.planning.build import build_plan, resolve_flags
from panel.planning.nodes import node_problems, node_recipes

NODES = (
    ProfileNode(name="a", address="10.0.0.1", env={"NCCL_SOCKET_IFNAME": "eth1"}),
    ProfileNode(name="b", address="10.0.0.2", ssh="ops@b", flags={"port": "31000"}),
)


def profile(engine: str, **flags: str) -> Profile:
    return Profile(
        name="wide",
        engine=engine,
        installation=Installation(version={"sglang": "0.5.15", "vllm": "0.24.0"}.get(engine, "")),
        hardware=Hardware(gpus=4, memory=96 << 30),
        flags={name.replace("_", "-"): text for name, text in flags.items()},
        env={"NCCL_DEBUG": "WARN"},
        nodes=NODES,
    )


def recipes(known: Profile) -> list[Profile]:
    return node_recipes(find_engine(known.engine).at(known.installation), known, known.flags)


def test_sglang_s_nodes_get_their_rank_and_one_meeting_place() -> None:
    first, second = recipes(profile("sglang", tp_size="8", model_path="/srv/m"))

    assert first.flags == {
        "tp-size": "8",
        "model-path": "/srv/m",
        "nnodes": "2",
        "node-rank": "0",
        "dist-init-addr": "10.0.0.1:20000",
    }
    assert second.flags == first.flags | {"node-rank": "1", "port": "31000"}
    assert (first.nodes, second.nodes) == ((), ())
    assert first.env == {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "eth1"}
    assert second.env == {"NCCL_DEBUG": "WARN"}


def test_vllm_s_other_nodes_have_no_api() -> None:
    first, second = recipes(profile("vllm", tensor_parallel_size="8", model="/srv/m"))

    assert {"nnodes": "2", "node-rank": "0", "master-addr": "10.0.0.1"}.items() <= (
        first.flags.items()
    )
    assert "headless" not in first.flags
    assert (second.flags["node-rank"], second.flags["headless"]) == ("1", "true")
    engine = find_engine("vllm").at(second.installation)
    job = engine.command(second.flags, Path("/x/000001")).processes[0]
    assert "--headless" in job.argv
    assert job.argv[job.argv.index("--node-rank") + 1] == "1"


def test_a_meeting_place_of_the_profile_has_its_way() -> None:
    first, second = recipes(profile("sglang", tp_size="8", dist_init_addr="10.9.0.1:5000"))
    assert {first.flags["dist-init-addr"], second.flags["dist-init-addr"]} == {"10.9.0.1:5000"}


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (profile("sglang", tp_size="7"), "7 ranks cannot be shared by 2 nodes"),
        (profile("sglang", tp_size="8", node_rank="1"), "node-rank is set for each node"),
        (profile("builtin", tp_size="8"), "the embedded engine runs on one node only"),
    ],
)
def test_what_cannot_be_shared_is_refused(known: Profile, words: str) -> None:
    engine = find_engine(known.engine).at(known.installation)
    problems = node_problems(engine, known, known.flags)
    assert [each.severity for each in problems] == ["refusal"]
    assert words in problems[0].text


def test_the_plan_is_for_the_gpus_of_all_nodes_and_needs_no_engine_here() -> None:
    known = profile("sglang", tp_size="8", model_path="/srv/m")
    engine = find_engine("sglang").at(known.installation)
    request = Request(profile="wide")
    plan = build_plan(engine, known, request)
    assert (plan.nodes, plan.world_size) == (("a", "b"), 8)
    assert not plan.refused, plan.problems

    alone = msgspec.structs.replace(known, nodes=())
    refusals = [each.text for each in build_plan(engine, alone, request).problems]
    assert any("8 ranks, but 4 GPUs" in text for text in refusals)
    assert resolve_flags(known, request) == known.flags


def test_the_embedded_engine_says_so_itself() -> None:
    with pytest.raises(UsageError, match="one node only"):
        find_engine("builtin").node_flags(0, 2, "10.0.0.1")
