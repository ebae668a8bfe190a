"""Chapter 02: the small workers and measurements that its pages run."""
