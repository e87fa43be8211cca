"""Sessions: long-lived containers that take many commands."""
