"""Kernels of the engine, each with its plain torch reference."""
