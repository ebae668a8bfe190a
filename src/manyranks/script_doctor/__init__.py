"""A few steps of a reader's own script on a few CPU ranks: what was seen, and what it means.

Observers note facts in each rank, as lines of a file that a crash or a hang leaves behind. Rules
read the facts of all ranks and judge them: an observer never judges, and a rule sees facts alone.
"""
