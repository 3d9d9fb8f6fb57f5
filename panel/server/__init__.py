"""The engine: a readable Mixture-of-Experts server that runs alone (`moepanel serve`).

Imports nothing else of `panel` but `panel.kernels`. The modules `options`, `phases`, `heartbeat`,
`messages` and `exits` import neither torch nor each other's users, so that a panel without the
engine's packages can still read what the engine says.
"""
