"""Chapter 02: its pictures."""
