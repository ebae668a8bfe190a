"""A script that needs a GPU or Slurm: the report names every line that does, with its mend."""

import io
import pickle
import re
import time
from pathlib import Path

import pytest

from manyranks.diagnostics import missing_requirements
from manyranks.diagnostics.gpu_needs import CLOCK, GUARD, NO_GRAPH, gpu_needs
from manyranks.diagnostics.launcher_needs import launcher_needs
from manyranks.diagnostics.source import Source, apply_edits, read
from manyranks.errors import RankFailed
from manyranks.launcher.calls import Call, call_of
from manyranks.launcher.launch import launch, run_ranks
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers import missing as worker

HEAD = """import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
rank = int(os.environ["RANK"])
model, x = nn.Linear(2, 2), torch.ones(1, 2)
"""
DELETED = "delete it"
TO_CPU = 'write x.to("cpu")'

# What fails, and the rows of the report: the number of the line below HEAD -> its mend.
FAILS_WITHOUT_GPU = {
    "torch.cuda.set_device(rank)": {1: DELETED},
    "torch.cuda.synchronize()": {1: DELETED},
    "torch.cuda.nvtx.range_push('forward')": {1: DELETED},
    "local = rank % torch.cuda.device_count()": {
        1: "write local = rank % max(1, torch.cuda.device_count())"
    },
    "kind = torch.accelerator.current_accelerator().type": {
        1: 'write kind = torch.device("cpu").type'
    },
    "acc = torch.accelerator.current_accelerator()\nx.to(f'{acc.type}:{rank}')": {
        1: 'write acc = torch.device("cpu")'
    },
    "s = torch.cuda.Stream()": {1: "write s = torch.cpu.Stream()"},
    "a = torch.cuda.Event(enable_timing=True)\na.record()\nt = a.elapsed_time(a)": {1: CLOCK},
    "g = torch.cuda.CUDAGraph()": {1: NO_GRAPH},
    "memory = sum(\n    torch.cuda.get_device_properties(i).total_memory\n    for i in (0, 1)\n)": {
        (1, 4): GUARD
    },
    "(torch.cuda.current_device())": {1: DELETED},
    "print(torch.cuda.memory_summary())": {1: 'write print("")'},
    "print(f'{torch.cuda.memory_summary()}')": {1: GUARD},
    "dist.init_process_group(device_id=torch.device('cuda:0'))": {
        1: "write dist.init_process_group(device_id=None)"
    },
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
    "dist.init_process_group('gloo', device_id=device)": {
        2: "write dist.init_process_group('gloo', device_id=None)"
    },
    "torch.zeros(2, pin_memory=True)": {1: "write torch.zeros(2, pin_memory=False)"},
    "dist.init_process_group('nccl')": {1: "write dist.init_process_group('gloo')"},
    "backend = 'nccl'\ndist.init_process_group(backend)": {1: "write backend = 'gloo'"},
    "dist.init_process_group('cpu:gloo,cuda:nccl')": {1: "write dist.init_process_group('gloo')"},
    "dist.init_process_group('gloo')\nDDP(model, device_ids=[rank], output_device=rank)": {
        2: "write DDP(model, device_ids=None, output_device=None)"
    },
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "dist.init_process_group('gloo')\nFSDP(model)": {
        3: 'write FSDP(model, device_id=torch.device("cpu"))'
    },
    "y = x.cuda(rank)": {1: "write y = x.cpu()"},
    "y = (x\n  .cuda(\n  ))": {(2, 3): "write .cpu())"},
    "y = nn.Linear(2, 2).cuda(\n    rank  # mine\n)": {(1, 3): "write y = nn.Linear(2, 2).cpu()"},
    "dist.init_process_group('gloo')\nnet = DDP(\n    model,\n    device_ids=[\n"
    "        rank,\n    ],\n    output_device=rank,\n)": {
        (4, 6): "write device_ids=None,",
        7: "write output_device=None,",
    },
    "torch.cuda.set_device(\n    rank\n)": {(1, 3): "delete them"},
    "nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(\n    model,  # mine\n)).cuda()": {
        (1, 3): "write nn.Sequential(model).cpu()"
    },
    "local = rank % (\n    torch.cuda.device_count()\n)": {
        2: "write max(1, torch.cuda.device_count())"
    },
    "dist.init_process_group('gloo')\nnetwork_of_this_rank = DDP(model, device_ids=[rank], "
    "bucket_cap_mb=25, find_unused_parameters=True, output_device=rank)": {
        2: "write network_of_this_rank = DDP(model, device_ids=None, "
        "bucket_cap_mb=25, find_unused_parameters=True, output_device=None)"
    },
    "x.pin_memory()": {1: "write x"},
    "x.to(rank)": {1: TO_CPU},
    "local_rank = int(os.environ['LOCAL_RANK'])\nx.to(local_rank)": {2: TO_CPU},
    "x.to(torch.device(rank))": {1: 'write x.to(torch.device("cpu"))'},
    "x.to('cuda', non_blocking=True)": {1: 'write x.to("cpu", non_blocking=True)'},
    "device = torch.device(f'cuda:{rank}')\nx.to(device)": {
        1: 'write device = torch.device("cpu")'
    },
    "device = 'cuda:%d' % rank\nx.to(device)": {1: 'write device = "cpu"'},
    "device = 'cuda:{}'.format(rank)\nx.to(device)": {1: 'write device = "cpu"'},
    "torch.zeros(2, device='cuda')": {1: 'write torch.zeros(2, device="cpu")'},
    "def move(t, device='cuda'):\n    return t.to(device)\nmove(x)": {
        1: 'write def move(t, device="cpu"):'
    },
    "def move(t, device):\n    return t.to(device)\nmove(x, torch.device('cuda'))": {
        3: 'write move(x, torch.device("cpu"))'
    },
    "class Trainer:\n    def __init__(self, where):\n        self.where = where\n"
    "        x.to(self.where)\nTrainer(rank)": {4: 'write x.to("cpu")'},
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--device', default='cuda')\n"
    "args = p.parse_args([])\nx.to(args.device)": {
        3: "write p.add_argument('--device', default=\"cpu\")"
    },
    "device_type = 'cuda'\nif device_type == 'cuda':\n    torch.cuda.synchronize()": {
        1: 'write device_type = "cpu"'
    },
    "import io\nfile = io.BytesIO()\ntorch.save(x, file)\n"
    "torch.load(io.BytesIO(file.getvalue()), map_location='cuda:0')": {
        4: 'write torch.load(io.BytesIO(file.getvalue()), map_location="cpu")'
    },
    "assert torch.cuda.is_available(), 'buy one'": {1: DELETED},
    "if torch.cuda.device_count() < 2:\n    raise SystemError('buy two')": {2: DELETED},
    "import sys\nif not torch.cuda.is_available():\n    print('buy one')\n    sys.exit(1)\n"
    "x.cuda()": {4: DELETED, 5: "write x.cpu()"},
    "if torch.cuda.is_available():\n    x.cuda()\nelse:\n    exit('buy one')": {4: DELETED},
    # Blocks of which nothing is left
    "if rank >= 0:\n    torch.cuda.set_device(rank)": {2: DELETED},
    "def wait():\n    torch.cuda.synchronize()  # for times\nwait()": {2: DELETED},
    "if True: torch.cuda.synchronize()": {1: "write if True: pass"},
    # However it is imported
    "from torch import cuda\ncuda.synchronize()": {2: DELETED},
    "import torch.cuda as c\nc.synchronize()": {2: DELETED},
    "from torch.cuda import synchronize as wait\nwait()": {2: DELETED},
    "import torch.distributed as D\nD.init_process_group('nccl')": {
        2: "write D.init_process_group('gloo')"
    },
    "from torch.distributed import init_process_group\ninit_process_group('nccl')": {
        2: "write init_process_group('gloo')"
    },
    "@torch.cuda.nvtx.range('f')\ndef f(): pass\nf()": {
        1: "write @torch.profiler.record_function('f')"
    },
    "try:\n    torch.cuda.synchronize()\nfinally:\n    rank = 0": {2: DELETED},
    "def step(y):\n    return y.cuda() + 1\ntorch.compile(step, backend='eager')(x)": {
        2: "write return y.cpu() + 1"
    },
}
FAILS_WITHOUT_SLURM = {
    "r = int(os.environ['SLURM_PROCID'])": {1: "write r = int(os.environ['RANK'])"},
    "r = int(os.environ.get('SLURM_LOCALID'))": {1: "write r = int(os.environ.get('LOCAL_RANK'))"},
    "n = os.getenv('SLURM_NTASKS')\nn = int(n)": {1: "write n = os.getenv('WORLD_SIZE')"},
    "os.environ['SLURM_NTASKS_PER_NODE']": {1: "write os.environ['LOCAL_WORLD_SIZE']"},
    "os.environ['SLURM_NODEID']": {1: "write os.environ['GROUP_RANK']"},
    "os.environ['SLURM_NNODES']": {1: "write os.environ['GROUP_WORLD_SIZE']"},
    "os.environ['SLURM_NODELIST']": {1: "write os.environ['MASTER_ADDR']"},
    "os.environ['SLURM_JOB_ID']": {1: "write a value of your own: torchrun sets no such variable"},
    "os.environ['OMPI_COMM_WORLD_RANK']": {1: "write os.environ['RANK']"},
    "os.environ['OMPI_COMM_WORLD_LOCAL_RANK']": {1: "write os.environ['LOCAL_RANK']"},
    "os.environ['PMI_RANK'], os.environ['PMI_SIZE']": {
        1: "write os.environ['RANK'], os.environ['WORLD_SIZE']"
    },
    "os.environ['MPI_LOCALRANKID']": {1: "write os.environ['LOCAL_RANK']"},
    "from os import environ\nenviron['SLURM_PROCID']": {2: "write environ['RANK']"},
    "import subprocess\nsubprocess.check_output(['scontrol', 'show', 'hostnames'])": {
        2: 'delete it: os.environ["MASTER_ADDR"] and "MASTER_PORT" are set'
    },
    "dist.init_process_group('mpi')": {1: "write dist.init_process_group('gloo')"},
}
FAILS = FAILS_WITHOUT_GPU | FAILS_WITHOUT_SLURM

