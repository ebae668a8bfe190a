"""Chapter 04: the small workers and measurements that its pages run."""
