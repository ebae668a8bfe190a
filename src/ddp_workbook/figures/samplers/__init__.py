"""Chapter 04's pictures: who got which samples, losses, loading, pinned memory, unequal work."""