# Errors with another cause: the line needs a GPU, or seems to, but that is not why it failed.
OTHER_CAUSES = [
    "model(torch.ones(3)).cuda()",
    "x.cuda(device='bad', wrong=3)",
    "x.cuda(1, 2, 3, 4)",
    "x.to('cuda', wrong=1)",
    "torch.ones(1, device='cuda', wrong=2)",
    "torch.cuda.set_device(1, 2)",
    "import sys\nif not torch.cuda.is_available():\n    sys.exit(0)\nx.cuda()",
    "model(torch.ones(3).to('cpu')).to(rank)",
    "torch.cuda.set_device(nobody)",
    "[1].cuda()",
    "os.environ['SLURM_PROCID'[:3]]",
    "os.environ['NO_SUCH_VARIABLE']",
    "int(os.environ.get('SLURM_PROCID', 'none'))",
    "dist.init_process_group('gloo', world_size=3, rank=7, init_method='nonsense://')",
    "def f(device):\n    return {}[device]\nf('cuda')",
    "if torch.cuda.is_available():\n    pass\nelse:\n    1 / 0",
    "rank % 0",
    "assert not torch.cuda.is_available() and rank > 99",
]


ROW = re.compile(r"^ +lines? (\d+)(?: to (\d+))? +\S.*?(?:   +|\n +)(\S.*)$", re.MULTILINE)


