"""Chapter 10's exercises."""
