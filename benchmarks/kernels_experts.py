"""The mixture-of-experts half of a layer on one GPU: right, then fast.

    python benchmarks/kernels_experts.py [--rows 1,8,32,128] [--seconds 80] [--plans plans.json]

The shape is DeepSeek-V2-Lite's: hidden 2048, 64 experts of 1408 top-6, shared experts of 2816,
bf16, random weights, random routing. Each number of rows is checked against a float32 reference
with fresh inputs and poisoned buffers, tuned, checked again and timed by replays of a graph over
layers that are together far larger than the L2 cache. GB/s count the weights that must be read: of
the experts that were chosen, the shared ones and the router.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from panel.kernels.expert_plan import DEFAULT_PLANS, Plans
from panel.kernels.expert_tuning import Setting, tune
from panel.kernels.experts import ExpertWeights, Workspace, moe, moe_reference
from panel.kernels.norm import rms_norm_reference
from panel.kernels.overlap import allow_overlap
from panel.kernels.router import Routing
from panel.kernels.timing import microseconds

HIDDEN, EXPERTS, COLUMNS, SHARED = 2048, 64, 1408, 2816
ROUTING = Routing(EXPERTS, 6)
ROWS = (1, 8, 32, 128, 4, 16, 64, 2048, 512, 16384)
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
    workspace = Workspace.of(rows, layer, ROUTING)
    results = []
    x = torch.randn(rows, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    counts = torch.zeros(EXPERTS, dtype=torch.int64, device=DEVICE)
    for _ in range(2):
        for poisoned in (workspace.normed, workspace.logits, workspace.shared, workspace.act):
            poisoned.fill_(float("nan"))
        workspace.results.fill_(0xFF)
        out = torch.full_like(x, float("nan"))
        moe(x, layer, workspace, out, counts=counts, plans=plans)
        results.append(out)
    normed = rms_norm_reference(x.float(), layer.gain, layer.floor)
    logits = normed @ layer.route.float()
    ids, weights = workspace.groups.ids.long(), workspace.groups.weights
    reference = moe_reference(x, layer, ROUTING, choice=(ids, weights)).double()
    added = x.clone()
    moe(added, layer, workspace, added, residual=added, plans=plans)
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


def warm(rows: int, layer: ExpertWeights) -> None:
    """Compile what the rules choose."""
    x = torch.randn(rows, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    moe(x, layer, Workspace.of(rows, layer, ROUTING), torch.empty_like(x), residual=x)


def copy_bandwidth() -> float:
    """Return the bytes per second of a large copy, read and written."""
    source = torch.randn(1 << 30, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / microseconds([lambda: target.copy_(source)] * 3) * 1e6


def must_read(workspace: Workspace) -> int:
    """Return the bytes of weights that the last choice needs."""
    expert = 3 * HIDDEN * COLUMNS
    chosen = int(workspace.groups.ids.unique().numel())
    return 2 * (chosen * expert + 3 * HIDDEN * SHARED + HIDDEN * EXPERTS)


def measure(rows: int, layers: list[ExpertWeights], plans: Plans, peak: float) -> str:
    x = torch.randn(rows, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    workspace = Workspace.of(rows, layers[0], ROUTING)
    setting = Setting(rows, layers, workspace, x, torch.empty_like(x), print, monotonic() + 60)
    plan = plans.of(rows)
    needed = []
    for layer in layers:
        setting.input(plan, layer)
        needed.append(must_read(workspace))
    size = sum(needed) / len(needed)

    def spent(part: str) -> float:
        call = getattr(setting, part)
        return microseconds([lambda layer=layer: call(plan, layer) for layer in layers])

    allow_overlap(False)
    alone = spent("whole")
    allow_overlap(True)
    whole = spent("whole")
    rate = size / whole * 1e6
    flops = 2 * 3 * HIDDEN * (COLUMNS * 6 + SHARED) * rows / whole / 1e6
    parts = "  ".join(f"{part} {spent(part):8.1f}" for part in ("input", "gate_up", "down"))
    return (
        f"{rows:6} rows {whole:9.1f} us  {rate / 1e9:6.0f} GB/s  {rate / peak:5.0%} of copy  "
        f"{flops:6.0f} TFLOP/s   {parts}  without overlap {alone:8.1f}"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", default=",".join(map(str, ROWS)))
    arguments.add_argument("--seconds", type=float, default=70, help="for the search of plans")
    arguments.add_argument("--plans", type=Path, help="read from and written to this file")
    arguments.add_argument("--layers", type=int, default=8)
    arguments.add_argument("--quiet", action="store_true", help="the table alone")
    options = arguments.parse_args()
    begin = monotonic()
    torch.manual_seed(int(torch.seed() % (1 << 31)))
    rows = [int(count) for count in options.rows.split(",")]
    peak = copy_bandwidth()
    torch.cuda.empty_cache()
    layers = [random_layer() for _ in range(options.layers)]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy {peak / 1e9:.0f} GB/s")
    with ThreadPoolExecutor(12) as pool:
        for count in rows:
            pool.submit(warm, count, layers[0])
    torch.cuda.synchronize()
    print(f"{monotonic() - begin:.0f} s: weights made, first plans compiled", flush=True)
    plans, lines = DEFAULT_PLANS, []
    if options.plans and options.plans.exists():
        plans = Plans.from_json(options.plans.read_text())
    for number, count in enumerate(rows):
        try:
            error, same = check(count, layers[0], plans)
            print(
                f"{count:6} rows by rule: relative error {error:.2e}, same bits {same}", flush=True
            )
            left = options.seconds - (monotonic() - begin)
            share = max(0.0, left) / (len(rows) - number) * (2 if number < 4 else 1)
            tuned = tune(
                layers, ROUTING, [count],
                known=plans, seconds=share, report=(lambda _: None) if options.quiet else print,
            )  # fmt: skip
            error, same = check(count, layers[-1], tuned)
            if not (error < TOLERANCE and same):
                raise AssertionError(f"tuned: relative error {error:.2e}, same bits {same}")
            plans = tuned
            lines.append(f"{measure(count, layers, plans, peak)}   error {error:.1e}")
        except Exception as failure:
            traceback.print_exc(limit=-3)
            lines.append(f"{count:6} rows FAILED: {type(failure).__name__}: {str(failure)[:200]}")
        print(lines[-1], flush=True)
        if options.plans:
            options.plans.write_text(plans.to_json())
    print(f"\n{monotonic() - begin:.0f} s; us of the whole and of its parts alone")
    print("\n".join(lines))
    if any("FAILED" in line for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
