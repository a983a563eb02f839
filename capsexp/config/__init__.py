"""The configuration: its schema, its checks, and how Hydra composes it."""
