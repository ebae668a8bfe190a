"""Chapter 09's exercises."""
