"""Reports where each rank stands and which collectives do not match, in words."""
