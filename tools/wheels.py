"""Fill a folder with the packages of the workbook:  python -m tools.wheels DIR

From that folder, `make lab WHEELS=DIR` sets the workbook up without a network. It serves machines
of the same system and Python as this one; run it on one machine of each kind, into one folder.
The folder also gets the checksum of each file, so that a damaged copy is not installed. torch is
the CPU build: a CUDA build is gigabytes of files for one version of the driver.
"""

import platform
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from tools.set_up import CHECKSUMS, CONSTRAINTS, checksum, pinned_requirement, requirements

DOWNLOAD = [sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--no-cache-dir"]
COMPILE = ["-m", "uv", "pip", "compile", "--no-deps", "--format=pylock.toml"]


def main() -> None:
    """Download everything, or say why not; files that are there already are kept."""
    folder = Path(sys.argv[1]).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"{folder} cannot be made: {error.strerror}.")
    print(f"torch ({pinned_requirement('torch')}, for CPUs) ...", flush=True)
    download_torch(folder)
    print("JupyterLab and all else ...", flush=True)
    packages = [*requirements(dev=False), pinned_requirement("uv")]
    download(
        folder,
        "-c",
        str(CONSTRAINTS),
        f"--find-links={folder.as_uri()}",
        torch_in(folder),
        *packages,
    )
    files = sorted(folder.glob("*.whl"))
    lines = [f"{checksum(file)}  {file.name}\n" for file in files]
    (folder / CHECKSUMS).write_text("".join(lines))
    size = sum(file.stat().st_size for file in files) / 1e6
    kind = f"{platform.system()} on {platform.machine()}, Python {platform.python_version()}"
    print(
        f"{len(files)} files, {size:,.0f} MB in {folder}, for {kind}.\n"
        f'On an attendee\'s machine of that kind:  make lab WHEELS="/path/to/{folder.name}"'
    )


def download_torch(folder: Path) -> None:
    """The CPU build from pip's index; on Linux, where it may not have one, from where uv says."""
    torch = pinned_requirement("torch")
    if not sys.platform.startswith("linux"):
        download(folder, "--no-deps", torch)
    elif not attempt(folder, "--no-deps", f"{torch}+cpu"):
        address = address_of(torch, "--torch-backend=cpu")
        download(folder, "--no-deps", address)


def torch_in(folder: Path) -> str:
    """The downloaded torch, as a requirement that no other build fulfils."""
    wheel = next(file for file in fitting(folder.glob("torch-*.whl")))
    return f"torch @ {wheel.as_uri()}"


def fitting(files) -> list[Path]:
    """Those of these wheels that this Python can install."""
    tags = set(sys_tags())
    return [file for file in files if parse_wheel_filename(file.name)[3] & tags]


def address_of(requirement: str, *options: str) -> str:
    """Where the wheel for this Python is, with its checksum, as uv finds it."""
    with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
        file.write(requirement)
        file.flush()
        line = [sys.executable, *COMPILE, *options, file.name]
        result = subprocess.run(line, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{result.stderr}\n{requirement} was not found, for the reason above.")
    wheels = tomllib.loads(result.stdout)["packages"][0]["wheels"]
    by_name = {Path(wheel["url"].replace("%2B", "+")): wheel for wheel in wheels}
    fits = fitting(by_name)
    if not fits:
        sys.exit(f"There is no {requirement} for this Python and this system.")
    wheel = by_name[fits[0]]
    return f"{wheel['url']}#sha256={wheel['hashes']['sha256']}"


def attempt(folder: Path, *words: str) -> bool:
    """Whether pip has downloaded these; quiet if not."""
    line = [*DOWNLOAD, "--quiet", "-d", str(folder), *words]
    return subprocess.run(line, stderr=subprocess.DEVNULL).returncode == 0


def download(folder: Path, *words: str) -> None:
    """Let pip download these; end with its own words if it cannot."""
    if subprocess.run([*DOWNLOAD, "--quiet", "-d", str(folder), *words]).returncode:
        sys.exit(f"\nThe download failed, for the reason above. What is in {folder} was kept.")


if __name__ == "__main__":
    main()
