"""Scripts under `launch`: what they ask for, what they say as they leave, how they are named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from manyranks.errors import LaunchRefused, RankFailed
from manyranks.launcher.launch import launch
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes train.py into the current folder, which is empty."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "train.py") -> Path:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return Path(name)

    return write


# A script in which no rank joins a group

ALONE = (
    "No rank called init_process_group: the script ran 2 times, and nothing shows that the ranks "
    "met."
)
JOINS = "import torch.distributed as dist\n{before}\ndist.init_process_group('gloo')\n"


def explanation_of(script: Path, capsys, *words: str) -> str:
    """What `launch` says after a script that ends well on both ranks."""
    assert launch(script, *words, ranks=2) == [None, None]
    return capsys.readouterr().out.partition(ALONE)[2].strip()


def test_a_script_that_joins_in_its_own_way_is_left_in_peace(script, capsys):
    mesh = "from torch.distributed.device_mesh import init_device_mesh\n"
    mesh += "import torch.distributed as dist\ninit_device_mesh('cpu', (2,))\n"
    leaves = "dist.barrier()\ndist.destroy_process_group()\n"
    launch(script(mesh + leaves), ranks=2)
    launch(script(JOINS.format(before="import os") + leaves), ranks=2)
    launch(script("print('one process')"), ranks=1)
    out = capsys.readouterr().out
    assert "No rank" not in out and "collective" not in out


def test_a_script_without_any_group_is_told_what_joins(script, capsys):
    told = explanation_of(script("print('here', __name__)"), capsys)
    assert told.startswith("Under torchrun a script calls dist.init_process_group() on every rank")
    assert told.endswith("The last line that rank 0 printed: here __main__")
    assert "local_rank" not in told


def test_a_script_that_leaves_early_is_quoted_and_no_cause_is_guessed(script, capsys):
    """It has no GPU, or was asked for --help."""
    needs = "import sys, torch\nif not torch.xpu.is_available():\n    print('needs a GPU')\n"
    told = explanation_of(script(JOINS.format(before=needs + "    sys.exit()")), capsys)
    assert "Rank 0 left at train.py:5  sys.exit()" in told
    assert "No rank reached init_process_group in line 6." in told
    assert told.endswith("The last line that rank 0 printed: needs a GPU")
    parser = "import argparse\nparser = argparse.ArgumentParser(epilog='the end')\n"
    told = explanation_of(
        script(JOINS.format(before=parser + "parser.parse_args()")), capsys, "--help"
    )
    assert "Rank 0 left at train.py:4  parser.parse_args()" in told
    assert told.endswith("The last line that rank 0 printed: the end")
    assert "local_rank" not in told and "LOCAL_RANK" not in told


def test_a_script_that_waits_for_local_rank_is_told_so(script, capsys):
    """As torch.distributed.launch passed it, years ago."""
    text = "import argparse\nparser = argparse.ArgumentParser()\n"
    text += "parser.add_argument('--local_rank', type=int, default=-1)\n"
    text += "if parser.parse_args().local_rank != -1:\n    "
    text += "import torch.distributed as dist; dist.init_process_group('gloo')\n"
    told = explanation_of(script(text), capsys)
    assert "No rank reached init_process_group in line 5." in told
    assert 'read int(os.environ["LOCAL_RANK"]) instead' in told


@pytest.mark.push("other people's programs again")
def test_a_script_whose_ranks_never_call_a_collective_is_told_so(script, capsys):
    """Libraries that find no GPU train alone in each rank, and say nothing."""
    alone = "No rank called a collective that"
    launch(script(JOINS.format(before="import os")), ranks=2)
    out = capsys.readouterr().out
    assert alone in out and "On the CPU" not in out
    launch(script("from accelerate import Accelerator\nAccelerator()\n"), ranks=2)
    assert "On the CPU, accelerate needs Accelerator(cpu=True)." in capsys.readouterr().out
    launch(script("from lightning.fabric import Fabric\nFabric().launch()\n"), ranks=2)
    out = capsys.readouterr().out
    assert 'On the CPU, lightning needs accelerator="cpu", devices=2.' in out
    two_sided = "if dist.get_rank():\n    dist.recv(x, 0)\nelse:\n    dist.send(x, 1)\n"
    launch(script(JOINS.format(before="import torch; x = torch.ones(1)") + two_sided), ranks=2)
    launch(script(JOINS.format(before="import os") + "dist.barrier()\n"), ranks=2)
    out = capsys.readouterr().out
    assert "No rank" not in out and "collective" not in out


# A script whose parser refuses its arguments

PARSERS = {
    "argparse": (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, required=True)\nparser.parse_args()\n"
    ),
    "typer": "import typer\ndef main(lr: float = typer.Option(...)):\n    pass\ntyper.run(main)\n",
}


@pytest.mark.parametrize("words", [(), ("--lr", "abc")], ids=["missing", "wrong"])
@pytest.mark.parametrize("parser", PARSERS)
def test_the_parsers_own_words_are_the_report(script, parser, words):
    with pytest.raises(RankFailed) as caught:
        launch(script(PARSERS[parser]), *words, ranks=2)
    error, _, look_at = str(caught.value).partition("look at")
    said = error.partition("it said")[2]
    assert "usage: train.py" in said.lower() and "--lr" in said
    assert ("invalid" in said.lower()) == bool(words)
    assert 'launch("train.py", "--epochs", "3")' in look_at and "LOCAL_RANK" not in look_at
    assert error.count("Traceback") == 1  # not the parser's own errors before it


def test_only_an_argument_of_that_name_is_about_the_local_rank(script):
    text = PARSERS["argparse"].replace("'--lr', type=float", "'--local_rank', type=int")
    with pytest.raises(RankFailed) as caught:
        launch(script(text), ranks=2)
    assert 'int(os.environ["LOCAL_RANK"])' in str(caught.value).partition("look at")[2]
    with pytest.raises(RankFailed) as caught:
        launch("train.py", "--local_rank", "0", "--epochs 3", ranks=2)
    assert "LOCAL_RANK" not in str(caught.value).partition("look at")[2]


def test_a_script_that_leaves_with_a_code_is_quoted(script):
    text = "import sys\nprint('no such folder: data')\nsys.exit(2)\n"
    with pytest.raises(RankFailed) as caught:
        launch(script(text), ranks=2)
    assert "it said   no such folder: data" in str(caught.value)
    assert "look at" not in str(caught.value)  # 2 is not always a parser's


def test_a_script_that_leaves_after_an_error_of_its_own_is_told_the_error(script):
    """As Hydra does."""
    text = "import sys\ntry:\n    raise ValueError('bad step')\n"
    with pytest.raises(RankFailed) as caught:
        launch(script(text + "except ValueError:\n    sys.exit(1)\n"), ranks=2)
    assert re.match(r"Rank \d \(of 2\) failed: ValueError: bad step", str(caught.value))
    assert "SystemExit" not in str(caught.value) and "line 3" in str(caught.value)


# How a script is named


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("torchrun --nproc-per-node 3 train.py --lr 0.1", '("train.py", "--lr", "0.1", ranks=3)'),
        ("torchrun --standalone --nproc_per_node=4 -m pkg.train", '("-m", "pkg.train", ranks=4)'),
        ("python -m torch.distributed.run --nproc-per-node 4 train.py", '("train.py", ranks=4)'),
        ("python train.py", '("train.py", ranks=2)'),
        ("/usr/bin/python3.11 -u train.py x", '("train.py", "x", ranks=2)'),
        ("train.py --lr 0.1", '("train.py", "--lr", "0.1", ranks=2)'),
        ("train", '("train.py", ranks=2)'),
        ("-m pkg.train", '("-m", "pkg.train", ranks=2)'),
        ("pkg.train", '("-m", "pkg.train", ranks=2)'),
        ("pkg", 'pkg is a folder: .* launch("-m", "pkg", ranks=2)'),
        ("tran.py", "Did you mean train.py?"),
        ("srun --ntasks 3 python train.py x", '("train.py", "x", ranks=3)'),
        ("mpirun -np 2 python train.py", '("train.py", ranks=2)'),
        ("accelerate launch --num_processes 4 train.py", '("train.py", ranks=4)'),
        ("CUDA_VISIBLE_DEVICES=0 torchrun --nproc-per-node 3 train.py", '("train.py", ranks=3)'),
        ("!torchrun train.py", '("train.py", ranks=2)'),
        ("python -m torch.distributed.launch --use_env train.py", '("train.py", ranks=2)'),
        ("train.ipynb", "Did you mean train.py?"),
        ("nothing like it", "There is no script nothing like it"),
        ("torchrun 'open quote", "There is no script torchrun"),
        ("torchrun --no-such-option", "There is no script torchrun"),
    ],
)
def test_a_command_line_is_answered_with_the_right_call(script, asked, says):
    script("def main():\n    pass\n")
    script("def main():\n    pass\n", "pkg/train.py")
    script("pass\n", "pkg/__main__.py")
    with pytest.raises(LaunchRefused) as caught:
        launch(asked)
    assert all(part in str(caught.value) for part in says.split(".*"))


@pytest.mark.parametrize("name", ["nproc_per_node", "nprocs", "world_size", "num_processes"])
def test_the_number_of_ranks_by_another_name(script, name):
    with pytest.raises(LaunchRefused, match=f"{name}=2: launch takes .* as ranks=2"):
        launch(script("pass\n"), **{name: 2})
    if name != "world_size":  # which launch fills in
        with pytest.raises(LaunchRefused, match="launch takes the number of ranks as ranks=2"):
            launch(print_nothing, **{name: 2})


@pytest.mark.parametrize("how", ["args", "list", "words"])
def test_words_that_are_not_given_one_by_one(script, how):
    script("pass\n")
    with pytest.raises(LaunchRefused) as caught:
        if how == "args":
            launch("train.py", args=["--lr", "0.1"])
        elif how == "list":
            launch("train.py", ["--lr", "0.1"])
        else:
            launch("torchrun", "--nproc-per-node", "2", "train.py", "--lr", 0.1)
    assert 'launch("train.py", "--lr", "0.1"' in str(caught.value)


def print_nothing():
    pass


def test_a_module_runs_as_under_torchrun(script, capsys):
    """`-m`, with an import from its own package and a command line."""
    script("SUMS = 'sums'\n", "pkg/names.py")
    main = script(
        "import sys\nimport torch.distributed as dist\nfrom .names import SUMS\n"
        "dist.init_process_group('gloo')\ndist.barrier()\n"
        "print(__name__, SUMS, *sys.argv[1:])\nassert '-x' not in sys.argv, 'asked to fail'\n",
        "pkg/train.py",
    )
    assert launch("-m", "pkg.train", "--lr", 0.1, ranks=2) == [None, None]
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith("--nproc-per-node 2 -m pkg.train --lr 0.1")
    assert out.count("__main__ sums --lr 0.1") == 2
    with pytest.raises(RankFailed, match="asked to fail") as caught:
        launch("-m", "pkg.train", "-x", ranks=2)
    assert f'File "{main}", line 7' in str(caught.value)
    with pytest.raises(RankFailed, match=r'launch\("-m", "package.module"\)'):
        launch(main, ranks=2)  # by its path it is in no package
    with pytest.raises(LaunchRefused, match=r"There is no module pkg.missing"):
        launch("-m", "pkg.missing")
    with pytest.raises(LaunchRefused, match=r"pkg is a package without a __main__.py"):
        launch("-m", "pkg")


# The script is `__main__`

SPAWNS = """
from typing import NamedTuple
from torch.utils.data import DataLoader

