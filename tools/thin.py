"""Makes a .venv of some kilobytes, whose packages are those of another one, which is not written.

For twenty people on one machine: one of them sets up, and the others have folders of their own.
What differs between them is in the thin one: where `ddp_workbook` is, the programs that begin with
it, and the settings of Jupyter.
"""

import re
import shutil
import subprocess
from pathlib import Path

LONGEST_FIRST_LINE = 127  # bytes that every Linux takes of a script's first line


def make(venv, shared, root, old_paths, options=()):
    """Make `venv` for the checkout `root` with the packages of `shared`; raises OSError.

    `old_paths` are its paths as its programs may name it, `options` more words for
    `python -m venv`.
    """
    if venv.is_symlink():
        venv.unlink()
    line = [str(shared / "bin" / "python"), "-m", "venv", "--clear", "--without-pip", *options]
    if subprocess.call([*line, str(venv)]):
        raise OSError(f"{shared} has no Python that you can run")
    packages = next(shared.glob("lib/python3*/site-packages"))
    own = next(venv.glob("lib/python3*/site-packages"))
    # The first line comes first on the path, so this checkout's package hides the other one's.
    lines = [str(root / "src"), f"import site; site.addsitedir({str(packages)!r})"]
    (own / "shared.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (venv / "share").symlink_to(shared / "share")
    for file in (shared / "etc").rglob("*"):
        if file.is_file():
            copy = venv / file.relative_to(shared)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file), str(copy))
    for program in (shared / "bin").iterdir():
        copy = venv / "bin" / program.name
        if not copy.exists():
            copy_program(program, copy, old_paths, str(venv))


def copy_program(program, copy, old_paths, own):
    """A script that names its Python, with another one; a link to any other program.

    A line #! must hold no space in the path, and little more than 127 characters on some systems.
    There pip's way is used: the shell starts Python with the script, for which this is a string.
    """
    begins = program.read_bytes()[:2] if program.is_file() else b""
    if begins != b"#!":
        copy.symlink_to(program)
        return
    text = program.read_text(encoding="utf-8", errors="surrogateescape")
    for path in old_paths:
        text = text.replace(path, own)
    first, _, rest = text.partition("\n")
    if first.startswith(f"#!{own}/") and (" " in own or len(first) > LONGEST_FIRST_LINE):
        python = re.sub(r'([\\"$`])', r"\\\1", first[2:])
        text = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n{rest}"
    copy.write_text(text, encoding="utf-8", errors="surrogateescape")
    copy.chmod(0o755)


def finds_both(venv, root, env):
    """Whether its Python finds torch, and this checkout's package."""
    look = (
        "import importlib.util as u; from pathlib import Path as P\n"
        "own, torch = u.find_spec('ddp_workbook'), u.find_spec('torch')\n"
        "print(bool(torch) and P(own.origin).resolve().parents[2])"
    )
    line = [str(venv / "bin" / "python"), "-c", look]
    try:
        quiet = subprocess.DEVNULL
        result = subprocess.run(line, env=env, stdout=subprocess.PIPE, stderr=quiet)
    except OSError:
        return False
    return result.stdout.decode().strip() == str(Path(root).resolve())
