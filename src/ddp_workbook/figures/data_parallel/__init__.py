"""Chapter 01: its pictures."""
