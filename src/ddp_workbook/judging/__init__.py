"""Judges exercises: from the reader's cell to a verdict."""
