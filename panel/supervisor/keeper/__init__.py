"""The keeper: parent of one gang, standard library only (`python -m panel.supervisor.keeper`).

It owns the processes of a launch, notes their deaths in true order, applies the gang policy even
when nobody is attached, and proves that nothing is left. docs/architecture.md has its contract.
"""
