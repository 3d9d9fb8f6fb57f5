"""What speculation brings: tok/s without and with each method, by batch, and where a cycle goes.

    python benchmarks/speculation.py [--batch 1 4 16] [--method off ngram eagle3] [--simulate RATE]
                                     [--tokens 200] [--rounds 3] [-- ENGINE FLAGS]

Serves the model, by default the shipped one on eight ranks of this machine, without the HTTP front
end, once a method, and lets it go on with pieces of this project's documents (with random tokens
where the model has no tokenizer). Drafts are always made, whether they pay or not; the fastest of
some rounds counts, in which the methods take turns. `cycle` is the
time of a step with drafts over that of one without; it pays where the tokens of a cycle are more.
With `--simulate` each drafted token is accepted with that probability: for speed alone, the text
means nothing.

    python benchmarks/speculation.py --gpu [FOLDER] [--simulate 0.7] [--batch 1 4] [--drafts 1 2 3]

runs the shape of a folder's config (by default that of DeepSeek-V2-Lite) and a head with random
weights on one GPU, without drafts and with so many: what a cycle costs there, in plain steps. The
floors are the time to read the weights that a step needs once, each draft the head's: with more
tokens more of the routed experts are hit, as many as where each token chooses for itself. `gap` is
what a cycle takes beyond drafting and verification on the device: sampling, and waiting for the
host.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from panel.server.spawner import preload

METHODS = ("off", "ngram", "eagle3")
PROMPT = 48
ROOT = Path(__file__).parents[1]
SHAPE = ROOT / "panel/config/data/models/deepseek-v2-lite.json"


class Client:
    """Speaks with rank 0 in place of the front end."""

    def __init__(self, connection: socket.socket) -> None:
        import msgspec

        from panel.server.messages import Frames, FromEngine

        self._connection = connection
        self._frames = Frames()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)
        self._stats: Any = None
        while not any(type(message).__name__ == "Started" for message in self._receive()):
            pass

    def run(self, name: str, prompts: list[list[int]], new: int) -> tuple[float, Any, Any]:
        """Run requests all at once; return seconds and the statistics before and after."""
        from panel.server.messages import Generate, Stats, Step

        before = self._stats
        for number, prompt in enumerate(prompts):
            self._send(Generate(f"{name}-{number}", prompt, new, temperature=0))
        left, seconds = len(prompts), 0.0
        began = time.perf_counter()
        settled = False
        while not settled:
            for message in self._receive():
                if isinstance(message, Step):
                    left -= sum(news.finish is not None for news in message.news)
                    seconds = seconds if left else seconds or time.perf_counter() - began
                elif isinstance(message, Stats):
                    self._stats = message
                    settled = not left and not message.running
        return seconds, before, self._stats

    def stop(self) -> None:
        from panel.server.messages import Drain

        self._send(Drain(0))
        while self._receive():
            pass

    def _send(self, message: Any) -> None:
        from panel.server.messages import encode

        self._connection.sendall(encode(message))

    def _receive(self) -> list[Any]:
        data = self._connection.recv(1 << 16)
        return [self._decoder.decode(body) for body in self._frames.feed(data)] if data else []


def texts(folder: Path, vocabulary: int, count: int) -> list[list[int]]:
    """Return prompts: pieces of the documents, or random tokens."""
    numbers = random.Random(0)
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.exists():
        return [[numbers.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(count)]
    from tokenizers import Tokenizer

    prose = " ".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    ids = Tokenizer.from_file(str(tokenizer)).encode(prose).ids
    begins = [numbers.randrange(len(ids) - PROMPT) for _ in range(count)]
    return [ids[begin : begin + PROMPT] for begin in begins]


def serve(method: str, batches: list[int], new: int, flags: list[str]) -> list[dict[str, Any]]:
    """Return a row for each batch."""
    from panel.server.checks import prepare
    from panel.server.gang import fork_gang
    from panel.server.options import parse

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = ["--disable-prefix-cache", f"--port={port}", f"--speculative-algorithm={method}"]
    argv += ["--speculative-adaptive=false", *flags]
    with tempfile.TemporaryDirectory() as scratch:
        result, log = Path(scratch, "result"), str(Path(scratch, "log"))
        gang = prepare(parse(argv))

        def frontend(options: object, engine: socket.socket, *_: object) -> int:
            client = Client(engine)
            rows = []
            for batch in batches:
                prompts = texts(gang.folder, gang.config.vocab_size, batch)
                client.run(f"warm-{batch}", prompts, 24)
                rows.append(row(method, batch, new, *client.run(str(batch), prompts, new)))
            client.stop()
            result.write_text(json.dumps(rows))
            return 0

        lifeline, keep = os.pipe()
        sources = [*(f"rank-{rank}" for rank in range(gang.options.tp_size)), "frontend"]
        pids = fork_gang(gang, frontend, dict.fromkeys(sources, log), lifeline, keep)
        codes = {name: os.waitpid(pid, 0)[1] for name, pid in pids.items()}
        os.close(lifeline)
        os.close(keep)
        if any(codes.values()):
            sys.exit(f"{codes}\n{Path(log).read_text()[-3000:]}")
        rows: list[dict[str, Any]] = json.loads(result.read_text())
        return rows


def row(
    method: str, batch: int, new: int, seconds: float, before: Any, after: Any
) -> dict[str, Any]:
    """Return the figures of one run."""
    drafts = after.spec_drafts - before.spec_drafts
    cycles = after.spec_cycles - before.spec_cycles
    return {
        "method": method,
        "batch": batch,
        "tok/s": batch * new / seconds,
        "step ms": after.step_ms,
        "clock ms": seconds * 1e3 / (after.steps - before.steps),
        "tokens a cycle": 1 + (after.spec_accepted_tokens - before.spec_accepted_tokens) / drafts
        if drafts
        else 1.0,
        "parts ms": {
            part: 1e3 * (total - before.spec_seconds[part]) / cycles
            for part, total in after.spec_seconds.items()
        }
        if cycles
        else {},
        "collectives": after.step_collectives,
        "collectives ms": after.step_collective_ms,
        "simulated": after.spec_simulated,
    }


class Floor:
    """What the memory alone lets a step take, in milliseconds."""

    def __init__(self, flags: list[str], bandwidth: float) -> None:
        """`bandwidth` in bytes a second."""
        from panel.server.config import read_config
        from panel.server.draft.find import draft_shape
        from panel.server.draft.shape import AUX
        from panel.server.memory import Demand
        from panel.server.options import parse
        from panel.server.parallel import Shard

        options = parse([*flags, "--speculative-algorithm=eagle3"])
        folder = Path(options.model_path)
        config, bandwidth = read_config(folder), bandwidth / 1e3
        draft = draft_shape(options, config, folder)
        demand = Demand(config, Shard(0, 1), options, 2, on_gpu=True, draft=draft)
        head = demand.head
        assert head is not None
        self._experts = config.experts
        expert = 3 * config.hidden_size * config.experts.width * demand.element_size
        self._expert = len(config.expert_layers) * expert / bandwidth
        hidden = config.hidden_size * demand.element_size
        every = demand.weights + demand.shared_experts - config.vocab_size * hidden
        self._rest = every / bandwidth - config.experts.routed * self._expert
        self._fuse = AUX * hidden * config.hidden_size / bandwidth
        self._draft = head.weights / bandwidth - self._fuse

    def experts(self, tokens: int) -> float:
        """Return how many experts of a layer so many tokens hit."""
        routed, chosen = self._experts.routed, self._experts.routing.experts_per_token
        return routed * (1 - (1 - chosen / routed) ** tokens)

    def step(self, tokens: int) -> float:
        """Return what the model takes for so many tokens."""
        return self._rest + self.experts(tokens) * self._expert

    def cycle(self, batch: int, drafts: int) -> float:
        """Return what drafts and their verification take."""
        return self.step(batch * (1 + drafts)) + self._fuse + drafts * self._draft


def on_gpu(arguments: argparse.Namespace, folder: Path, rate: float) -> None:
    """Print what cycles cost on one GPU, in plain steps; all weights are random."""
    batches, tokens = arguments.batch, arguments.tokens
    sizes = ",".join(map(str, sorted(batches)))
    flags = [
        f"--model-path={folder}",
        "--load-format=dummy",
        "--tp-size=1",
        "--context-length=4096",
    ]
    flags += [f"--cuda-graph-bs={sizes}", f"--max-running-requests={max(batches)}"]
    flags += ["--chunked-prefill-size=2048", *arguments.flags]
    floor = Floor(flags, arguments.bandwidth * 1e12)
    print(f"acceptance is SIMULATED at {rate:g}: the text means nothing; greedy, {tokens} tokens")
    print("ms: medians of 64 steps; clock: mean of all steps, prompts too; draft, verify: means on")
    print("the device; gap: the rest of a cycle; tokens: those of a cycle; it pays above `even at`")
    print(f"floors: weights read once at {arguments.bandwidth:g} TB/s; experts: hit in a layer")
    print(
        f"{'batch':>5} {'drafts':>6} {'ms':>7} {'ratio':>6} {'clock':>7} {'floor':>6} {'ratio':>6} "
        f"{'experts':>7} {'draft':>6} {'verify':>6} {'gap':>6} {'tokens':>6} {'even at':>7} "
        f"{'tok/s':>6} {'gain':>6}",
        flush=True,
    )
    plain = serve("off", batches, tokens, flags)
    for off in plain:
        batch = off["batch"]
        print(
            f"{batch:5} {0:6} {off['step ms']:7.3f} {'':6} {off['clock ms']:7.3f} "
            f"{floor.step(batch):6.2f} {'':6} "
            f"{floor.experts(batch):7.1f} {'':6} {'':6} {'':6} {1:6} {'':7} {off['tok/s']:6.0f}",
            flush=True,
        )
    for drafts in arguments.drafts:
        asked = [f"--speculative-simulate-acceptance={rate}", f"--speculative-num-steps={drafts}"]
        for off, on in zip(plain, serve("eagle3", batches, tokens, flags + asked), strict=True):
            batch, ms, gain = on["batch"], on["step ms"], on["tok/s"] / off["tok/s"]
            parts, least = on["parts ms"], floor.cycle(on["batch"], drafts)
            print(
                f"{batch:5} {drafts:6} {ms:7.3f} {ms / off['step ms']:5.2f}x {on['clock ms']:7.3f} "
                f"{least:6.2f} "
                f"{least / floor.step(batch):5.2f}x {floor.experts(batch * (1 + drafts)):7.1f} "
                f"{parts['draft']:6.3f} {parts['verify']:6.3f} "
                f"{ms - parts['draft'] - parts['verify']:6.3f} {on['tokens a cycle']:6.2f} "
                f"{on['tokens a cycle'] / gain:7.2f} {on['tok/s']:6.0f} {gain:5.2f}x  SIMULATED",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gpu", nargs="?", const=True, metavar="FOLDER")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--method", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--simulate", type=float)
    parser.add_argument("--drafts", type=int, nargs="+", default=[3], help="with --gpu")
    parser.add_argument("--bandwidth", type=float, default=4.3, help="TB/s, for the floors")
    parser.add_argument("flags", nargs="*", metavar="ENGINE FLAGS")
    arguments = parser.parse_args()
    preload()
    if arguments.gpu is not None:
        rate = 0.7 if arguments.simulate is None else arguments.simulate
        with tempfile.TemporaryDirectory() as made:
            Path(made, "config.json").write_bytes(SHAPE.read_bytes())
            folder = Path(made if arguments.gpu is True else arguments.gpu)
            on_gpu(arguments, folder, rate)
        return
    flags = list(arguments.flags)
    if arguments.simulate is not None:
        flags.append(f"--speculative-simulate-acceptance={arguments.simulate}")
        print(f"acceptance is SIMULATED at {arguments.simulate:g}: the text means nothing")
    machine = platform.processor() or platform.machine()
    load = os.getloadavg()[0]
    print(f"{machine}, {os.cpu_count()} cores, load {load:.1f}; {' '.join(flags) or 'moe-tiny'}")
    print(
        f"\n{'method':8} {'batch':>5} {'tok/s':>7} {'gain':>6} {'step ms':>8} {'cycle':>6} "
        f"{'tokens':>7} {'extend':>7} {'draft':>7} {'verify':>7} {'collectives':>16}"
    )
    # The methods take turns, because other work on the machine comes and goes.
    found = [
        each
        for _ in range(arguments.rounds)
        for method in arguments.method
        for each in serve(method, arguments.batch, arguments.tokens, flags)
    ]
    plain: dict[int, dict[str, Any]] = {}
    for method in arguments.method:
        for batch in arguments.batch:
            runs = [each for each in found if (each["method"], each["batch"]) == (method, batch)]
            each = max(runs, key=lambda run: run["tok/s"])
            base = plain.setdefault(batch, each)
            parts = [each["parts ms"].get(part) for part in ("extend", "draft", "verify")]
            shown = " ".join(f"{'-' if ms is None else f'{ms:.2f}':>7}" for ms in parts)
            meetings = f"{each['collectives']:.0f} in {each['collectives ms']:.2f} ms"
            print(
                f"{method:8} {each['batch']:5} {each['tok/s']:7.0f} "
                f"{each['tok/s'] / base['tok/s']:5.2f}x {each['step ms']:8.2f} "
                f"{each['step ms'] / base['step ms']:5.2f}x {each['tokens a cycle']:7.2f} "
                f"{shown} {meetings:>16}",
                flush=True,
            )


if __name__ == "__main__":
    main()
