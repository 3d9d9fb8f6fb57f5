"""Who entered which collective, and who did not: from NCCL, from torch, from our own ranks."""
