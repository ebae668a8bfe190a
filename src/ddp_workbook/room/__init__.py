"""A room: attendees who have chosen to share their progress, and the instructor's view of it."""
