"""The steps of looking at a hang: each leaves a file in the evidence and says one sentence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import msgspec

from panel.domain.gpu import Gpu
from panel.domain.hang import Suspicion
from panel.domain.stacks import Stacks
from panel.probes.collectives import compare, flight, ras
from panel.probes.collectives.ras_status import Status, parse_json, parse_text, standing_still
from panel.probes.hang import core
from panel.probes.hang.ladder import Outcome
from panel.probes.hang.look import Standing, gpu_words, ledger_words
from panel.probes.hang.look import laggards as _laggards
from panel.probes.stacks.grouping import REQUESTS, STOPPED, meeting
from panel.supervisor.evidence import write_json
from panel.supervisor.launch import Launch
from panel.supervisor.stacks import take_stacks

APART_S = 5.0
_DUMP_S = 15.0
_CORE_S = 20.0
"""A client waits no longer for a step; the core may take longer to be written."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What step 0 leaves."""

    suspicion: Suspicion | None
    standings: tuple[Standing, ...]
    gpus: tuple[Gpu, ...]


async def look(launch: Launch, suspicion: Suspicion | None, gpus: tuple[Gpu, ...]) -> Outcome:
    """Put beats, ledger and GPUs together."""
    standings = ledger(launch)
    words = [suspicion.text if suspicion else _beat_words(launch), ledger_words(standings)]
    words += [text for text in (gpu_words(gpus),) if text]
    sight = Sight(suspicion=suspicion, standings=standings, gpus=gpus)
    return Outcome("; ".join(words), _save(launch, "look", sight))


def _beat_words(launch: Launch) -> str:
    ages = [beat.age for beat in launch.samples.beats if beat is not None and beat.age is not None]
    return f"the oldest beat came {max(ages):.1f} s ago" if ages else "the ranks have no beats"


async def ask_nccl(launch: Launch) -> Outcome:
    """Ask NCCL twice and compare what did not move in between."""
    address = ras_address({**os.environ, **launch.spec.env})
    try:
        before, _ = await asyncio.to_thread(_status, address)
        await asyncio.sleep(APART_S)
        now, text = await asyncio.to_thread(_status, address)
    except (ras.RasError, ValueError) as error:
        return Outcome(f"NCCL does not tell: {error}")
    file = _save_text(launch, "ras", text)
    silent = [f"rank {rank}" for ranks in now.missing.values() for rank in ranks]
    if silent:
        return Outcome(f"NCCL gets no answer from {', '.join(silent)}", file)
    laggards = compare.count_laggards(standing_still(before, now))
    return Outcome(compare.words(laggards) or "NCCL sees no rank behind", file)


async def stacks(launch: Launch) -> Outcome:
    """Take the stacks of all ranks."""
    found = await take_stacks(launch, "hang")
    return Outcome(odd_words(found), found.file)


async def flight_recorder(launch: Launch) -> Outcome:
    """Have every rank dump its flight recorder, and compare."""
    folder = launch.folder.flight
    ranks = range(launch.spec.world_size)
    missing = await asyncio.to_thread(flight.dump, folder, ranks, _DUMP_S)
    files = {rank: flight.dump_file(folder, rank) for rank in ranks if rank not in missing}
    if not files:
        return Outcome("no rank dumped its flight recorder")
    try:
        newest = await asyncio.to_thread(flight.analyse, files)
    except ValueError as error:
        return Outcome(str(error), "flight")
    words = compare.words(compare.flight_laggards(newest))
    words = words or "; ".join(compare.flight_mismatches(newest))
    return Outcome(words or "all ranks are in the same collective", "flight")


async def cuda_core(launch: Launch, suspicion: Suspicion | None) -> Outcome:
    """Take a core of the kernels of the first rank that stands still, else of the lowest."""
    pids = living(launch)
    late = _laggards(ledger(launch)) or (suspicion.ranks if suspicion else ())
    rank = next((each for each in (*late, *sorted(pids)) if each in pids), None)
    if rank is None:
        return Outcome("no rank is alive")
    env = launch.spec.env
    try:
        file, whole = await asyncio.to_thread(core.take, env, pids[rank], _CORE_S)
    except OSError as error:
        return Outcome(f"rank {rank} takes no order for a core: {error}")
    if file is None:
        return Outcome(f"rank {rank} has not begun a core within {_CORE_S:.0f} s")
    if not whole:
        return Outcome(f"rank {rank} still writes {file}; read it with cuda-gdb when it has ended")
    return Outcome(f"rank {rank}: {await asyncio.to_thread(core.kernels, file)}", str(file))


def living(launch: Launch) -> dict[int, int]:
    """Return the pids of the ranks that live, by rank."""
    return {
        process.rank: process.pid
        for process in launch.run.processes.values()
        if process.rank is not None and process.exited is None
    }


def ledger(launch: Launch) -> tuple[Standing, ...]:
    """Return where the ranks stand in the meetings of our own engine; nothing of one that does not
    count. A rank that stood still before its first meeting has come to none."""
    standings = tuple(
        Standing(rank, beat.meetings, beat.waiting)
        for rank, beat in enumerate(launch.samples.beats)
        if beat is not None
    )
    return standings if any(each.entered for each in standings) else ()


def ras_address(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return where NCCL's service listens under this environment."""
    host, _, port = environ.get("NCCL_RAS_ADDR", "").rpartition(":")
    return (host or "localhost", int(port)) if port.isdecimal() else ("localhost", ras.PORT)


def odd_words(found: Stacks) -> str:
    """Return who stands where, in one sentence."""
    groups = [group for group in found.groups if group.ranks]
    if len(groups) < 2:
        return "all ranks stand at the same place"
    odd, *rest = groups
    if odd.waits == REQUESTS and len({meeting(each.frames) for each in rest}) == 1:
        return f"rank {odd.ranks[0]} waits for requests, the others for its next step"
    who = f"rank{'s' if odd.ranks[1:] else ''} {', '.join(map(str, odd.ranks))}"
    states = {each.state for each in found.processes if each.rank in odd.ranks}
    stopped = "stopped by a signal in " if states <= set(STOPPED) else ""
    met = {meeting(each.frames) for each in groups}
    if not stopped and len(met) == 1 and met != {()}:
        return "all ranks wait in the same meeting"
    return f"{who} apart from the others: {stopped}{odd.frames[0] if odd.frames else 'no stack'}"


def _status(address: tuple[str, int]) -> tuple[Status, str]:
    try:
        text = ras.ask(address, json=True)
        return parse_json(text), text
    except ras.RasError:
        text = ras.ask(address, json=False)
        return parse_text(text), text


def _save(launch: Launch, step: str, value: msgspec.Struct) -> str:
    path = launch.folder.path / "hang" / f"{launch.t:010.3f}-{step}.json"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, value)
    except OSError:
        return ""
    return f"hang/{path.name}"


def _save_text(launch: Launch, step: str, text: str) -> str:
    path = launch.folder.path / "hang" / f"{launch.t:010.3f}-{step}.txt"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(text)
    except OSError:
        return ""
    return f"hang/{path.name}"
