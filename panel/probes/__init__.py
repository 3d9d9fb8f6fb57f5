"""What the outside world says of this node: readers of the system and what they mean."""
