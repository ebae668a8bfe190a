"""One module a chapter: the small workers and measurements that its pages run."""
