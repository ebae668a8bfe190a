"""Chapter 06: the small workers and measurements that its pages run."""
