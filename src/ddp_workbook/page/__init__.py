"""What a page is made of: magics, play, predictions, code diff, listings, the machine."""
