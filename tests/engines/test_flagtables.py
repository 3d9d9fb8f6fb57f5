"""The shipped flag tables: facts of each version, renames, checks, command lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.errors import UsageError
from panel.engines.flagsource import read_flags
from panel.engines.flagtable import FlagTable, known_versions, load_table

SGLANG = ("0.5.9", "0.5.15", "0.5.23")
VLLM = ("0.24.0", "0.33.0")
ALL = [("sglang", version) for version in SGLANG] + [("vllm", version) for version in VLLM]


def test_versions_are_in_order() -> None:
    assert known_versions("sglang") == SGLANG
    assert known_versions("vllm") == VLLM


@pytest.mark.parametrize(
    ("engine", "version", "table"),
    [
        ("sglang", "0.5.9", "0.5.9"),
        ("sglang", "0.5.10.post1", "0.5.9"),
        ("sglang", "0.5.5", "0.5.9"),
        ("sglang", "1.0", "0.5.23"),
        ("vllm", "", "0.33.0"),
    ],
)
def test_the_nearest_table_before_a_version_is_taken(engine: str, version: str, table: str) -> None:
    assert load_table(engine, version).flags == load_table(engine, table).flags


def test_unknown_engine_has_no_table() -> None:
    with pytest.raises(UsageError, match="no flag table of mlc"):
        load_table("mlc")


@pytest.mark.parametrize(("engine", "version"), ALL)
def test_names_are_unique_and_the_common_ones_explained(engine: str, version: str) -> None:
    table = load_table(engine, version)
    names = [name for flag in table.flags for name in (flag.name, *flag.aliases)]

    assert len(names) == len(set(names))
    assert len(table.flags) > 200
    common = [flag for flag in table.flags if flag.common]
    assert len(common) >= 12
    assert all(flag.help and flag.group for flag in common)
    assert {flag.toggle for flag in table.flags} == {"ep", "spec", "graphs", None}


@pytest.mark.parametrize("version", SGLANG)
def test_facts_of_sglang(version: str) -> None:
    table = load_table("sglang", version)

    for name, kind, default in [
        ("tp-size", "int", "1"),
        ("ep-size", "int", "1"),
        ("moe-a2a-backend", "choice", "none"),
        ("mem-fraction-static", "float", None),
        ("port", "int", "30000"),
        ("host", "str", "127.0.0.1"),
        ("decode-log-interval", "int", "40"),
        ("enable-dp-attention", "switch", "false"),
        ("dp-size", "int", "1"),
        ("eplb-rebalance-num-iterations", "int", "1000"),
    ]:
        flag = table.find(name)
        assert flag is not None
        assert (flag.name, flag.kind, flag.default) == (name, kind, default)
    backend = table.find("moe-a2a-backend")
    assert backend is not None
    assert {"none", "deepep", "mooncake", "flashinfer"} <= set(backend.choices)
    assert ("megamoe" in backend.choices) == (version != "0.5.9")
    alias = table.find("tensor-parallel-size")
    assert alias is not None
    assert alias.name == "tp-size"


@pytest.mark.parametrize("version", VLLM)
def test_facts_of_vllm(version: str) -> None:
    table = load_table("vllm", version)

    for name, kind, default in [
        ("tensor-parallel-size", "int", "1"),
        ("enable-expert-parallel", "switch", "false"),
        ("all2all-backend", "choice", "allgather_reducescatter"),
        ("gpu-memory-utilization", "float", "0.92"),
        ("data-parallel-rpc-port", "int", None),
        ("cudagraph-capture-sizes", "ints", None),
    ]:
        flag = table.find(name)
        assert flag is not None
        assert (flag.name, flag.kind) == (name, kind)
        assert default is None or flag.default == default
    assert (table.find("watchdog-config") is not None) == (version == "0.33.0")
    short = table.find("tp")
    assert short is not None
    assert short.name == "tensor-parallel-size"


def test_a_rename_is_followed_with_a_note() -> None:
    for version in ("0.5.15", "0.5.23"):
        settled = load_table("sglang", version).settle(
            {"cuda-graph-max-bs": "128", "enable-flashinfer-allreduce-fusion": "true"}
        )
        assert settled.values == {
            "cuda-graph-max-bs-decode": "128",
            "flashinfer-allreduce-fusion-backend": "auto",
        }
        assert settled.notes[0] == (
            "cuda-graph-max-bs is cuda-graph-max-bs-decode since sglang 0.5.15"
        )
    assert load_table("sglang", "0.5.9").settle({"cuda-graph-max-bs": "128"}).notes == ()


@pytest.mark.parametrize(
    ("engine", "version", "values", "words"),
    [
        ("sglang", "0.5.23", {"cuda-graph-max": "1"}, "ambiguous in sglang 0.5.23"),
        ("vllm", "0.33.0", {"swap-space": "4"}, "gone since vllm 0.24.0"),
        ("sglang", "0.5.9", {"tp-siz": "8"}, "did you mean tp-size"),
        ("sglang", "0.5.9", {"attn-dp-size": "8"}, "no flag of sglang 0.5.9"),
        ("sglang", "0.5.9", {"tp-size": "eight"}, "not a whole number"),
        ("sglang", "0.5.9", {"tp-size": "1.5"}, "not a whole number"),
        ("sglang", "0.5.9", {"mem-fraction-static": "most"}, "not a number"),
        ("sglang", "0.5.9", {"cuda-graph-bs": "1,x"}, "list of whole numbers"),
        ("sglang", "0.5.9", {"enable-eplb": "yes"}, "true or false"),
        ("sglang", "0.5.9", {"moe-a2a-backend": "deep"}, "did you mean deepep"),
        ("sglang", "0.5.9", {"moe-a2a-backend": "megamoe"}, "is no choice"),
    ],
)
def test_what_cannot_be_passed_is_refused(
    engine: str, version: str, values: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        load_table(engine, version).check(values)


def test_command_lines_there_and_back() -> None:
    table = load_table("sglang", "0.5.9")
    typed = "--model /m --tp 8 --cuda-graph-bs 1 2 4 --chunked-prefill-size -1 --enable-metrics"
    values = table.parse(typed.split())

    assert values == {
        "model-path": "/m",
        "tp-size": "8",
        "cuda-graph-bs": "1,2,4",
        "chunked-prefill-size": "-1",
        "enable-metrics": "true",
    }
    assert table.parse(table.argv(values)) == values
    with pytest.raises(UsageError, match="belongs to no flag"):
        table.parse(["/m", "--tp", "8"])


def test_switches_of_vllm_come_in_pairs() -> None:
    table = load_table("vllm", "0.33.0")
    values = table.parse(["--no-enable-prefix-caching", "-tp=2", "-cc.cudagraph_mode=FULL"])

    assert values == {
        "enable-prefix-caching": "false",
        "tensor-parallel-size": "2",
        "compilation-config.cudagraph_mode": "FULL",
    }
    assert "--no-enable-prefix-caching" in table.argv(values)
    table.check(values)


NAMES = [flag for flag in load_table("sglang", "0.5.23").flags if flag.kind == "int"]


@given(st.dictionaries(st.sampled_from([flag.name for flag in NAMES]), st.integers(0, 9999)))
def test_numbers_survive_the_command_line(numbers: dict[str, int]) -> None:
    table = load_table("sglang", "0.5.23")
    values = {name: str(number) for name, number in numbers.items()}

    assert table.parse(table.argv(values)) == values


OLD_STYLE = """
class ServerArgs:
    tp_size: int = 1
    backend: str = CHOICES[0]

    def add_cli_args(parser):
        parser.add_argument("--tp-size", "--tp", type=int, default=ServerArgs.tp_size, help="x")
        parser.add_argument("--backend", type=str, choices=CHOICES, default="a")
        parser.add_argument("--quiet", action="store_true")
        parser.add_argument("--sizes", type=int, nargs="+")

