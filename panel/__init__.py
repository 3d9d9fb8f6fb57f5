"""moepanel: the terminal control panel of one inference node."""

__version__ = "0.1.0"
