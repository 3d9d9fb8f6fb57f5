"""Deaths that another process reports: an engine's monitor, torchrun, mpirun."""

from __future__ import annotations

import signal

from panel.logs.records import rank_of
from panel.triage.cause import Cause, subject
from panel.triage.deaths import code_kind, code_words
from panel.triage.mark import Mark
from panel.triage.scene import Scene

_REPLICAS = ("dp-size", "data-parallel-size", "dp", "attn-dp-size")


def find_told_death(scene: Scene) -> Cause | None:
    """Return the process that is reported dead first."""
    marks = [mark for mark in scene.live("death") if _code(mark) != -signal.SIGQUIT]
    banners = [mark for mark in marks if "local_rank" in mark.groups]
    if not marks:
        return None
    # The banner lists all that failed; the one that torchrun saw first comes last, by itself.
    mark = banners[-1] if banners and banners[0] is marks[0] else marks[0]
    signature = mark.signature
    assert signature is not None
    rank, code, name = _rank(scene, mark), _code(mark), mark.groups.get("name", "")
    roots = () if rank is None or signature.scope == "none" else (rank,)
    if rank is not None and "log" in mark.groups and _unread(scene, rank):
        return _elsewhere(scene, mark, roots)
    return Cause(
        signature.kind if code is None else code_kind(scene, code, signature.kind),
        roots,
        mark.t,
        subject(roots, f"the {name}" if name else "a rank"),
        signature.what if code is None else code_words(scene, code),
        "low" if mark in banners else "high" if roots or signature.scope == "none" else "medium",
        scene.phase(rank),
        (mark,),
    )


def _unread(scene: Scene, rank: int) -> bool:
    """Return whether the log of a rank is not among the evidence: each rank that is heard has a log
    of its own, this one has none, and nobody watched the processes."""
    own = {rank_of(source) for source in scene.tails}
    return scene.spoke <= own and rank not in own and not scene.gang.members


def _elsewhere(scene: Scene, mark: Mark, roots: tuple[int, ...]) -> Cause:
    """Return the end of a rank whose own words, and with them its phase, are not known."""
    signature = scene.catalog.of_kind("log_elsewhere")
    assert signature is not None
    return Cause(
        signature.kind, roots, mark.t, subject(roots), signature.what, "low",
        marks=(mark,), missing=(mark.groups["log"],),
    )  # fmt: skip


def _code(mark: Mark) -> int | None:
    if "signal" in mark.groups:
        return -int(mark.groups["signal"])
    return int(mark.groups["code"]) if "code" in mark.groups else None


def _rank(scene: Scene, mark: Mark) -> int | None:
    """Return the rank that a report means: by its pid, else by its number, which with several
    replicas counts within one of them."""
    pid = int(mark.groups["pid"]) if "pid" in mark.groups else None
    if pid is not None and pid in scene.pids:
        return scene.pids[pid]
    replicas = any(scene.flags.get(name, "1") != "1" for name in _REPLICAS)
    if "rank" not in mark.groups or (replicas and mark.engine in ("sglang", "vllm")):
        return None
    return int(mark.groups["rank"])
