"""From evidence to a verdict."""
