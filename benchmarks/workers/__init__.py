"""What runs in the ranks that the benchmark starts. Only torch is imported here, as by a reader."""
