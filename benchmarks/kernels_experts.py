"""The mixture-of-experts half of a layer on one GPU: right, then fast.

    python benchmarks/kernels_experts.py [--rows 1,8,32,128] [--seconds 60] [--keep [FILE]]

The shape is DeepSeek-V2-Lite's: hidden 2048, 64 experts of 1408 top-6, shared experts of 2816,
bf16, random weights, random routing. Each number of rows is checked against a float32 reference
with fresh inputs and poisoned buffers, and each launch is timed by replays of a graph over layers
that are together far larger than the L2 cache: as planned, and divided in other ways until the time
is up. GB/s count the weights that must be read: of the experts that were chosen, the shared ones
and the router. `--keep` keeps the fastest where the engine looks for plans of this GPU and these
versions, or in another file; without any it takes those of `expert_plan.py`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.bandwidth import copy_bandwidth
from panel.kernels import experts
from panel.kernels.expert_plan import BUCKETS, Plan, Plans, bucket
from panel.kernels.expert_tiles import Tile
from panel.kernels.experts import ExpertWeights, Workspace, moe, moe_reference
from panel.kernels.norm import rms_norm_reference
from panel.kernels.router import Routing
from panel.kernels.timing import microseconds
from panel.server.cuda.plans import keep_plans, plans_file, read_plans

HIDDEN, EXPERTS, COLUMNS, SHARED = 2048, 64, 1408, 2816
ROUTING = Routing(EXPERTS, 6)
ROWS = (1, 8, 32, 128, 2048, 16384)
TOLERANCE = 1e-2
DEVICE = "cuda"


def random_layer() -> ExpertWeights:
    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, dtype=torch.bfloat16, device=DEVICE) * size[-2] ** -0.5

    return ExpertWeights(
        gain=(1 + 0.1 * torch.randn(HIDDEN, device=DEVICE)).mul_(HIDDEN**0.5).bfloat16(),
        floor=torch.tensor((HIDDEN * 1e-6) ** 0.5, dtype=torch.bfloat16, device=DEVICE),
        route=random(HIDDEN, EXPERTS),
        gate_up=random(EXPERTS, HIDDEN, 2 * COLUMNS),
        down=random(EXPERTS, COLUMNS, HIDDEN),
        shared_gate_up=random(HIDDEN, 2 * SHARED),
        shared_down=random(SHARED, HIDDEN),
    )


def check(rows: int, layer: ExpertWeights, plans: Plans) -> tuple[float, bool]:
    """Return the relative error and whether a second run gives the same bits."""
    workspace = Workspace.of(rows, layer, ROUTING, plans)
    results = []
    x = torch.randn(rows, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    counts = torch.zeros(EXPERTS, dtype=torch.int64, device=DEVICE)
    for _ in range(2):
        for poisoned in (workspace.normed, workspace.logits, workspace.shared, workspace.act):
            poisoned.fill_(float("nan"))
        workspace.results.fill_(0xFF)
        out = torch.full_like(x, float("nan"))
        moe(x, layer, workspace, out, counts=counts)
        results.append(out)
    normed = rms_norm_reference(x.float(), layer.gain, layer.floor)
    logits = normed @ layer.route.float()
    ids, weights = workspace.groups.ids.long(), workspace.groups.weights
    reference = moe_reference(x, layer, ROUTING, choice=(ids, weights)).double()
    added = x.clone()
    moe(added, layer, workspace, added, residual=added)
    wrong = (added - x.double() - reference).norm() / reference.norm()
    assert wrong < 2 * TOLERANCE, f"residual in place: {wrong:.2e}"
    scores = torch.softmax(workspace.logits, dim=-1)
    assert (workspace.logits - logits).norm() < TOLERANCE * logits.norm(), "logits"
    best = scores.gather(1, ids)
    assert torch.allclose(best, weights, atol=1e-5), "weights"
    assert torch.equal(best.sort(descending=True).values, best), "order of the choice"
    assert torch.allclose(best.sum(1), scores.topk(6).values.sum(1), atol=1e-5), "choice"
    assert torch.equal(counts, 2 * torch.bincount(ids.flatten(), minlength=EXPERTS)), "counts"
    error = float((results[0] - reference).norm() / reference.norm())
    return error, torch.equal(*results)


Part = Callable[[ExpertWeights], None]


@dataclass(frozen=True)
class Setting:
    """What the launches for one number of rows are timed with."""

    layers: list[ExpertWeights]
    workspace: Workspace
    x: torch.Tensor
    out: torch.Tensor

    @classmethod
    def of(cls, rows: int, layers: list[ExpertWeights]) -> Setting:
        x = torch.randn(rows, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
        return cls(layers, Workspace.of(rows, layers[0], ROUTING), x, torch.empty_like(x))

    def parts(self, plan: Plan) -> dict[str, Part]:
        """Return the launches by name, in order."""
        rows, workspace, x = self.x.shape[0], self.workspace, self.x

        def score(layer: ExpertWeights) -> None:
            experts.score(x, layer, workspace)

        def share(layer: ExpertWeights) -> None:
            choice = workspace.choice(rows, layer, plan)
            experts.choose_and_share(layer, workspace, plan, choice)

        def gate_up(layer: ExpertWeights) -> None:
            if plan.few(rows):
                choice = workspace.choice(rows, layer, plan)
                experts.all_gate_up(layer, workspace, plan, choice)
            else:
                experts.gate_up(rows, layer, workspace, plan)

        def down(layer: ExpertWeights) -> None:
            experts.down(layer, workspace, plan, x, self.out)

        named = {"score": score, "share": share, "gate_up": gate_up, "down": down}
        return {name: part for name, part in named.items() if name != "share" or not plan.few(rows)}

    def once(self, plan: Plan) -> None:
        """Run, and so compile, a plan."""
        for part in self.parts(plan).values():
            part(self.layers[0])

    def time(self, part: Part) -> float:
        """Return a part's microseconds."""
        return microseconds([partial(part, layer) for layer in self.layers])

    def whole(self, plan: Plan) -> float:
        """Return the microseconds of all of it, one call."""
        workspace = replace(self.workspace, plans=Plans({bucket(self.x.shape[0]): plan}))
        return microseconds(
            [
                partial(moe, self.x, each, workspace, self.out, residual=self.x)
                for each in self.layers
            ]
        )


