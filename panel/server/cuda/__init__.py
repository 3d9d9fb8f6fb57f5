"""The engine's steps on a GPU: one upload, kernels from a captured graph, tokens sampled there."""
