"""ContainerConfig and resolve(): every default is decided here and nowhere else."""
