"""Chapter 08's exercises."""
