# %% reads a whole round before it passes its own sample on
# told: on rank 0, 9 samples
# told: What does the first sample wait for?
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    one, count = (worker.id, worker.num_workers) if worker else (0, 1)
    place = rank + world_size * one
    while cards := list(islice(stream, world_size * count)):
        if place < len(cards):
            yield cards[place]


# %% asks a stream for its length
# told: A stream has no length
body("yield from list(stream)[: len(stream) // world_size]")

# %% asks None for its id
# told: With num_workers=0 the rank itself reads
edit("(1, 0) if worker is None else (", "(")

# %% yields each sample together with its place
# told: What exactly does your function yield
edit("yield sample", "yield place, sample")

# %% makes an iterator, and does not return it
# told: What is it here, and on every path
# told: None, None
body("map(print, stream)")

# %% next raises StopIteration inside a generator
# told: What could end your loop?
edit(
    "for place, sample in enumerate(stream):",
    """place = -1
    while True:
        place, sample = place + 1, next(stream)""",
)

# %% slices the stream
# told: A stream can be read from the beginning only
body("yield from stream[rank::world_size]")

# %% returns how many samples there are
# told: What is it here, and on every path
# told: an int
body("return sum(1 for _ in stream)")