CHOICES = ["a", "b"]
"""
NEW_STYLE = """
class Parallel:
    ep_size: A[int, Arg(help="x", aliases=["--ep"])] = 1
    dispatch: A[Optional[Literal["static", "lp"]], "x"] = None
    names: A[Optional[List[str]], "x"] = None
    inner: A[int, Derived("x")] = 1
    hidden: A[int, Arg(help="x", no_cli=True)] = 1
"""


def flags_of(package: Path) -> dict[str, tuple[str, str | None]]:
    return {flag.name: (flag.kind, flag.default) for flag in read_flags("sglang", package)}


def test_source_of_both_styles_is_read(tmp_path: Path) -> None:
    fields = tmp_path / "srt" / "arg_groups" / "fields"
    fields.mkdir(parents=True)
    (tmp_path / "srt" / "server_args.py").write_text(OLD_STYLE)
    (fields / "parallel.py").write_text(NEW_STYLE)

    assert flags_of(tmp_path) == {
        "tp-size": ("int", "1"),
        "backend": ("choice", "a"),
        "quiet": ("switch", "false"),
        "sizes": ("ints", None),
        "ep-size": ("int", "1"),
        "dispatch": ("choice", None),
        "names": ("strs", None),
    }
    table = FlagTable(engine="sglang", version="1", flags=read_flags("sglang", tmp_path))
    alias = table.find("ep")
    assert alias is not None
    assert alias.name == "ep-size"


def test_a_folder_without_source_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no source of sglang's flags"):
        read_flags("sglang", tmp_path)
