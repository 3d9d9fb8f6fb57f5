"""The GPUs of the node, through NVML."""
