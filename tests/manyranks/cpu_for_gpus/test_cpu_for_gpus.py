"""Scripts that are written for GPUs compute on the CPU; those that are not are left alone."""

import io
import re
from pathlib import Path

import pytest

from manyranks import launch, record_collectives, timeline
from manyranks.errors import RankFailed
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.scheduler_variables import SchedulerVariables
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers import gpu_scripts as worker

HEAD = """import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
rank = int(os.environ["RANK"])
model, x = nn.Linear(2, 2), torch.ones(1, 2)
"""
GROUP = "dist.init_process_group('gloo')\n"

# What fails without a GPU, and runs here: each asks for a GPU.
ASKING = [
    "torch.cuda.set_device(rank)",
    "torch.cuda.set_device(\n    rank\n)",
    "torch.cuda.synchronize()",
    "torch.cuda.nvtx.range_push('forward')",
    "@torch.cuda.nvtx.range('f')\ndef f(): pass\nf()",
    "local = rank % torch.cuda.device_count()",
    "assert torch.accelerator.current_accelerator().type == 'cpu'",
    "acc = torch.accelerator.current_accelerator()\nx.to(f'{acc.type}:{rank}')",
    "torch.accelerator.set_device_index(1)\ntorch.accelerator.synchronize()\n"
    "assert torch.accelerator.current_device_index() == 1",
    "w, d = torch.zeros(2, requires_grad=True), torch.device('cuda', 0)\nassert w.to(d) is w\n"
    "assert w.to('cuda:0') is w.cuda() is w and w.to('cpu') is not w",
    "s = torch.cuda.Stream()\nwith torch.cuda.stream(s) as t:\n    x + 1\nassert s is t\n"
    "torch.cuda.current_stream().wait_stream(s)\nx.record_stream(s)\nassert s.query()",
    "a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))\na.record()\nb.record()\n"
    "torch.cuda.synchronize()\nassert a.elapsed_time(b) >= 0",
    "assert sum(torch.cuda.get_device_properties(i).total_memory for i in (0, 1)) > 0",
    "assert torch.cuda.get_device_properties(0).L2_cache_size == 0\n"
    "assert torch.cuda.get_device_capability() == (0, 0) and torch.cuda.get_device_name(0)",
    "torch.cuda.set_device('cuda:1')\nassert torch.cuda.current_device() == 1\n"
    "with torch.cuda.device(0):\n    assert torch.cuda.current_device() == 0",
    "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\nassert torch.cuda.device_count() == 1\n"
    "os.environ['CUDA_VISIBLE_DEVICES'] = ''",
    "o = torch.optim.Adam(model.parameters(), capturable=True)\n"
    "model(x).sum().backward()\no.step()",
    "before = model.cuda().weight.detach().cpu()\nmodel.weight.data += 1\n"
    "assert not before.equal(model.weight)",
    "torch.cuda.cudart().cudaProfilerStart()",
    "dist.init_process_group(device_id=torch.device('cuda:0'))",
    "torch.zeros(2, pin_memory=True)",
    "dist.init_process_group('nccl')",
    "dist.init_process_group('nccl', pg_options=dist.ProcessGroupNCCL.Options())",
    "backend = 'nccl'\ndist.init_process_group(backend)\nassert dist.get_backend() == 'gloo'",
    "dist.init_process_group('cpu:gloo,cuda:nccl')",
    "dist.init_process_group('mpi')",
    GROUP + "dist.barrier(device_ids=[rank])",
    GROUP + "dist.new_group([0], backend='nccl')",
    GROUP + "DDP(model, device_ids=[rank], output_device=rank)",
    GROUP + "DDP(model, [rank])",
    GROUP + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "FSDP(model, device_id=torch.cuda.current_device())(x).sum().backward()",
    GROUP + "from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard\n"
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "fully_shard(model, mesh=init_device_mesh('cuda', (1,)), offload_policy=CPUOffloadPolicy())\n"
    "model(x).sum().backward()",
    "mesh = dist.init_device_mesh('cuda', (1,), mesh_dim_names=('data',))\n"
    "from torch.distributed.tensor import Shard, distribute_tensor\n"
    "assert distribute_tensor(x, mesh, [Shard(0)]).device.type == 'cpu'",
    "y = x.cuda(rank)",
    "y = nn.Linear(2, 2).cuda(\n    rank  # mine\n)",
    "x.pin_memory()",
    "x.to(rank)",
    "x.to(device=rank, dtype=torch.float64)",
    "x.to(torch.device(rank))",
    "x.to(torch.device('cuda', 1))",
    "x.to('cuda', non_blocking=True)",
    "model.to('cuda:1').to_empty(device='cuda')",
    "torch.zeros(2, device='cuda')",
    "torch.zeros_like(x, device=rank), x.new_zeros(2, device='cuda'), torch.arange(2, device=0)",
    "with torch.device('cuda'):\n    assert torch.ones(2).device.type == 'cpu'",
    "torch.set_default_device('cuda')\nassert torch.ones(2).device == torch.device('cuda', 1)",
    "torch.randn(2, device='cuda', generator=torch.Generator('cuda').manual_seed(1))",
    "torch.cuda.FloatTensor(2).type('torch.cuda.HalfTensor')\nx.type('torch.cuda.HalfTensor')",
    "import io\nfile = io.BytesIO()\ntorch.save(x, file)\nread = lambda **how: "
    "torch.load(io.BytesIO(file.getvalue()), **how)\nread(map_location='cuda:0')\n"
    "read(map_location={'cpu': f'cuda:{rank}'})\n"
    "read(map_location=lambda storage, place: storage.cuda(rank))",
    "with torch.autocast('cuda'):\n    assert model(x).dtype == torch.float16\n"
    "    with torch.autocast('cuda', enabled=False):\n        assert model(x).dtype == x.dtype",
    "with torch.cuda.amp.autocast(dtype=torch.bfloat16):\n"
    "    assert model(x).dtype == torch.bfloat16",
    "s, o = torch.amp.GradScaler(), torch.optim.SGD(model.parameters(), 1)\n"
    "s.scale(model(x).sum()).backward()\ns.step(o)\ns.update()\nassert s.get_scale() == 65536",
    "assert torch.cuda.is_available(), 'buy one'",
    "has = torch.cuda.is_available() and torch.cuda.device_count() > 1\nif not has:\n    exit(1)",
    "if torch.cuda.device_count() < 2:\n    raise SystemError('buy two')",
    "n = torch.cuda.device_count()\nassert n >= 4, f'needs 4, got {n}'",
    "def enough(least):\n    count = torch.cuda.device_count()\n    return count >= least\n"
    "if not enough(3):\n    print('needs 3')\n    raise SystemExit(1)",
    "class Trainer:\n    def __init__(self):\n        self.gpu = torch.cuda.is_available()\n"
    "    def run(self):\n        if self.gpu:\n            x.cuda()\n        else:\n"
    "            raise ValueError('no GPU')\nTrainer().run()",
    "dist.init_process_group('nccl')\nif torch.cuda.is_available():\n    ran = x.cuda()\nran",
    "x.cuda()\nprint('on', 'a GPU' if torch.cuda.is_available() else 1 / 0)",
    "from torch import cuda\ncuda.synchronize()",
    "from torch.cuda import synchronize as wait\nwait()",
    "from torch.distributed import init_process_group\ninit_process_group('nccl')",
    "def step(y):\n    return y.cuda() + 1\ntorch.compile(step, backend='eager')(x)",
    "torch.compile(model, backend='aot_eager')(x.cuda()).sum().backward()",
    "torch.compile(model, backend='eager', mode='max-autotune')(x)",
    "device = torch.device('cuda:0')\nassert x.to(device).device == device",
    "net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2))\n"
    "net.cuda()(torch.randn(4, 2))",
    "import threading\nt = threading.Thread(target=lambda: results.append(x.to('cuda')))\n"
    "results = []\nt.start()\nt.join()\nassert results",
]
# What a script for any machine says: nothing is asked for, and the answers are true.
PORTABLE = [
    "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nassert device == 'cpu'\nx.to(device)",
    "device = torch.accelerator.current_accelerator() or torch.device('cpu')\nx.to(device)",
    "a = torch.accelerator.current_accelerator()\nx.to(a.type if a else 'cpu')",
    "use = not rank and torch.cuda.is_available()\nif use:\n    x.cuda()",
    "if torch.cuda.device_count() > 1:\n    torch.cuda.set_device(rank)",
    "torch.cuda.is_available() and torch.cuda.synchronize()",
    "def f():\n    if not torch.cuda.is_available():\n        return\n    x.cuda()\nf()",
    "if not torch.cuda.is_available():\n    print('slow here')\nx.to('cpu')",
    "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')",
    "backend = 'gloo'\nif torch.cuda.is_available():\n    backend = 'nccl'\n"
    "dist.init_process_group(backend)",
    "dist.init_process_group('nccl' if dist.is_nccl_available() else 'gloo')",
    "torch.utils.data.DataLoader([1], pin_memory=True)",
    "torch.cuda.empty_cache(), torch.cuda.manual_seed(0), x.to(torch.float64), x.to(model.weight)",
    "with torch.autocast('cuda', enabled=False):\n    assert model(x).dtype == x.dtype",
    "d = torch.device('cpu', 0)\nassert isinstance(d, torch.device) and str(d) == 'cpu:0'",
    "import pickle\nassert pickle.loads(pickle.dumps(x.device)) == x.device",
    "before = x.cpu()\nx += 1\nassert before is x",
    "assert not torch.cuda.is_available() and not torch.cuda.is_bf16_supported()",
    "import io\nfile = io.BytesIO()\ntorch.save(x, file)\nfile.seek(0)\ntorch.load(file)\n"
    "import tempfile\nwith tempfile.NamedTemporaryFile() as f:\n    torch.save(x, f.name)\n"
    "    assert torch.load(f.name, mmap=True).equal(x)",
    "if torch.cuda.is_available():\n    raise SystemExit('for CPUs')",
    "count = torch.cuda.device_count()\nprint(count)\nassert f'{count}' == '0'",
]
OTHER_ERRORS = {  # of the reader's own, which must stay
    "x.cuda(device='bad', wrong=3)": "TypeError",
    "x.to('cuda', wrong=1)": "TypeError",
    "torch.ones(1, device='cuda', wrong=2)": "TypeError",
    "torch.cuda.set_device(nobody)": "NameError",
    "[1].cuda()": "AttributeError",
    "model(torch.ones(3)).cuda()": "RuntimeError: mat1 and mat2",
    "torch.device('nonsense')": "RuntimeError: Expected one of cpu, cuda",
    "DDP(model, device_ids=[0])": "ValueError: Default process group",
    "dist.init_process_group('nonsense')": "AssertionError: Unknown backend",
    "torch.cuda.CUDAGraph()": "RuntimeError: A CUDA graph needs an NVIDIA GPU",
    "with torch.cuda.graph(None):\n    pass": "RuntimeError: A CUDA graph needs",
    "if torch.cuda.is_available():\n    pass\nelse:\n    1 / 0": "ZeroDivisionError",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, tuple[str, dict[str, str]]]:
    """What each script ends with, and what it asked for; all in one rank without a GPU."""
    folder, files = tmp_path_factory.mktemp("scripts"), {}
    for number, text in enumerate([*ASKING, *PORTABLE, *OTHER_ERRORS]):
        files[text] = folder / f"script_{number}.py"
        files[text].write_text(HEAD + text + "\n")
    call = Call(worker.outcomes, ([str(file) for file in files.values()],))
    (found,) = run_ranks(
        call,
        1,
        120,
        quiet=True,
        environment={"CUDA_VISIBLE_DEVICES": ""},
        output=io.StringIO(),
        as_if_gpus=2,
    )
    return dict(zip(files, found, strict=True))


