"""What notebooks use: magics, cells, code diff, machine table, predictions."""
