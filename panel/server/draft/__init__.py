"""EAGLE-3: a small head that guesses what the model will say, for the model to verify."""
