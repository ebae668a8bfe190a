"""What makes a notebook cell run on N ranks: launching, recording, timing and pictures.

Nothing here knows a chapter or an exercise.
"""
