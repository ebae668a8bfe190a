"""What an attendee's page tells the room, if they have joined it."""
