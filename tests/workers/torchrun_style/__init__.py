"""Workers as people write them for torchrun: `launch` must run them without an edit."""
