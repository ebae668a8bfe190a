# %% serialised in memory, written to a file with a name of its own, the folder synced as well
import io
import tempfile


def save_atomically(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    number, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


# %% a name that goes by itself unless the file is renamed; torch writes it by name
from contextlib import ExitStack
from os import fsync


def save_atomically(state, path):
    with ExitStack() as stack:
        new = path.parent / f".{path.name}.{os.getpid()}"
        stack.callback(new.unlink, missing_ok=True)
        torch.save(state, new)
        with open(new, "r+b") as file:
            fsync(file)
        new.rename(path)


# %% a temporary file of Python's, in a folder below
import shutil
import tempfile


def save_atomically(state, path):
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            torch.save(state, file)
            file.flush()
            os.fdatasync(file.fileno())
        shutil.move(file.name, path) if not path.is_dir() else os.replace(file.name, path)


# %% bytes without a buffer of Python's, and the whole system's data on the disk
import io


def save_atomically(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    left = buffer.getvalue()
    new = f"{path}.part"
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
        os.sync()
        os.rename(new, path)
    except Exception as error:
        os.remove(new)
        raise RuntimeError("not saved") from error


# %% a file of which each write waits for the disk
import io


def save_atomically(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    new = path.parent / f".{path.name}.new"
    try:
        number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_SYNC)
        with os.fdopen(number, "wb") as file:
            file.write(buffer.getbuffer())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
