"""Chapter 05: what the collectives move, when ranks wait, and what messages cost."""
