"""Pieces of screens. Files named `…_rows` are pure: data in, rows of spans out."""