@pytest.mark.parametrize("script", ASKING)
def test_what_asks_for_a_gpu_runs_and_its_line_is_known(script, outcomes):
    error, places = outcomes[script]
    assert error == ""
    line = int(places["gpu"].rpartition(":")[2]) - HEAD.count("\n")
    assert 1 <= line <= script.count("\n") + 1, places


@pytest.mark.parametrize("script", PORTABLE)
def test_what_works_without_a_gpu_is_left_alone(script, outcomes):
    assert outcomes[script] == ("", {})


@pytest.mark.parametrize("script", OTHER_ERRORS)
def test_other_errors_stay(script, outcomes):
    assert outcomes[script][0].startswith(OTHER_ERRORS[script])


def test_nothing_is_replaced_where_a_gpu_is_seen():
    assert launch(worker.sees_a_gpu, ranks=1, as_if_gpus=False) == [[False, [True] * 4]]


# A whole script

TRAINING = """
import os
import torch
from torch.distributed import all_reduce, destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(DEVICE)
init_process_group("nccl", device_id=DEVICE)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
model = DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(net).to(DEVICE), device_ids=[DEVICE])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(16, 3), torch.randn(16, 1))
sampler = DistributedSampler(data, shuffle=False)
for inputs, targets in DataLoader(data, 4, pin_memory=True, sampler=sampler):
    inputs, targets = inputs.cuda(non_blocking=True), targets.to(DEVICE)
    optimizer.zero_grad()
    loss = (model(inputs) - targets).square().mean()
    loss.backward()
    optimizer.step()
all_reduce(loss)
print(f"{loss.item() / 2:.7f} {torch.cuda.max_memory_allocated()}")
destroy_process_group()
"""
ONE_PROCESS = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 3), torch.randn(16, 1)
for step in range(2):
    rows = [row for rank in range(2) for row in range(8 * step + rank, 8 * step + 8, 2)]
    optimizer.zero_grad()
    loss = (model(x[rows]) - y[rows]).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.7f}")
