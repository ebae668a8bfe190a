"""What the page is made of: magics, cells, code diff, machine table, predictions."""