def others(rows: int, plan: Plan) -> dict[str, list[Plan]]:
    """Return other plans to try, by the part in which they differ from `plan`."""
    height = plan.gate_up.rows
    if rows <= 64:
        tiles = [Tile(16, 64, 64, 4, swap=True, group=2), Tile(16, 64, 128, 3, swap=True, group=2)]
        tiles += [Tile(16, 64, 128, 4, swap=True), Tile(16, 128, 64, 4, 8, swap=True, group=2)]
        lasts = [Tile(16, 128, 64, 4, swap=True, group=2), Tile(16, 64, 128, 5, swap=True)]
    elif rows <= 256:
        tiles = [Tile(height, 64, 128, 3, swap=True, group=2), Tile(height, 64, 64, 5, swap=True)]
        lasts = [Tile(height, 128, 64, 5, group=2), Tile(height, 64, 128, 4, swap=True, group=2)]
    else:
        tiles = [Tile(128, 128, 64, 3, 8, group=8), Tile(128, 128, 64, 4, 8, group=16)]
        tiles += [Tile(128, 64, 64, 4, 4, group=8), Tile(128, 128, 64, 4, 8, group=2)]
        lasts = [Tile(128, 256, 64, 4, 8, group=8), Tile(128, 256, 64, 3, 8, group=16)]
        lasts += [Tile(128, 128, 64, 4, 4, group=8), Tile(128, 256, 64, 3, 8, group=2)]
    downs = [replace(plan, down=tile) for tile in lasts]
    if rows <= 256:
        downs += [replace(plan, parts=4), replace(plan, parts=1)]
    if rows <= 16:
        downs.append(replace(plan, last_adds=not plan.last_adds))
    shares = []
    if plan.shared is not None:
        wide = plan.shared.rows
        shares = [Tile(wide, 32, 64, 6), Tile(wide, 64, 64, 4, swap=True), Tile(32, 32, 128, 3)]
    return {
        "share": [replace(plan, shared=tile) for tile in shares],
        "gate_up": [replace(plan, gate_up=tile) for tile in tiles if tile.rows == height],
        "down": [each for each in downs if each.down.rows == height],
    }


def search(setting: Setting, plan: Plan, deadline: float) -> Plan:
    """Print each launch as planned and otherwise; return the fastest of each."""
    rows, best = setting.x.shape[0], plan
    tried = others(rows, plan)
    setting.once(plan)
    for name, part in setting.parts(plan).items():
        least = setting.time(part)
        print(f"{rows:6} rows {name:8} {least:9.1f} us  as planned")
        for other in tried.get(name, []):
            if monotonic() > deadline:
                break
            try:
                spent = setting.time(setting.parts(other)[name])
            except Exception as error:
                print(f"{rows:6} rows {name:8} {type(error).__name__}  {shown(name, other)}")
                continue
            print(f"{rows:6} rows {name:8} {spent:9.1f} us  {shown(name, other)}")
            if spent < least:
                least = spent
                taken = ("down", "parts", "last_adds") if name == "down" else NAMES[name]
                best = replace(best, **{field: getattr(other, field) for field in taken})
    return best


