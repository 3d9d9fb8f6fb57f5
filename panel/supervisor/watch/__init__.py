"""Small samplers: each looks at one thing and keeps what it needs to see the difference."""