def rows(lines: list[str], above: int = HEAD.count("\n")) -> dict[int | tuple[int, int], str]:
    """{line of the script below its head, or the first and the last: mend}, as in the report."""
    found = {}
    for first, last, mend in ROW.findall("\n".join(lines)):
        line = int(first) - above
        found[(line, int(last) - above) if last else line] = mend
    return found


def apply_rows(text: str, rows: dict[int | tuple[int, int], str]) -> str:
    """The script after a reader has done literally what the rows say."""
    lines = text.split("\n")
    ranges = [(p if isinstance(p, tuple) else (p, p), row) for p, row in rows.items()]
    for (first, last), row in sorted(ranges, reverse=True):
        indent = re.match(r"\s*", lines[first - 1])[0]
        # A block must not be empty, as every reader of Python knows.
        new = row.removeprefix("write ") if row.startswith("write ") else "pass"
        lines[first - 1 : last] = [indent + new]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def errors(tmp_path_factory) -> dict[str, dict | None]:
    """The error of each script above; all run one after another in one rank without a GPU."""
    return outcomes_of([*FAILS, *OTHER_CAUSES], tmp_path_factory.mktemp("scripts"))


def outcomes_of(scripts: list[str], folder: Path) -> dict[str, dict | None]:
    """What each of these scripts below HEAD fails with; all run in one rank."""
    files = {}
    for number, text in enumerate(scripts):
        files[text] = folder / f"script_{number}.py"
        files[text].write_text(HEAD + text + "\n")
    return dict(zip(files, outcomes(*files.values()), strict=True))


