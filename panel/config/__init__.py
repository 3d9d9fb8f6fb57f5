"""Where the program keeps its files, and what an operator writes into them."""
