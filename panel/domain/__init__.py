"""The words of the program as frozen data: no I/O, no clock, nothing of the outside world."""
