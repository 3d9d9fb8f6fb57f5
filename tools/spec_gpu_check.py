"""Drafts on a GPU change no text: `moe-tiny` in float32 without its head and with it.

    python tools/spec_gpu_check.py [--device cpu]

Requests of all lengths come in bunches, greedy ones and sampled ones, so that sequences end and
begin beside others. Greedy text must equal that of the model alone up to the first near tie; of the
sampled texts nearly all must be the same, since a draw may fall on the border of two tokens. Tokens
a cycle must be about what a rank on the CPU finds, or the head drafts from what it should not.
Takes about a minute; exit code 1 where something differs.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tokenizers import Tokenizer

from panel.server.config import model_folder
from panel.server.messages import Generate, Stats
from tests.server.support import Answer, Nursery

TIE = 1e-3
"""A lead of the best token over the second below which either may win (natural logarithm)."""
FOLDER = model_folder("moe-tiny")
COUNT, PROMPT, TOKENS = 40, 60, 48
SAME = 0.9
"""Least share of the sampled texts that have to be equal."""
PLAIN: dict[str, object] = {"tp_size": 1, "dtype": "float32", "cuda_graph_bs": "1,2,4,8"}
HEAD: dict[str, object] = {"speculative_algorithm": "eagle3", "speculative_adaptive": "false"}
MODES: dict[str, dict[str, object]] = {
    "3 drafts": HEAD,
    "1 draft": HEAD | {"speculative_num_steps": 1},
    "adaptive": {"speculative_algorithm": "eagle3", "speculative_num_steps": 5},
    "few pages": HEAD | {"max_total_tokens": 160},
    "no graphs": HEAD | {"disable_cuda_graph": "true"},
}


def requests(*, leads: bool) -> list[Generate]:
    """Return the requests; with `leads` how sure each token was is asked for too."""
    numbers = Random(5)
    text = (Path(__file__).parents[1] / "LICENSE").read_text()
    ids = Tokenizer.from_file(str(FOLDER / "tokenizer.json")).encode(text).ids[1:]
    made = []
    for number in range(COUNT):
        begin = numbers.randrange(len(ids) - PROMPT)
        prompt = [0, *ids[begin : begin + numbers.randrange(1, PROMPT)]]
        new = numbers.randrange(2, TOKENS)
        ask = functools.partial(Generate, str(number), prompt, new)
        if number % 4 == 3:
            made.append(ask(temperature=0.9, top_k=20, seed=number))
        else:
            made.append(ask(temperature=0, logprobs=2 if leads else None))
    return made


def run(
    nursery: Nursery, flags: dict[str, object], *, leads: bool = False
) -> tuple[list[Answer], Stats]:
    """Return all answers, and the figures at the end."""
    with tempfile.TemporaryDirectory() as folder, nursery.gang(Path(folder), **flags) as gang:
        gang.wait_started()
        asked = requests(leads=leads)
        for begin in range(0, COUNT, 5):
            for request in asked[begin : begin + 5]:
                gang.send(request)
            gang.receive(time.monotonic() + 60)
        answers = gang.collect(*(request.rid for request in asked))
        stats = gang.wait_stats()
        if any(gang.terminate().values()) or "every page" not in gang.log("rank-0"):
            sys.exit(gang.log("rank-0")[-3000:])
        return answers, stats


def firm(answer: Answer) -> int:
    """Return how many tokens come before the first near tie."""
    found = [each for piece in answer.pieces for each in piece.logprobs or ()]
    ties = (at for at, each in enumerate(found) if each.top[0][1] - each.top[1][1] < TIE)
    return next(ties, len(found))


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cpu tries the script itself")
    device = {"device": parser.parse_args().device}
    nursery = Nursery()
    reference, _ = run(nursery, PLAIN | device, leads=True)
    _, on_cpu = run(nursery, PLAIN | HEAD | {"device": "cpu"})
    bad = 0
    for name, flags in MODES.items():
        began = time.monotonic()
        answers, stats = run(nursery, PLAIN | flags | device)
        compared = differ = sampled = same = 0
        for number, (wanted, found) in enumerate(zip(reference, answers, strict=True)):
            if number % 4 == 3:
                sampled += 1
                same += wanted.tokens == found.tokens
                continue
            size = firm(wanted)
            compared += size
            differ += wanted.tokens[:size] != found.tokens[:size]
        mean = 1 + stats.spec_accepted_tokens / max(1, stats.spec_drafts)
        wanted_mean = 1 + on_cpu.spec_accepted_tokens / on_cpu.spec_drafts
        drafts_well = name not in ("3 drafts", "no graphs") or mean > 0.9 * wanted_mean
        good = not differ and same >= SAME * sampled and drafts_well
        bad += not good
        print(
            f"{'ok' if good else 'FAILED':7} {name}: greedy {compared} tokens compared, {differ} "
            f"texts differ; sampled {same} of {sampled} the same; {mean:.3f} tokens a cycle "
            f"(3 drafts on a CPU: {wanted_mean:.3f}); {stats.preemptions} preemptions; "
            f"{time.monotonic() - began:.1f} s",
            flush=True,
        )
    nursery.close()
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