"""
FIRST_LINE = "train.py:9 asks for a GPU: computed on the CPU here; times are a CPU's."


@pytest.fixture
def train(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    path = Path("train.py")
    path.write_text(TRAINING)
    return path


def losses(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\] (\d\.\d{7})", text)]


def test_a_script_for_gpus_trains_as_one_process_and_one_line_says_so(train, capsys):
    """Its SyncBatchNorm, too."""
    launch(train, ranks=2)
    text = capsys.readouterr().out
    assert text.count("asks for a GPU") == 1 and FIRST_LINE in text
    assert "train.py:25 asks how much memory of a GPU is taken: 0 here." in text
    Path("one.py").write_text(ONE_PROCESS)
    launch("one.py", ranks=1)
    (expected,) = losses(capsys.readouterr().out)
    assert losses(text) == pytest.approx([expected, expected], abs=2e-6)


def test_the_recorder_and_the_timeline_run_it_too(train, capsys):
    wire = record_collectives(train)
    assert "all_reduce" in set(wire["op"]) and set(wire["rank"]) == {0, 1}
    assert timeline(train, steps=1).parts["rank"].nunique() == 2
    assert capsys.readouterr().out.count(FIRST_LINE) == 2


def test_a_seed_for_gpus_alone_and_too_many_gpus_are_said(train, capsys):
    more = TRAINING.replace("torch.manual_seed(0)", "torch.cuda.manual_seed(1)")
    train.write_text(more + "assert torch.cuda.device_count() >= 1\n")
    launch(train, ranks=2)
    assert "train.py:12 seeds a GPU's own generator" in capsys.readouterr().out
    train.write_text(more + "assert torch.cuda.device_count() >= 4\n")
    with pytest.raises(RankFailed, match="AssertionError"):
        launch(train, ranks=2)
    assert "wants more GPUs than there are ranks" in capsys.readouterr().out


def test_it_is_refused_if_asked_for(train):
    with pytest.raises(RankFailed, match="There is no GPU for each rank here"):
        launch(train, ranks=2, as_if_gpus=False)


def test_what_a_launch_inside_a_script_starts_computes_on_the_cpu_too(tmp_path, capsys):
    path = tmp_path / "outer.py"
    path.write_text(
        "import torch\nfrom manyranks import launch\ndef inner():\n"
        "    return torch.ones(2, device='cuda').sum().item()\n"
        "if __name__ == '__main__':\n    print(launch(inner, ranks=2))\n"
    )
    launch(path, ranks=1)
    assert "[2.0, 2.0]" in capsys.readouterr().out


# Scripts that start their ranks themselves, or are started by a scheduler

SPAWNS = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp

def demo(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "{port}"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    x = torch.ones(1).to(rank)
    dist.all_reduce(x)
    print(f"sum {{x.item()}}\\n", end="")  # one write: processes share the pipe
    dist.destroy_process_group()

if __name__ == "__main__":
    count = torch.cuda.device_count()
    assert count >= 2, f"Requires at least 2 GPUs to run, but got {{count}}"
    mp.spawn(demo, args=(count,), nprocs=count, join=True)
    print("all done")
"""


