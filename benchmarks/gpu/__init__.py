"""`make gpu`: all that one NVIDIA GPU can show, in one call of less than ten minutes."""
