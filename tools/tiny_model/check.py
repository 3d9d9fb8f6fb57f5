"""Prove that the exported folder is what stock `transformers` loads, and that it computes the same.

    python check.py [FOLDER] [--samples] [--held-out TOKENS.xz]

Loads the folder (without one: random weights) with our model and with `DeepseekV3ForCausalLM`, both
in float32 on the CPU, and compares logits: the largest difference must be below 1e-4. `--samples`
also prints continuations at several temperatures, `--held-out` the loss on the held-out documents
of a file of tokens (`prepare.py`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from export import read, write
from model import Model, Shape
from prepare import load
from train import held_out
from transformers import AutoModelForCausalLM, AutoTokenizer, DeepseekV3ForCausalLM

PROMPTS = [
    "The kernel is",
    "Once upon a time",
    "It was the best of times,",
    "In order to install the package, you",
    "The president of the United States",
    "She looked at him and said",
    "A function returns",
    "The difference between a process and a thread is",
]
CHATS = ["Hello!", "What is a computer?", "What is a river?", "Tell me a story.", "Who are you?"]


def parity(folder: Path | None) -> float:
    """The largest difference of any logit, on random ids."""
    torch.manual_seed(1)
    ours = read(folder) if folder else Model(Shape()).eval()
    for router in ours.routers() if folder is None else ():  # a zero bias would hide a wrong one
        router.e_score_correction_bias.normal_(std=0.05)
    ids = torch.randint(7, ours.shape.vocab_size, (2, 300))
    with tempfile.TemporaryDirectory() as copy, torch.no_grad():
        write(ours, Path(copy), torch.float32)
        theirs = DeepseekV3ForCausalLM.from_pretrained(copy, dtype=torch.float32).eval()
        return (ours(ids) - theirs(ids).logits).abs().max().item()


def samples(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    torch.manual_seed(0)
    cases = [(prompt, tokenizer(prompt, return_tensors="pt").input_ids) for prompt in PROMPTS]
    for prompt in CHATS:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        cases.append((f"[chat] {prompt}", ids))
    for prompt, ids in cases:
        for temperature in (0.0, 0.7, 1.0):
            how = {"do_sample": False, "temperature": None, "top_p": None}
            if temperature:
                how = {"do_sample": True, "temperature": temperature, "top_p": 0.95, "top_k": 0}
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=100, **how
            )
            text = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=False)
            print(f"--- {prompt}  (T={temperature})\n{text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("--held-out", type=Path, metavar="TOKENS")
    args = parser.parse_args()
    difference = parity(args.folder)
    print(f"largest logit difference to transformers: {difference:.2e}")
    assert difference < 1e-4
    if args.samples:
        samples(args.folder)
    if args.held_out:
        loss, bits = held_out(read(args.folder), load(args.held_out), 1024, "cpu")
        print(f"held out: {loss:.4f} nats/token, {bits:.4f} bits/byte")


if __name__ == "__main__":
    main()
