"""The commands of `moepanel`, one a file, imported when they are asked for."""
