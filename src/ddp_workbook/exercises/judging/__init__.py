"""The machinery of an exercise: from the reader's cell to a verdict."""
