"""Workers that the tests launch; a rank imports them by name."""
