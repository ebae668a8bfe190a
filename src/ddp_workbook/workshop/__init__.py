"""The instructor's commands: is a machine ready, how far is the room, what does a page take."""
