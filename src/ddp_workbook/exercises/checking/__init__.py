"""What turns a file of `exercises` into a cell to fill in, and an attempt into a verdict."""
