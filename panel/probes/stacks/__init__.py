"""Where every process of a gang stands, without its help."""
