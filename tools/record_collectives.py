"""Records what NCCL and torch say of a hang: python tools/record_collectives.py FOLDER

Two ranks on two GPUs: after twenty all-reduces rank 1 stays away from the next one. Leaves the
answers of the RAS service and the dumps of the flight recorder in FOLDER.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from panel.probes.collectives import flight, ras

TOGETHER = 20


def rank_main(rank: int, folder: Path) -> None:
    """Take part in all but the last all-reduce, rank 0 also in that one."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    part = torch.ones(1024, device=f"cuda:{rank}")
    for _ in range(TOGETHER):
        dist.all_reduce(part)
    torch.cuda.synchronize(rank)
    if rank == 0:
        dist.all_reduce(part)
    (folder / f"there-{rank}").touch()
    time.sleep(600)


def torch_version() -> tuple[int, int]:
    """Return major and minor."""
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)


def main(folder: Path) -> None:
    """Start the ranks, ask, end them."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        os.environ |= flight.environment(place, torch_version())
        ranks = mp.spawn(rank_main, (place,), nprocs=2, join=False)
        while not all((place / f"there-{rank}").exists() for rank in range(2)):
            time.sleep(0.1)
        time.sleep(1)
        for form in ("json", "text"):
            begun = time.monotonic()
            try:
                answer = ras.ask(("localhost", ras.PORT), json=form == "json")
            except ras.RasError as error:
                answer = f"RasError: {error}"
            (folder / f"ras.{form}").write_text(answer)
            print(f"RAS {form}: {len(answer)} bytes in {time.monotonic() - begun:.2f} s")
        print("not dumped:", flight.dump(place, range(2), 10))
        print("files:", sorted(path.name for path in place.iterdir()))
        for rank in range(2):
            data = flight.dump_file(place, rank).read_bytes()
            (folder / f"flight-{rank}.pickle").write_bytes(data)
        for process in ranks.processes:
            process.kill()
            process.join()
    print(flight.analyse({rank: folder / f"flight-{rank}.pickle" for rank in range(2)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
