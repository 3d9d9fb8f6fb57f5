"""Our engine as the panel sees it, and the plans made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from panel.domain.errors import UsageError
from panel.domain.flags import Profile, Request
from panel.domain.plan import Problem
from panel.engines import find_engine
from panel.engines.builtin import Builtin
from panel.planning.build import build_plan, change_request, resolve_flags
from panel.planning.rules.builtin import check_rules
from panel.server.heartbeat import HeartbeatFile
from panel.server.options import OPTIONS, parse
from panel.server.phases import Phase

ENGINE = Builtin()
TINY = Profile(name="tiny", engine="builtin", flags={"tp-size": "8", "port": "30000"})


def changed(
    wanted: dict[str, str], unset: tuple[str, ...] = (), base: Request | None = None
) -> Request:
    return change_request(ENGINE, TINY, base or Request(profile="tiny"), wanted, unset)


def flags(wanted: dict[str, str]) -> dict[str, str]:
    return resolve_flags(TINY, changed(wanted))


def test_unknown_engine() -> None:
    with pytest.raises(UsageError, match="known: builtin"):
        find_engine("sgl")


def test_flags_are_the_table() -> None:
    assert [flag.name for flag in ENGINE.flags()] == [option.name for option in OPTIONS]
    by_name = {flag.name: flag for flag in ENGINE.flags()}
    assert by_name["cuda-graph-bs"].default is None
    assert by_name["mem-fraction-static"].default == "0.85"


@pytest.mark.parametrize(
    ("neutral", "own"),
    [
        ({"ep": "on"}, {"ep-size": "8"}),
        ({"ep": "on", "tp-size": "4"}, {"ep-size": "4", "tp-size": "4"}),
        ({"ep": "off"}, {}),
        ({"ep": "2"}, {"ep-size": "2"}),
        ({"spec": "ngram"}, {"speculative-algorithm": "ngram"}),
        (
            {"spec": "ngram:3"},
            {"speculative-algorithm": "ngram", "speculative-num-steps": "3"},
        ),
        ({"spec": "off"}, {"speculative-algorithm": "off"}),
        (
            {"spec": "eagle3:2"},
            {"speculative-algorithm": "eagle3", "speculative-num-steps": "2"},
        ),
        ({"graphs": "off"}, {"disable-cuda-graph": "true"}),
        ({"graphs": "32"}, {"cuda-graph-max-bs": "32"}),
        ({"graphs": "1,4"}, {"cuda-graph-bs": "1,4"}),
        ({"ep": "on", "ep-size": "2"}, {"ep-size": "2"}),
    ],
)
def test_neutral_names(neutral: dict[str, str], own: dict[str, str]) -> None:
    assert changed(neutral).set == own


def test_graphs_replace_one_another() -> None:
    first = changed({"graphs": "1,4"})
    second = changed({"graphs": "8"}, base=first)
    off = changed({"graphs": "off"}, base=second)
    on = changed({"graphs": "1,2"}, base=off)

    assert second.set == {"cuda-graph-max-bs": "8"}
    assert on.set == {"cuda-graph-bs": "1,2"}


def test_drafts_are_those_of_their_algorithm() -> None:
    first = changed({"spec": "ngram:2"})
    same, other = changed({"spec": "ngram"}, base=first), changed({"spec": "eagle3"}, base=first)

    assert same.set == {"speculative-algorithm": "ngram", "speculative-num-steps": "2"}
    assert other.set == {"speculative-algorithm": "eagle3"}


def test_unset_takes_back_request_and_profile() -> None:
    first = changed({"spec": "ngram:2", "port": "1234"})
    second = changed({}, ("spec", "port"), first)

    assert second == Request(profile="tiny", set={}, unset=("port",))
    assert "port" not in resolve_flags(TINY, second)


@pytest.mark.parametrize(
    ("wanted", "unset", "words"),
    [
        ({"prt": "1"}, (), "did you mean port"),
        ({"ep": "many"}, (), "ep-size: 'many' is not a whole number"),
        ({"spec": "egle3"}, (), "not off, ngram.* or eagle3"),
        ({"spec": "ngram:99"}, (), "above 16"),
        ({"graphs": "a,b"}, (), "whole numbers"),
        ({"dtype": "float23"}, (), "did you mean float32"),
        ({"fault": "rank=9,phase=capture,kind=kill"}, (), "ranks are 0 to 7"),
        ({}, ("prt",), "did you mean port"),
    ],
)
def test_bad_input_names_the_way_out(
    wanted: dict[str, str],
    unset: tuple[str, ...],
    words: str,
) -> None:
    with pytest.raises(UsageError, match=words):
        changed(wanted, unset)


def test_chips() -> None:
    assert ENGINE.chips(flags({})) == ("tp8", "graphs≤16")
    wanted = {"ep": "on", "spec": "ngram:3", "graphs": "1,2,4"}
    assert ENGINE.chips(flags(wanted)) == ("tp8", "ep8", "ngram:3", "graphs≤4")
    assert ENGINE.chips(flags({"graphs": "off"})) == ("tp8", "no graphs")


def test_command_is_what_the_engine_parses(tmp_path: Path) -> None:
    values = flags({"graphs": "1,2"}) | ENGINE.evidence_flags(tmp_path)
    command = ENGINE.command(values, tmp_path)

    assert command.spawner is not None
    assert parse(command.spawner.argv).cuda_graph_bs == (1, 2)
    assert parse(command.spawner.argv).events_file == str(tmp_path / "events.jsonl")
    assert command.spawner.logs["rank-7"] == str(tmp_path / "rank-7.log")
    assert {*command.spawner.logs} == {*ENGINE.sources(values)}
    assert ENGINE.sources(values)["rank-3"] == 3


def test_pulse_reads_what_the_ranks_wrote(tmp_path: Path) -> None:
    assert ENGINE.pulse(tmp_path, 2) is None
    beats = HeartbeatFile(tmp_path / "heartbeats", 2, create=True)
    beats.beat(1, Phase.CAPTURE, 5, done=3, total=9, detail=8)

    pulse = ENGINE.pulse(tmp_path, 2)

    assert pulse is not None
    first, second = pulse.read()
    assert first is None
    assert second is not None
    assert second[:5] == ("capture", 3, 9, 8, 5)
    assert second.age < 10
    pulse.close()
    beats.close()


def test_missing_modules_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENGINE.missing() is None
    monkeypatch.setattr("panel.engines.builtin._NEEDED", ("torch", "no_such_module"))

    plan = build_plan(ENGINE, TINY, Request(profile="tiny"))

    assert plan.refused
    assert "no_such_module missing): pip install 'moepanel[engine]'" in plan.problems[0].text
    assert "[cuda12] or [cuda13]" in plan.problems[0].text


def test_plan_tells_origins_changes_and_no_secret() -> None:
    request = changed({"ep": "on", "api-key": "hush-hush"})
    plan = build_plan(ENGINE, TINY, request, before={"tp-size": "8", "port": "1", "seed": "3"})

    assert {flag.name: flag.origin for flag in plan.flags} == {
        "tp-size": "profile",
        "port": "profile",
        "ep-size": "request",
        "api-key": "request",
    }
    assert [(each.name, each.before, each.after) for each in plan.changes] == [
        ("api-key", None, "***"),
        ("ep-size", None, "8"),
        ("port", "1", "30000"),
        ("seed", "3", None),
    ]
    assert plan.world_size == 8
    assert request.set["api-key"] == "hush-hush"


def rules(**values: str) -> tuple[Problem, ...]:
    return check_rules({name.replace("_", "-"): text for name, text in values.items()})


@pytest.mark.parametrize(
    ("values", "flag", "words"),
    [
        ({"tp_size": "3"}, "tp-size", "8 attention heads; fitting: 1, 2, 4, 8"),
        ({"ep_size": "3"}, "ep-size", "does not divide tp-size 8"),
        ({"tp_size": "32", "ep_size": "32"}, "tp-size", "attention heads"),
        ({"model_path": "/no/such/folder"}, "model-path", "/no/such/folder"),
        ({"model_path": "relative/folder"}, "model-path", "full path"),
    ],
)
def test_refusals(values: dict[str, str], flag: str, words: str) -> None:
    (problem,) = rules(**values)

    assert (problem.severity, problem.flag) == ("refusal", flag)
    assert words in problem.text


def test_broken_model_folder_is_named(tmp_path: Path) -> None:
    (problem,) = rules(model_path=str(tmp_path))
    assert "no config.json" in problem.text
    config = tmp_path / "config.json"
    config.write_text("{")
    (problem,) = rules(model_path=str(tmp_path))
    assert str(config) in problem.text
    config.write_text(json.dumps({"model_type": "deepseek_v3"}))
    (problem,) = rules(model_path=str(tmp_path))
    assert "is missing" in problem.text


def test_batch_sizes_above_the_limits_are_a_warning_with_a_remedy() -> None:
    assert rules(cuda_graph_bs="1,2,16") == ()
    (problem,) = rules(cuda_graph_bs="1,24,32", cuda_graph_max_bs="8")

    assert problem.severity == "warning"
    assert "24, 32 are above cuda-graph-max-bs 8" in problem.text
    assert problem.remedy == {"max-running-requests": "32", "cuda-graph-max-bs": "32"}
    assert rules(cuda_graph_bs="1,32", disable_cuda_graph="true") == ()
