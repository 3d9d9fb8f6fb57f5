"""Phases and progress of ranks from the one log that they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.domain.phases import Phase
from panel.engines.base import Progress
from panel.engines.logpulse import LogPulse
from panel.triage.folder import read_facts

CONSTRUCTED = Path(__file__).parents[1] / "support/captures"
CAPTURES = Path(__file__).parents[3] / "shared/reallogs"


def folders() -> Iterator[object]:
    yield from sorted(CONSTRUCTED.iterdir())
    if CAPTURES.is_dir():
        yield from sorted(CAPTURES.glob("*_clean"))
    else:
        mark = pytest.mark.skip(reason="no captures of real engines beside the checkout")
        yield pytest.param(CAPTURES, marks=mark)


def standings(folder: Path, log: Path, sizes: Iterator[int]) -> list[tuple[Progress | None, ...]]:
    """Write the captured log piece by piece; return what the ranks said after each."""
    facts = read_facts(folder / "launch.json")
    assert facts is not None
    data = (folder / "engine.log").read_bytes()
    log.write_bytes(b"")
    pulse = LogPulse(log, facts.engine, facts.world_size)
    found = []
    with log.open("ab", buffering=0) as file:
        while data:
            size = next(sizes)
            file.write(data[:size])
            data = data[size:]
            found.append(pulse.read())
    pulse.close()
    return found


def through(said: list[tuple[Progress | None, ...]], rank: int) -> list[str]:
    """Return the phases of a rank, each once."""
    phases = [each[rank].phase for each in said if each[rank] is not None]
    return list(dict.fromkeys(map(str, phases)))


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_every_rank_goes_from_its_groups_to_serving(folder: Path, tmp_path: Path) -> None:
    said = standings(folder, tmp_path / "engine.log", iter(lambda: 100, 0))

    for rank in (0, 1):
        order = [phase for phase in through(said, rank) if phase != Phase.ARGS]
        assert order[:2] == ["dist_init", "weights"]
        assert order[-1] == "serving"
        assert order == sorted(order, key=list(Phase).index)
    last = said[-1]
    assert [each.phase for each in last if each] == ["serving", "serving"]
    assert all(each is not None and each.age is None for each in last)


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_progress_bars_are_read_while_they_are_drawn(name: str, tmp_path: Path) -> None:
    said = standings(CONSTRUCTED / name, tmp_path / "engine.log", iter(lambda: 10, 0))

    bars = {
        (str(each.phase), each.done, each.total, each.detail)
        for ranks in said
        for each in ranks
        if each and each.total
    }
    assert ("weights", 4, 4, 0) in bars
    assert ("capture", 1, 2, 1 if name == "sglang" else 0) in bars
    assert {phase for phase, *_ in bars} == {"weights", "capture"}


@pytest.mark.parametrize(
    ("text", "phase", "progress"),
    [
        ("Loading safetensors checkpoint shards:  98% Completed | 159/163 [01:02<00:01,  2.5it/s]",
         "weights", (159, 163, 0)),
        ("Multi-thread loading shards: 5% Completed | 13/163 [00:01<01:00,  2.5it/s]",
         "weights", (13, 163, 0)),
        ("Loading: x\rLoading safetensors checkpoint shards: 12% Completed | 12/100 [0:1<0:2]",
         "weights", (12, 100, 0)),
        ("Capturing batches (bs=128 avail_mem=3.10 GB):  48%|####8     | 17/35 [00:10<00:11]",
         "capture", (17, 35, 128)),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  30%|###  | 20/67 [00:01]",
         "capture", (20, 67, 0)),
    ],
)  # fmt: skip
def test_bars_as_engines_draw_them(
    text: str, phase: str, progress: tuple[int, int, int], tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"[2026-05-04 10:00:01 TP0] Init torch distributed begin.\n{text}")
    pulse = LogPulse(log, "sglang", 2)
    said = pulse.read()
    pulse.close()
    for each in said:
        assert each is not None
        assert (each.phase, (each.done, each.total, each.detail)) == (phase, progress)


@pytest.mark.parametrize("name", ["sglang", "vllm"])
@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 900), min_size=1))
def test_any_chunking_ends_alike(
    name: str, sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("log") / "engine.log"
    whole = standings(CONSTRUCTED / name, log, iter(lambda: 1 << 20, 0))[-1]

    def cycle() -> Iterator[int]:
        while True:
            yield from sizes

    assert standings(CONSTRUCTED / name, log, cycle())[-1] == whole
    assert whole[0] is not None
    assert "throughput" in whole[0].said or name == "vllm"


def test_a_storm_is_skipped_while_serving(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    ready = b"[2026-05-04 10:00:01] The server is fired up and ready to roll!\n"
    line = b"[2026-05-04 10:00:02 TP1] Decode batch. #running-req: %d\n"
    log.write_bytes(ready)
    pulse = LogPulse(log, "sglang", 2)
    pulse.read()
    with log.open("ab") as file:
        file.writelines(line % number for number in range(50_000))

    _, last = pulse.read()
    pulse.close()

    assert last is not None
    assert (last.phase, last.said) == ("serving", "Decode batch. #running-req: 49999")


def test_the_lone_rank_is_whoever_speaks(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("(EngineCore pid=7) INFO 05-04 10:00:01 [m.py:1] Starting to load model m...\n")
    pulse = LogPulse(log, "vllm", 1)
    (only,) = pulse.read()
    pulse.close()
    assert only is not None
    assert (only.phase, only.said) == ("weights", "Starting to load model m...")


def test_without_a_log_there_is_no_pulse(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LogPulse(tmp_path / "engine.log", "vllm", 1)
