"""The exercises, one file each: the task, the solution, the hints, and the check that judges.

A folder a chapter. `judging.catalogue` lists them in the order of the notebooks.
"""
