"""A training program of a reader's own, as `ddp-workbook new` writes it."""
