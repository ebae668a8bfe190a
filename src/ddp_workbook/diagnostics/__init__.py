"""Says where each rank stands, which collective does not match, and all of it in words."""
