"""ContainerConfig to the runtime-spec's config.json: pure functions, one module per part."""
