"""Faults on purpose in every phase: what each is called, and that the GPUs serve after all of them.

Steps of `gpu_probe_check.py --drills`.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_probe_check import Check

NEEDED_S = 20.0
"""Without so much time left a drill is left out."""
PHASES = ("weights", "kv_cache", "capture", "warmup", "serving")
OTHERS = ("dist_init", "workspace", "draft", "ready", "import")
"""Tried while there is time; NaN would do the same in them."""
OOM_KINDS = {
    "weights": "oom_weights", "draft": "oom_weights", "capture": "oom_capture",
    "ready": "oom_serving", "serving": "oom_serving",
}  # fmt: skip
"""Of the other phases it is `oom_init`."""


def drills(check: Check) -> None:
    """Each fault in each phase, the telling phases first; then a launch without one."""
    fatal = ("oom", "illegal-access") if check.gpus else ("oom",)
    for faults, phases in (((*fatal, "nan"), PHASES), (fatal, OTHERS)):
        for fault in faults:
            for phase in phases:
                _drill(check, fault, phase)


def sound(check: Check) -> None:
    """A launch serves after all of it."""
    check.run("up", "--wait", "--json")
    status, text = check.complete()
    check.tell("after the drills", f"{status}: {text[:100]}", good=status == 200)
    check.run("down", "--now")


def _drill(check: Check, fault: str, phase: str) -> None:
    name = f"{fault} in {phase}"
    if check.left < NEEDED_S:
        check.tell(name, "left out, no time for it")
        return
    began, rank = time.monotonic(), check.ranks - 1
    told = f"fault=rank={rank},phase={phase},kind={fault},after=0"
    check.run("up", "--set", told, "--wait", "--json")
    answer = check.complete() if fault == "nan" else None
    launch = check.wait(name, lambda s: _done(s["launch"], fault), 30)
    if launch is None:
        check.run("down", "--now")
        return
    verdict = launch["launch"]["verdict"]
    check.keep(f"{fault}-{phase}-verdict.json", json.dumps(verdict, indent=1))
    wrong = _wrong(verdict, rank, expected(check, fault, phase), phase)
    if answer is not None:
        check.run("down", "--now")
        if answer[0] != 500 or "NaN" not in answer[1]:
            wrong.append(f"a request got {answer[0]}: {answer[1][:200]}")
    text = f"{time.monotonic() - began:.1f} s; {verdict['headline'][:150]}"
    check.tell(name, "; ".join((*wrong, text)), good=not wrong)


def expected(check: Check, fault: str, phase: str) -> str:
    """Return the kind that triage has to give it."""
    if fault == "oom":
        return OOM_KINDS.get(phase, "oom_init") if check.gpus else "oom_host_budget"
    return {"nan": "nan_logits", "illegal-access": "cuda_ima"}[fault]


def _done(launch: Any, fault: str) -> bool:
    """Return whether the verdict is there: NaN ends requests and not the launch, and the rank is
    found by a step that is run again."""
    verdict = launch.get("verdict") or {}
    return bool(verdict.get("root_ranks") if fault == "nan" else verdict.get("final"))


def _wrong(verdict: Any, rank: int, kind: str, phase: str) -> list[str]:
    """Return in what a verdict is wrong. What fails requests is told of serving."""
    phase = "serving" if kind == "nan_logits" else phase
    wanted = {"kind": kind, "root_ranks": [rank], "phase": phase}
    return [
        f"{key} is {verdict.get(key)}, not {value}"
        for key, value in wanted.items()
        if verdict.get(key) != value
    ]
