"""The kernel's log: the only witness of faults below any program."""