def test_mp_spawn_in_several_ranks_runs_its_function_in_each(tmp_path, capsys):
    path = tmp_path / "spawns.py"
    path.write_text(SPAWNS.format(port=12355))
    launch(path, ranks=3)
    text = capsys.readouterr().out
    assert text.count("sum 3.0") == text.count("all done") == 3
    path.write_text(SPAWNS.format(port=12355).replace("(count,)", "(mp.Queue(),)"))
    with pytest.raises(RankFailed, match=r"mp\.spawn passes a Queue to demo"):
        launch(path, ranks=2)
    path.write_text(SPAWNS.format(port=12355).replace("nprocs=count", "nprocs=5"))
    with pytest.raises(RankFailed, match="asked for 5 processes, and 2 ranks have been started"):
        launch(path, ranks=2)


@pytest.mark.push("other people's programs again")
def test_a_rank_alone_starts_as_many_as_the_script_wants(tmp_path, capsys, free_port):
    path = tmp_path / "spawns.py"
    path.write_text(SPAWNS.format(port=free_port))
    launch(path, ranks=1, timeout=180)
    text = capsys.readouterr().out
    assert text.count("sum 2.0") == 2 and text.count("asks for a GPU") >= 1


@pytest.fixture
def free_port() -> int:
    from manyranks.launcher.rendezvous import free_port

    return free_port()


