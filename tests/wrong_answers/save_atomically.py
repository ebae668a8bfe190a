# %% moves the old file away first
# told: there is no file at path; before the call
# told: For a moment there is no file at path
edit("new.replace(path)", "path.unlink(missing_ok=True)\n        new.replace(path)")

# %% keeps a copy of the old file
# told: left in the folder: last.pt.old
# told: more than one file is there
edit(
    "    try:\n",
    '    if path.exists():\n        os.link(path, f"{path}.old")\n    try:\n',
)

# %% an unfinished file in the system's temporary folder
# told: the file came to path from another folder
# told: A rename is atomic within one file system
edit(
    'new = path.with_name(f"{path.name}.new")',
    'new = __import__("pathlib").Path(__import__("tempfile").gettempdir(), f"save-{os.getpid()}")',
)

# %% pickle, which torch.load does not read
# told: cannot be loaded
# told: Does torch.save write this file
edit("torch.save(state, file)", '__import__("pickle").dump(state, file)')

# %% saves a part of the state
# told: path holds another state
edit("torch.save(state, file)", 'torch.save({"step": state["step"]}, file)')

# %% refuses a file that a killed call has left
# told: FileExistsError
# told: A call that was killed could not remove its file
edit('open("wb")', 'open("xb")')

# %% no fsync
# told: with no fsync before it
# told: may put the name on the disk first
edit("            os.fsync(file.fileno())", "            pass")

# %% fsync of the folder alone
# told: the fsync was of something else
# told: What is fsync asked to put on the disk here
edit("file.fileno()", "os.open(path.parent, os.O_RDONLY)")

# %% ignores what fsync says
# told: it returned; path holds the new state
# told: Who learns that nothing was saved
edit(
    "            os.fsync",
    "            with __import__('contextlib').suppress(OSError):\n                os.fsync",
)

# %% cleans up too much
# told: path holds no file, after
# told: The old file is gone, and no new one came
edit("new.unlink(missing_ok=True)", "new.unlink(missing_ok=True)\n        path.unlink()")

# %% fsync while the data is in Python's buffer
# told: fsync came before all of its data
# told: was not yet written to the file
edit(
    "torch.save(state, file)",
    """torch.save(state, buffer := __import__("io").BytesIO())
            file.write(buffer.getvalue())""",
)

# %% if nothing else works, at least in place
# told: a file of 0 bytes that cannot be loaded (EOFError), after
# told: Which line touches it before the new file is whole
edit("        raise", "        torch.save(state, path)\n        raise")
