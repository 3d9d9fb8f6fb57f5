"""Hangs: when one is suspected, and which look at it comes next."""