NAMES = {"share": ("shared",), "gate_up": ("gate_up",)}


def shown(name: str, plan: Plan) -> str:
    """Return what a part's speed depends on."""
    if name == "down":
        return f"{plan.down} parts {plan.parts} last {plan.last_adds:d}"
    return str(plan.shared if name == "share" else plan.gate_up)


def must_read(workspace: Workspace) -> int:
    """Return the bytes of weights that the last choice needs."""
    expert = 3 * HIDDEN * COLUMNS
    chosen = int(workspace.groups.ids.unique().numel())
    return 2 * (chosen * expert + 3 * HIDDEN * SHARED + HIDDEN * EXPERTS)


def measure(setting: Setting, plan: Plan, peak: float) -> str:
    rows, needed = setting.x.shape[0], []
    for layer in setting.layers:
        for part in setting.parts(plan).values():
            part(layer)
        needed.append(must_read(setting.workspace))
    whole = setting.whole(plan)
    rate = sum(needed) / len(needed) / whole * 1e6
    flops = 2 * 3 * HIDDEN * (COLUMNS * 6 + SHARED) * rows / whole / 1e6
    parts = setting.parts(plan).items()
    return (
        f"{rows:6} rows {whole:9.1f} us  {rate / 1e9:6.0f} GB/s  {rate / peak:5.0%} of copy  "
        f"{flops:6.0f} TFLOP/s   "
        + "  ".join(f"{name} {setting.time(part):.1f}" for name, part in parts)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--seconds", type=float, default=60, help="when no more is tried")
    parser.add_argument(
        "--keep", type=Path, nargs="?", const=plans_file(), metavar="FILE", help="keep the fastest"
    )
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    begin = monotonic()
    torch.manual_seed(int(torch.seed() % (1 << 31)))
    rows = [int(count) for count in options.rows.split(",")]
    peak = copy_bandwidth(DEVICE)
    torch.cuda.empty_cache()
    layers = [random_layer() for _ in range(options.layers)]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy {peak / 1e9:.0f} GB/s")
    settings = {count: Setting.of(count, layers) for count in rows}
    planned = {count: setting.workspace.plans.of(count) for count, setting in settings.items()}
    for kind in (False, True):
        with ThreadPoolExecutor(12) as pool:
            for count, setting in settings.items():
                pool.submit(setting.once, planned[count])
                for tried in others(count, planned[count]).values() if kind else ():
                    for other in tried:
                        pool.submit(setting.once, other)
        torch.cuda.synchronize()
        what = "all" if kind else "planned"
        print(f"{monotonic() - begin:.0f} s: {what} kernels compiled", flush=True)
    for setting in settings.values():
        setting.workspace.tickets.zero_()
        setting.workspace.groups.ticket.zero_()
    found: dict[int, Plan] = {}
    lines = []
    if options.keep and (kept := read_plans(options.keep, layers[0], ROUTING)):
        found.update(kept.buckets)
    for number, (count, setting) in enumerate(settings.items()):
        try:
            left = begin + options.seconds - monotonic()
            deadline = monotonic() + max(0.0, left) / (len(rows) - number)
            plan = planned[count]
            for name, each in (("planned", plan), ("fastest", None)):
                plan = each or search(setting, plan, deadline)
                error, same = check(count, layers[-1], Plans(dict.fromkeys(BUCKETS, plan)))
                if not (error < TOLERANCE and same):
                    raise AssertionError(f"{name}: relative error {error:.2e}, same bits {same}")
                line = f"{name} {measure(setting, plan, peak)}   error {error:.1e}"
                print(line, flush=True)
                lines += [line, f"        {plan}"]
            found[bucket(count)] = plan
        except Exception as failure:
            traceback.print_exc(limit=-3)
            lines.append(f"{count:6} rows FAILED: {type(failure).__name__}: {str(failure)[:200]}")
            print(lines[-1], flush=True)
        if options.keep and found:
            keep_plans(options.keep, layers[0], ROUTING, Plans(found))
    print(f"\n{monotonic() - begin:.0f} s; us of the whole and of its launches alone")
    print("\n".join(lines))
    if any("FAILED" in line for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
