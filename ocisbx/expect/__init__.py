"""Expect on a terminal: patterns, cases, scripts, and the screen that a person would see."""
