"""Batch sizes of decode: each step is padded to the next one, for which the work is prepared."""

from __future__ import annotations

from panel.server.options import Options


def bucket_table(options: Options) -> tuple[int, ...]:
    """Return the batch sizes to prepare, ascending; empty where graphs are off.

    Sizes above `max-running-requests` never occur and are left out.
    """
    if options.disable_cuda_graph:
        return ()
    most = options.max_running_requests
    limit = min(options.cuda_graph_max_bs or most, most)
    if options.cuda_graph_bs is not None:
        return tuple(size for size in options.cuda_graph_bs if size <= limit)
    powers = [1 << exponent for exponent in range(limit.bit_length())]
    return tuple(sorted({*powers, limit}))


def padded(count: int, buckets: tuple[int, ...]) -> int:
    """Return the bucket of a batch of `count`; a batch above all buckets is not padded."""
    return next((size for size in buckets if size >= count), count)
