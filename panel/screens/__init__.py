"""The panel: one screen a file. Screens read one stored view and send requests, nothing else."""