def outcomes(*files: Path) -> list[dict | None]:
    """What these scripts fail with in a rank that sees no GPU."""
    call = Call(worker.errors, ([str(file) for file in files],))
    no_gpu = {"CUDA_VISIBLE_DEVICES": ""}
    return run_ranks(call, 1, 120, quiet=True, environment=no_gpu, output=io.StringIO())[0]


@pytest.mark.parametrize("script", FAILS)
def test_a_line_that_needs_what_is_missing_is_named_with_its_mend(script, errors):
    assert rows(missing_requirements.suggest_edits(errors[script])) == FAILS[script]


CODE = re.compile("write (?!a value)|delete")  # a mend that needs no thought


def test_each_script_runs_after_what_the_rows_say(tmp_path):
    plain = [one for one in FAILS if all(map(CODE.match, FAILS[one].values()))]
    mended_scripts = [apply_rows(script, FAILS[script]) for script in plain]
    found = outcomes_of(mended_scripts, tmp_path)
    assert {script: error for script, error in found.items() if error} == {}


@pytest.mark.parametrize("script", OTHER_CAUSES)
def test_an_error_with_another_cause_gets_no_such_advice(script, errors):
    assert errors[script] is not None and missing_requirements.suggest_edits(errors[script]) == []


@pytest.mark.parametrize("script", FAILS_WITHOUT_GPU)
def test_where_the_ranks_see_gpus_nothing_is_said_of_them(script, errors):
    assert missing_requirements.suggest_edits(errors[script] | {"gpus": 2}) == []


LAUNCHED = {  # what a script prints, if its mends are right
    "training": """
import os
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def set_up():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    init_process_group(backend="nccl")


class Trainer:
    def __init__(self, model, data, path):
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.model = model.to(self.gpu)
        self.data = data
        if os.path.exists(path):
            place = f"cuda:{self.gpu}"
            self.model.load_state_dict(torch.load(path, map_location=place))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model = DDP(self.model, device_ids=[self.gpu])

    def epoch(self):
        for inputs, targets in self.data:
            inputs = inputs.to(self.gpu)
            targets = targets.to(self.gpu)
            loss = (self.model(inputs) - targets).square().mean()
            loss.backward()
            self.optimizer.step()
        torch.cuda.synchronize()
        if torch.cuda.is_available():
            print(torch.cuda.get_device_name(self.gpu))


def main():
    set_up()
    data = TensorDataset(torch.ones(8, 3), torch.ones(8, 1))
    loader = DataLoader(data, 2, pin_memory=True, sampler=DistributedSampler(data))
    Trainer(torch.nn.Linear(3, 1), loader, "no_such_snapshot.pt").epoch()
    print("trained on", os.environ["RANK"])
    destroy_process_group()


if __name__ == "__main__":
    main()
""",
    "slurm": """
import os
import hostlist
import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
local_rank = int(os.environ["SLURM_LOCALID"])
size = int(os.environ["SLURM_NTASKS"])
gpus_per_node = int(os.environ["SLURM_GPUS_ON_NODE"])
assert gpus_per_node == torch.cuda.device_count()
hosts = hostlist.expand_hostlist(os.environ["SLURM_JOB_NODELIST"])
os.environ["MASTER_ADDR"] = hosts[0]
os.environ["MASTER_PORT"] = "12340"
dist.init_process_group("nccl", rank=rank, world_size=size)
device = torch.device("cuda", local_rank)
torch.cuda.set_device(device)
x = torch.ones(1, device=device)
dist.all_reduce(x)
assert x.item() == size
print("trained on", rank)
""",
}
LISTED = {
    "training": [11, 12, 18, 21, 24, 28, 29, 33],
    "slurm": [3, 7, 8, 9, 10, 12, 11, 15, 16, 17],  # for Slurm, then for the GPU
}


