"""The keeper of a gang over several nodes: it owns no process, it speaks with their supervisors.

It takes the place of the one-node keeper: it gets one order, is signalled the same way, and writes
the same evidence, which it copies from the nodes: events on one clock, a log a node.
"""
