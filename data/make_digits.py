"""Write `digits.csv.gz`, the table that every chapter trains on, from scikit-learn's copy.

    python data/make_digits.py [FILE]

scikit-learn is needed here only, never by a reader. The same digits give the same bytes, so a test
can write the file again and compare.
"""

import gzip
import sys
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_digits

OUTPUT = Path(__file__).with_name("digits.csv.gz")


def digits_table() -> pd.DataFrame:
    """One row a digit: pixel_0 … pixel_63 (8 x 8, row by row, 0 to 16), then label (0 to 9)."""
    digits = load_digits()
    names = [f"pixel_{i}" for i in range(digits.data.shape[1])]
    return pd.DataFrame(digits.data.astype(int), columns=names).assign(label=digits.target)


def write(path: Path = OUTPUT) -> None:
    """Write the table to `path` as gzipped CSV, the same bytes each time."""
    text = digits_table().to_csv(index=False, lineterminator="\n")  # not \r\n on Windows
    # gzip would store the time of day, and the file's name, in its header.
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT)
