"""Chapter 11's exercises."""
