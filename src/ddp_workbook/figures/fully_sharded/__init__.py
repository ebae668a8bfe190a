"""Chapter 06: its pictures."""
