"""Warm containers: started ahead, each for one command."""
