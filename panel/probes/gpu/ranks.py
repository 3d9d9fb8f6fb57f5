"""Which GPU is which rank's: by order, UUID and bus id, never by the process ids of NVML.

In a container NVML tells the pids of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from panel.domain.gpu import GpuSample


def visible(gpus: Sequence[GpuSample], environ: Mapping[str, str]) -> list[GpuSample]:
    """Return the GPUs that CUDA shows to a process with this environment, in its order.

    `gpus` are in the order of the PCI bus, which is CUDA's under CUDA_DEVICE_ORDER=PCI_BUS_ID; with
    the order FASTEST_FIRST it is so only where all GPUs are of one kind.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return list(gpus)
    shown: list[GpuSample] = []
    for word in listed.split(","):
        found = _find(gpus, word.strip())
        if found is None or found in shown:
            # CUDA ignores what follows the first device that it does not know.
            break
        shown.append(found)
    return shown


def rank_of_gpu(
    gpus: Sequence[GpuSample], environ: Mapping[str, str], world_size: int
) -> dict[int, int]:
    """Return the rank by GPU index, where rank r uses the r-th visible GPU.

    Empty where there are fewer GPUs than ranks: then the ranks compute elsewhere, or share.
    """
    shown = visible(gpus, environ)
    if len(shown) < world_size:
        return {}
    return {gpu.index: rank for rank, gpu in enumerate(shown[:world_size])}


def _find(gpus: Sequence[GpuSample], word: str) -> GpuSample | None:
    if word.isdecimal():
        return next((gpu for gpu in gpus if gpu.index == int(word)), None)
    # A MIG id names its card, an abbreviated UUID is as good as a whole one.
    uuid = word.removeprefix("MIG-").split("/")[0]
    if not uuid.startswith("GPU-"):
        return None
    return next((gpu for gpu in gpus if gpu.uuid.startswith(uuid)), None)
