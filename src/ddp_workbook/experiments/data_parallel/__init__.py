"""Chapter 01: the small workers and measurements that its pages run."""
