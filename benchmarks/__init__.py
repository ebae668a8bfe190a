"""`make benchmark`: the targets of the design, measured side by side on this machine.

Each row is a module with a `measure(quick)` that returns lines of the table.
"""
