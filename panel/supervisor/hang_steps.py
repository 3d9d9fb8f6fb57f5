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
from panel.probes.hang.ladder import Outcome
from panel.probes.hang.look import Standing, gpu_words, ledger_words
from panel.probes.stacks.grouping import STOPPED
from panel.supervisor.evidence import write_json
from panel.supervisor.launch import Launch
from panel.supervisor.stacks import take_stacks

APART_S = 5.0
_DUMP_S = 15.0


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What step 0 leaves."""

    suspicion: Suspicion | None
    standings: tuple[Standing, ...]
    gpus: tuple[Gpu, ...]


async def look(launch: Launch, suspicion: Suspicion | None, gpus: tuple[Gpu, ...]) -> Outcome:
    """Put beats, ledger and GPUs together."""
    standings = ledger(launch)
    words = [suspicion.text if suspicion else "every rank beats", ledger_words(standings)]
    words += [text for text in (gpu_words(gpus),) if text]
    sight = Sight(suspicion=suspicion, standings=standings, gpus=gpus)
    return Outcome("; ".join(words), _save(launch, "look", sight))


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


def ledger(launch: Launch) -> tuple[Standing, ...]:
    """Return where the ranks stand in the meetings of our own engine."""
    return tuple(
        Standing(rank, beat.meetings, beat.waiting)
        for rank, beat in enumerate(launch.samples.beats)
        if beat is not None and beat.meetings
    )


def ras_address(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return where NCCL's service listens under this environment."""
    host, _, port = environ.get("NCCL_RAS_ADDR", "").rpartition(":")
    return (host or "localhost", int(port)) if port.isdecimal() else ("localhost", ras.PORT)


def odd_words(found: Stacks) -> str:
    """Return who stands where, in one sentence."""
    groups = [group for group in found.groups if group.ranks]
    if len(groups) < 2:
        return "all ranks stand at the same place"
    odd = groups[0]
    who = f"rank{'s' if odd.ranks[1:] else ''} {', '.join(map(str, odd.ranks))}"
    states = {each.state for each in found.processes if each.rank in odd.ranks}
    stopped = "stopped by a signal in " if states <= set(STOPPED) else ""
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
