"""The progress board: what attendees choose to share, and the instructor's view of it."""
