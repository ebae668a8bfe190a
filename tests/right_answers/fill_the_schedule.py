# %% a text of three lines, in small letters, with commas, and without holes
def fill_the_schedule():
    return """
        f0, f1, f2, i0, w0, f3, i1, w1, f4, i2, w2, i3, w3, i4, w4
        f0, f1, i0, f2, i1, w0, f3, i2, w1, f4, i3, w2, i4, w3, w4
        f0, i0, f1, i1, f2, i2, w0, f3, i3, w1, f4, i4, w2, w3, w4
    """


# %% rank 0 keeps its backwards whole, since no stage waits for it
def fill_the_schedule():
    return (
        "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
        "F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4",
        "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4",
    )
