"""Chapter 07's pictures."""
