"""What a launch would be, and whether it can work, before anything is started."""
