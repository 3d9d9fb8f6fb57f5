"""Weights that outlive the ranks: a process that holds their memory, and how ranks use it.

`python -m panel.server.kept FD` is the weight keeper. It needs the standard library alone and, for
GPUs, their driver. Ranks ask it for memory by `lease`, lay their weights on a `Shelf` of it, and
leave a `parcel` there that says what lies where.
"""