def launch_script(file: Path, capsys) -> str:
    """What two ranks print; CUDA_VISIBLE_DEVICES may hide GPUs from them."""
    run_ranks(call_of(file, (), {}, 2), 2, 60, quiet=True, environment={"CUDA_VISIBLE_DEVICES": ""})
    return capsys.readouterr().out


@pytest.mark.parametrize("script", LAUNCHED)
def test_all_lines_are_listed_at_once_and_the_mended_script_runs(script, tmp_path, capsys):
    file = tmp_path / "train.py"
    file.write_text(LAUNCHED[script])
    with pytest.raises(RankFailed) as caught:
        launch_script(file, capsys)
    told = str(caught.value).split("look at")[1]
    assert list(rows(told.splitlines(), above=0)) == LISTED[script], told
    source = Source(file.read_text())
    edits = [edit for find in (gpu_needs, launcher_needs) for n in find(source) for edit in n.edits]
    file.write_text(apply_edits(source.text, missing_requirements.outermost(edits)))
    assert launch_script(file, capsys).count("trained on") == 2


# What the rule must not list


@pytest.mark.parametrize(
    "guarded",
    [
        "if torch.cuda.is_available():\n    torch.cuda.set_device(rank)\nelse:\n    x.cuda()",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nx.to(device)",
        "device = 'cpu'\nif torch.cuda.is_available():\n    device = f'cuda:{rank}'\nx.to(device)",
        "use = not rank and torch.cuda.is_available()\nif use:\n    x.cuda()",
        "n = torch.cuda.device_count()\nif n > 1:\n    torch.cuda.set_device(rank % n)",
        "torch.cuda.is_available() and torch.cuda.synchronize()",
        "def there():\n    return torch.cuda.is_available()\nif there():\n    x.cuda()",
        "def f():\n    if not torch.cuda.is_available():\n        return\n    x.cuda()",
        "try:\n    torch.cuda.set_device(0)\nexcept Exception:\n    pass",
        "DDP(model, device_ids=[rank] if torch.cuda.is_available() else None)",
        "ids = [rank] if torch.cuda.is_available() else None\nDDP(model, device_ids=ids)",
        "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')",
        "device_type = 'cuda' if 'cuda' in x.device.type else 'cpu'\nx.to(device_type)",
        "if 'SLURM_PROCID' in os.environ:\n    r = int(os.environ['SLURM_PROCID'])",
        "try:\n    r = int(os.environ['SLURM_PROCID'])\nexcept KeyError:\n    r = 0",
        "if 'RANK' in os.environ:\n    r = 1\nelse:\n    r = int(os.environ['PMI_RANK'])",
        "r = os.environ.get('SLURM_PROCID')",
        "node = x.data\nnode = node.next\nother = node.a\nnode = other.b\nx.to(node)",
        "device = device_of = rank_of\nrank_of = device\nx.to(device)",
        "if x.is_cuda:\n    torch.cuda.synchronize()",
        "kind = x.device.type\nif kind != 'cpu':\n    torch.cuda.synchronize()",
        "names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]",
        "n = torch.cuda.device_count()\nfor i in range(n):\n    torch.cuda.set_device(i)",
        "gpu = x.device if x.is_cuda else None\ndist.init_process_group('gloo', device_id=gpu)",
        "torch.zeros(1, pin_memory=x.device.type == 'cuda')",
        "torch.cuda.empty_cache(), torch.cuda.manual_seed(0), torch.cuda.max_memory_allocated()",
        "x.to(torch.float64), x.to(model.weight.device), x.to(unknown)",
        "torch.utils.data.DataLoader([1], pin_memory=True)",
    ],
)
def test_what_a_script_guards_or_what_works_everywhere_is_not_listed(guarded):
    source = Source(HEAD + guarded)
    assert [n.edits for n in [*gpu_needs(source), *launcher_needs(source)]] == []


# Files that cannot be read


def look_at_after(file: Path, text: bytes, change=lambda file: None) -> list[str]:
    """The advice for the script `text`, if its file changes after it has failed."""
    file.write_bytes(text)
    (error,) = outcomes(file)
    change(file)
    return missing_requirements.suggest_edits(error)


HALT = b"import torch\ntorch.accelerator.current_accelerator().type\n"


