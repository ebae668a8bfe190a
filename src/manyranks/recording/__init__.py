"""Records what the ranks sent and held, and how long it took."""
