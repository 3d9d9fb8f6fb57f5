"""From evidence to a verdict: who failed first, how, why, and what to do.

`triage` is fed with events and bytes of logs as they come and has the verdict at any time, live and
offline alike. On the way: `shapes` picks the lines worth a look, `speaker` says who wrote them,
`trace` puts tracebacks together, `reader` makes marks of them by the `signatures`. `gang` is what
events tell. `scene` puts all side by side; `faults`, `deaths`, `told`, `kernel`, `victims` and
`hangs` each know one class of evidence, `root` chooses among them, `conclude` writes the verdict.
"""
