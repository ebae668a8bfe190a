"""A network to order: links, what a call takes on them, and gloo made to wait for it."""
