"""When a hang is suspected, and what comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.gpu import Gpu, GpuSample
from panel.domain.phases import Phase
from panel.probes.hang.ladder import AUTOMATIC, Means, Outcome, next_rung, plan
from panel.probes.hang.look import Standing, gpu_words, laggards, ledger_words
from panel.probes.hang.suspect import Pulse, patience, suspect


def gang(**ages: float) -> list[Pulse]:
    return [Pulse(rank, Phase.SERVING, ages.get(f"r{rank}", 0.1)) for rank in range(8)]


def test_a_gang_that_beats_is_not_suspected() -> None:
    assert suspect(gang(), 100.0) is None
    assert suspect([], 100.0) is None


def test_who_is_silent_and_since_when() -> None:
    found = suspect(gang(r3=12.0), 100.0)
    assert found is not None
    assert (found.ranks, found.since) == ((3,), 88.0)
    assert found.text == "rank 3 without a beat for 12 s in serving"
    everybody = suspect([pulse._replace(age=30.0) for pulse in gang()], 100.0)
    assert everybody is not None
    assert everybody.text.startswith("8 of 8 ranks")


@pytest.mark.parametrize("phase", [Phase.CAPTURE, Phase.WEIGHTS, Phase.WARMUP])
def test_slow_phases_get_more_time(phase: Phase) -> None:
    assert patience(phase) > patience(Phase.SERVING)
    pulses = [Pulse(0, phase, patience(phase) - 1)]
    assert suspect(pulses, 500.0) is None
    assert suspect([Pulse(0, phase, patience(phase) + 1)], 500.0) is not None


@given(st.lists(st.tuples(st.sampled_from(list(Phase)), st.floats(0, 1e4))))
def test_only_those_over_their_limit_are_named(ranks: list[tuple[Phase, float]]) -> None:
    pulses = [Pulse(rank, phase, age) for rank, (phase, age) in enumerate(ranks)]
    found = suspect(pulses, 1e5)
    late = tuple(pulse.rank for pulse in pulses if pulse.age > patience(pulse.phase))
    assert (found.ranks if found else ()) == late


def test_the_ladder_goes_up_by_itself_as_far_as_it_is_harmless() -> None:
    done: dict[str, Outcome] = {}
    taken = []
    while (rung := next_rung(plan(Means(), done), automatic=True)) is not None:  # type: ignore[arg-type]
        taken.append(rung.step)
        done[rung.step] = Outcome("seen", "file")
    assert tuple(taken) == AUTOMATIC
    rungs = plan(Means(), done)  # type: ignore[arg-type]
    assert [rung.number for rung in rungs] == [0, 1, 2, 3, 4]
    assert rungs[0].result == "seen"
    following = next_rung(rungs, automatic=False)
    assert following is not None
    assert following.step == "flight"


def test_what_cannot_be_done_is_passed_over_and_says_why() -> None:
    means = Means(ras="no NCCL", stacks="Yama")
    rungs = plan(means, {"look": Outcome("")})
    assert next_rung(rungs, automatic=True) is None
    assert [rung.refused for rung in rungs] == ["", "no NCCL", "Yama", "", ""]


def standings(*entered: tuple[int, bool]) -> list[Standing]:
    return [Standing(rank, count, waiting) for rank, (count, waiting) in enumerate(entered)]


def test_the_ledger_names_the_rank_that_never_came() -> None:
    found = standings((4711, True), (4711, True), (4710, False), (4711, True))
    assert laggards(found) == (2,)
    assert ledger_words(found) == "rank 2 never entered meeting 4711; rank 2 left meeting 4710"


def test_a_rank_that_waits_elsewhere() -> None:
    words = ledger_words(standings((9, True), (7, True), (7, True)))
    assert words == "ranks 1, 2 never entered meeting 9; rank 1 waits in meeting 7"


def test_a_gang_in_motion_has_no_laggard() -> None:
    assert laggards(standings((5, False), (4, False))) == ()
    assert "nobody is behind" in ledger_words(standings((5, False), (5, False)))
    assert "wake-up was lost" in ledger_words(standings((5, True), (5, True)))
    assert "no ledger" in ledger_words(())


def _gpu(rank: int | None, util: int | None, power: float) -> Gpu:
    sample = GpuSample(
        index=rank or 0, uuid="", bus_id="", name="", util=util, power=power, power_limit=600.0
    )
    return Gpu(sample=sample, rank=rank)


def test_gpus_that_spin_and_gpus_that_idle() -> None:
    gpus = [_gpu(0, 100, 140.0), _gpu(1, 100, 140.0), _gpu(2, 0, 90.0), _gpu(3, 100, 500.0)]
    assert gpu_words(gpus) == (
        "GPUs of ranks 0, 1 spin at low power, as in a collective, those of ranks 2 do nothing"
    )
    assert gpu_words([_gpu(None, 100, 100.0), _gpu(1, None, 0.0)]) == ""