@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda file: file.write_bytes(b"# edited\n" + HALT),
        lambda file: file.write_bytes(b"def f(:\n"),
        lambda file: file.write_bytes(b"\xff\xfe\x00"),
        lambda file: file.write_bytes(HALT + b"#" * 1_000_000),
    ],
    ids=["deleted", "edited", "no Python", "no text", "huge"],
)
def test_silence_if_the_file_is_not_what_the_rank_ran(change, tmp_path):
    assert look_at_after(tmp_path / "script.py", HALT, change) == []
    assert look_at_after(tmp_path / "script.py", HALT) != []


def test_code_without_a_file(tmp_path):
    text = b"exec(compile('import torch; torch.cuda.Event()', 'nowhere.py', 'exec'))\n"
    assert look_at_after(tmp_path / "script.py", text) == []


@pytest.mark.parametrize(
    "text",
    [
        b"import torch\r\nif True:\r\n\ttorch.cuda.synchronize()\r\n",
        b"# coding: latin-1\nimport torch\n'\xe9\xe8'; torch.cuda.synchronize()\n",
        "import torch\n\n'€ é'; torch.cuda.synchronize()\n".encode(),
        b"\xef\xbb\xbfimport torch\n\ntorch.cuda.synchronize()\n",
        b"import torch\n\x0c\ntorch.cuda.synchronize()\n",
    ],
    ids=["CRLF and tabs", "latin-1", "wide characters", "BOM", "form feed"],
)
def test_lines_and_columns_are_those_of_the_compiler(text, tmp_path):
    found = rows(look_at_after(tmp_path / "script.py", text), above=0)
    assert list(found) == [3] and ("delete it" in found[3] or "pass" in found[3])


def test_a_cell_of_ranks_is_read_although_its_last_line_is_kept(tmp_path, monkeypatch):
    from ddp_workbook.page.cells import save_cell

    monkeypatch.chdir(tmp_path)
    cell = save_cell("%%ranks 1", "import torch\ntorch.cuda.Event()\n1", bare=True)
    (error,) = outcomes(Path(cell.path))
    assert rows(missing_requirements.suggest_edits(error), above=0) == {3: CLOCK}


def test_a_large_file_does_not_keep_the_report_waiting(tmp_path):
    file = tmp_path / "large.py"
    step = (
        "def f{0}(x, device):\n    if x: torch.cuda.synchronize()\n    return f{1}(x.to(device))\n"
    )
    file.write_text("import torch\n" + "".join(step.format(n, n + 1) for n in range(2000)))
    start = time.monotonic()
    assert len(gpu_needs(read(str(file)))) == 2000
    assert time.monotonic() - start < 20  # seen: 1


def test_many_lines_are_cut_and_counted(tmp_path):
    text = b"import torch\n" + b"torch.cuda.synchronize()\n" * 20
    lines = look_at_after(tmp_path / "script.py", text)
    assert len(rows(lines)) == missing_requirements.MAX_ROWS and lines[-1] == "  … and 8 more lines"


def test_a_module_beside_the_script_is_listed_too(tmp_path):
    (tmp_path / "helper.py").write_text("def move(x, rank):\n    return x.to(rank)\n")
    text = b"import torch\ntorch.cuda.synchronize()\nimport helper\n"
    lines = look_at_after(tmp_path / "script.py", text)
    assert [line for line in lines if "helper.py" in line] and "line 2" in lines[-1]


def test_what_an_error_carries_is_small(errors):
    error = errors["dist.init_process_group('nccl')"]
    assert error["places"] and len(pickle.dumps(error["places"])) < 600


def test_synchronised_batch_norm_is_for_gpus(tmp_path):
    """DDP's constructor refuses it; the line that made it is named."""
    path = tmp_path / "norm.py"
    text = HEAD + "dist.init_process_group('gloo')\n"
    text += "net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2))\nDDP(net)\n"
    path.write_text(text)
    with pytest.raises(RankFailed, match="SyncBatchNorm layers only work with GPU") as caught:
        launch(path, ranks=2)
    assert "write net = nn.BatchNorm1d(2)" in str(caught.value)
    path.write_text(
        text.replace(
            "nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2))", "nn.BatchNorm1d(2)"
        )
    )
    launch(path, ranks=2)
