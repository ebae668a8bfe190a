"""What went over the wire, and how long it took."""
