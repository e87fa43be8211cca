"""A container's terminal: received from its runtime, held, and relayed to a person.

`controller_fd` is our end of it (the field's "master"), `terminal_fd` the payload's.
"""
