"""Chapter 07: one program under several launchers, how hosts meet, what breaks, what it gains."""