SLURM = """
import os
import subprocess
import hostlist
import torch
import torch.distributed as dist
from os import environ
from site_setup import local_rank

rank = int(environ["SLURM_PROCID"])
size = int(os.environ.get("SLURM_NTASKS"))
gpus_per_node = int(os.getenv("SLURM_GPUS_ON_NODE"))
assert gpus_per_node == torch.cuda.device_count() == int(environ["SLURM_NTASKS_PER_NODE"])
assert environ["SLURM_NNODES"] == "1" and environ["SLURM_NODEID"] == "0" and environ["SLURM_JOB_ID"]
assert len(environ["CUDA_VISIBLE_DEVICES"].split(",")) == size
hosts = hostlist.expand_hostlist(environ["SLURM_JOB_NODELIST"])
words = ["scontrol", "show", "hostnames", environ["SLURM_JOB_NODELIST"]]
assert subprocess.check_output(words, text=True).split() == hosts
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = hosts[0], "12340"
dist.init_process_group("nccl", rank=rank, world_size=size)
x = torch.ones(1, device=torch.device("cuda", local_rank))
dist.all_reduce(x)
print("rank", rank, "sum", x.item())
"""


def test_a_script_for_slurm_runs(tmp_path, capsys):
    (tmp_path / "site_setup.py").write_text(
        "import os\nlocal_rank = int(os.environ['SLURM_LOCALID'])\n"
    )
    path = tmp_path / "train.py"
    path.write_text(SLURM)
    launch(path, ranks=2)
    text = capsys.readouterr().out
    assert "rank 0 sum 2.0" in text and "rank 1 sum 2.0" in text
    assert "SLURM_GPUS_ON_NODE, SLURM_JOB_ID, SLURM_JOB_NODELIST and 6 more: set for each" in text


def test_variables_that_a_script_does_not_read_are_not_set(tmp_path, monkeypatch):
    """Libraries choose another way of starting by them. The numbers of a job around give way."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_PROCID", "0")
    path = tmp_path / "train.py"
    path.write_text("import os\nos.environ['OMPI_COMM_WORLD_RANK'], os.environ['PMI_SIZE']\n")
    assert SchedulerVariables(str(path)).of(1, 4, 2) == {
        "OMPI_COMM_WORLD_RANK": "1",
        "PMI_SIZE": "4",
    }
    path.write_text("import os\nos.environ['SLURM_PROCID'], os.environ['SLURM_JOB_ID']\n")
    assert SchedulerVariables(str(path)).of(1, 4, 2) == {"SLURM_PROCID": "1"}
    path.write_text("print('no variables')\n")
    assert SchedulerVariables(str(path)).sentence() == ""
