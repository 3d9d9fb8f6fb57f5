"""The daemon that launches, watches and remembers, and the keeper that owns one gang.

This module stays empty: the keeper is imported through it and must remain small.
"""