class Batch(NamedTuple):
    x: list

def collate(items):
    return Batch(items)

if __name__ == "__main__":
    import sys
    assert sys.modules["__mp_main__"] is sys.modules["__main__"]
    options = {"num_workers": 1, "multiprocessing_context": "spawn", "collate_fn": collate}
    print(list(DataLoader(range(4), batch_size=2, **options)))
"""


def test_objects_of_the_scripts_classes_come_back_from_its_children(script, capsys):
    launch(script(SPAWNS), ranks=1)
    assert "[Batch(x=[0, 1]), Batch(x=[2, 3])]" in capsys.readouterr().out


MEETS_IN_CHILDREN = """
import os, sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp

def meet(number):
    dist.init_process_group("gloo", rank=number, world_size=2)
    x = torch.ones(1)
    dist.all_reduce(x)
    print("sum", x.item(), flush=True)
    dist.barrier()
    os._exit(0)

if __name__ == "__main__":
    child = mp.get_context(sys.argv[1]).Process(target=meet, args=(int(os.environ["RANK"]),))
    child.start()
    child.join()
"""


@pytest.mark.push("other people's programs again")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_the_ranks_may_meet_at_the_launchs_store(script, capsys, method):
    launch(script(MEETS_IN_CHILDREN), method, ranks=2, timeout=120)
    assert capsys.readouterr().out.count("] sum 2.0") == 2


AT_THE_END = {
    "hangs": "dist.barrier()",
    "exits": "os._exit(0)",
    "crashes": "import ctypes; ctypes.string_at(0)",
}


@pytest.mark.parametrize("how", AT_THE_END)
def test_an_error_is_told_whatever_runs_at_the_end(script, how):
    text = "import atexit, os, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    text += f"def clean():\n    {AT_THE_END[how]}\natexit.register(clean)\n"
    text += "if dist.get_rank() == 1:\n    raise FileNotFoundError('data.csv')\n"
    text += "for _ in range(3):\n    dist.all_reduce(torch.ones(1))\n"
    with pytest.raises(RankFailed, match=r"Rank 1 \(of 2\) failed: FileNotFoundError: data\.csv"):
        launch(script(text), ranks=2, timeout=20)


def test_an_error_is_told_whatever_its_frames_hold(script):
    """A local object whose end waits for the other ranks."""
    text = "import torch, torch.distributed as dist\nclass Waits:\n    def __del__(self):\n"
    text += (
        "        dist.barrier()\ndef train():\n    waits = Waits()\n    raise KeyError('weights')\n"
    )
    text += "dist.init_process_group('gloo')\nif dist.get_rank() == 1:\n    train()\n"
    text += "dist.all_reduce(torch.ones(1))\n"
    with pytest.raises(RankFailed, match=r"Rank 1 \(of 2\) failed: KeyError: 'weights'"):
        launch(script(text), ranks=2, timeout=20)


def test_a_script_in_a_folder_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(LaunchRefused, match="current folder no longer exists"):
        launch("train.py")


# A script that is not there any more


def test_a_script_that_deletes_itself_runs_on_all_ranks_and_its_lines_are_shown(script):
    text = "import os, sys, time\nif os.environ['RANK'] == '0':\n    os.remove(sys.argv[0])\n"
    text += "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n"
    path = script(text)
    assert launch(path, ranks=4) == [None] * 4
    assert not path.exists()
    path = script(text + "raise ValueError('shown')\n")
    with pytest.raises(RankFailed, match=r"raise ValueError\('shown'\)") as caught:
        launch(path, ranks=2)
    assert "line 7" in str(caught.value)


def test_a_script_that_changes_its_folder_is_named_as_the_reader_sees_it(script):
    script("import os\nos.chdir('/')\nraise ValueError('elsewhere')\n")
    with pytest.raises(RankFailed, match=r'File "train\.py", line 3'):
        launch("train.py", ranks=2)


def test_a_script_with_an_encoding_of_its_own(script, capsys):
    path = script("")
    path.write_bytes("# -*- coding: latin-1 -*-\nprint('caf\xe9')\n".encode("latin-1"))
    launch(path, ranks=1)
    assert "[rank 0] café" in capsys.readouterr().out


def test_a_command_line_is_shown_only_if_it_runs_the_same(script, capsys, monkeypatch):
    """Not for a function whose file, run as a script, does something else."""
    text = "def demo():\n    pass\ndef main(more=0):\n    pass\n"
    script(text + "if __name__ == '__main__':\n    main()\n", "functions_of_a_file.py")
    monkeypatch.syspath_prepend(Path.cwd())
    import functions_of_a_file

    launch(functions_of_a_file.main, ranks=1)
    assert "torchrun --standalone" in capsys.readouterr().out
    launch(functions_of_a_file.demo, ranks=1)
    launch(functions_of_a_file.main, 3, ranks=1)
    assert "torchrun" not in capsys.readouterr().out


@pytest.mark.push("other people's programs again")
def test_the_shown_command_is_torchruns(script):
    """What `launch` prints for a module runs under torchrun."""
    script("import torch.distributed as dist\ndist.init_process_group('gloo')\n", "pkg/train.py")
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*line, "-m", "pkg.train"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
