"""The house style of all pictures, and one module a chapter with what is drawn there."""
