# %% one line
# told: 1 line
body('return ["F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"]')

# %% two lines
# told: 2 lines
body('return ["F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"] * 2')

# %% a cell that nobody can read
# told: is not F, B, I or W with a micro-batch
edit('"F0 F1 F2 . .', '"F0 F1 F2 x .')

# %% a stage of another rank
# told: rank r has stage r alone
edit('". F0 F1 . I0 F2 I1 W0', '". 0F0 F1 . I0 F2 I1 W0')

# %% counted from 1
# told: what is the last one
body('return ["F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"] * 3')

# %% a micro-batch twice
# told: Should this cell be another one, or go
edit('". . F0 I0 F1', '". . F0 F0 I0 F1')

# %% a whole backward and a half
# told: Which of them does this rank need
edit("W1 F4 I2 W2 I3 W3 I4 W4", "W1 F4 B2 W2 I3 W3 I4 W4")

# %% a W is missing
# told: forward and backward
edit("W1 F4 I2 W2 I3 W3 I4 W4", "W1 F4 I2 W2 I3 W3 I4")

# %% a backward before its forward
# told: What must a rank have computed, and kept
edit('". . F0 I0 F1 I1', '". . I0 F0 F1 I1')

# %% two ranks wait for one another
# told: Follow one of these waits from rank to rank
edit('"F0 F1 F2 . . I0 W0', '"F0 I0 W0 F1 F2 . .', '". F0 F1 . I0 F2 I1 W0', '". F0 F1 F2 I0 I1 W0')

# %% all forwards first, backwards in halves
# told: A rank runs all its forwards first
body("""
return [
    "F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4",
    "F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4",
    "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3 F4 I4 W4",
]
""")

# %% every W at the end
# told: Where does it pass 3
body("""
return [
    "F0 F1 F2 I0 F3 I1 F4 I2 I3 I4 W0 W1 W2 W3 W4",
    "F0 F1 I0 F2 I1 F3 I2 F4 I3 I4 W0 W1 W2 W3 W4",
    "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4",
]
""")

# %% 1F1B
# told: Which half does it need
body("""
return [
    "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
    "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
    "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
]
""")

# %% only rank 0 halves its backwards
# told: so the stage before waits for W as well. Must it
body("""
return [
    "F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4",
    "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
    "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
]
""")

# %% W at once
# told: which W could run there
body("""
return [
    "F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4",
    "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 F4 I3 W3 I4 W4",
    "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3 F4 I4 W4",
]
""")

# %% the first two micro-batches change places on every rank
# told: looks for loss 1, counted from 0, and stops
# told: Can it take them as they are numbered
edit(
    '"F0 F1 F2 . . I0 W0 F3 I1 W1',
    '"F1 F0 F2 . . I1 W1 F3 I0 W0',
    '". F0 F1 . I0 F2 I1 W0 F3 I2 W1',
    '". F1 F0 . I1 F2 I0 W1 F3 I2 W0',
    '". . F0 I0 F1 I1 F2 I2 W0 F3 I3 W1',
    '". . F1 I1 F0 I0 F2 I2 W1 F3 I3 W0',
)

# %% two forwards change places, which PyTorch does not notice
# told: other gradients than those of one process, on rank 0, 1
edit(
    '"F0 F1 F2 . . I0 W0',
    '"F1 F0 F2 . . I0 W0',
    '". F0 F1 . I0 F2',
    '". F1 F0 . I0 F2',
    '". . F0 I0 F1 I1',
    '". . F1 F0 I0 I1',
)
