"""Client of a runc-shaped command line: the verbs of runc, crun and youki, and their words."""
