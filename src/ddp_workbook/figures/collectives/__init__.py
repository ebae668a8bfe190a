"""Chapter 05: its pictures."""
