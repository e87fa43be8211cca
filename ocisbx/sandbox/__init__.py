"""The front door: what is resolved once runs commands, each in a fresh container."""
