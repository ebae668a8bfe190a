"""The doctor on what readers bring: scripts that write, ask, crash or never end; and its words.

Which mistakes it names is in test_doctor_scripts.py.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddp_workbook.page import pages
from ddp_workbook.program.new import write
from manyranks.errors import LaunchRefused
from manyranks.launcher.calls import Call, call_of
from manyranks.launcher.launch import run_ranks
from manyranks.script_doctor.diagnosis import diagnosis_of, doctor
from manyranks.script_doctor.facts import Facts
from manyranks.script_doctor.notes import read_notes
from manyranks.script_doctor.observed_worker import Extent, ObservedWorker
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tools.set_up import ROOT

COMMAND = [Path(sys.executable).with_name("ddp-workbook"), "doctor"]
HEAD = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
"""
MODEL = (
    "model = DDP(torch.nn.Linear(3, 1)); optimizer = torch.optim.SGD(model.parameters(), lr=.1)\n"
)
STEP = "optimizer.zero_grad(); model(torch.randn(4, 3)).mean().backward(); optimizer.step()\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """`script(text)`: the path of a script in an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def write_it(text: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(HEAD + text)
        return path

    return write_it


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("open('no_such.csv')", "FileNotFoundError"),
        ("input('epochs? ')", "A rank has no keyboard"),
        (
            "def work(rank): pass\ntorch.multiprocessing.spawn(work, nprocs=3)",
            "asked for 3 processes",
        ),
        ("1 / 0", "ZeroDivisionError"),
        ("rank and os.kill(os.getpid(), 9)\ndist.barrier()", "ended by SIGKILL"),
    ],
)
def test_a_script_that_cannot_train_is_told_why(text, said, script):
    report = doctor(script(text))
    assert (report.exit_code, report.findings) == (2, []) and said in str(report)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (f"{MODEL}while True:\n    {STEP}", 384),
        (f"{MODEL}while True:\n    try:\n        {STEP}    except:\n        pass", 385),
        (f"{MODEL}for _ in range(5):\n    {STEP}sys.exit(0)", 5),
    ],
)
def test_training_is_ended_when_enough_was_seen(text, steps, script):
    report = doctor(script(text))
    assert (report.exit_code, report.ending, report.steps) == (0, "", steps)
    assert any("equal gradients" in words for words in report.looked_at)


def state_of(folder: Path) -> dict[str, tuple]:
    """What a folder holds: of each file the mode, the time, the number of links, and the bytes."""
    return {
        str(path): (
            *(path.stat().st_mode, path.stat().st_mtime, path.stat().st_nlink),
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def test_what_a_script_writes_is_read_there_and_thrown_away(script, tmp_path):
    (tmp_path / "kept.txt").write_text("precious")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").write_text("old")
    path = script(
        """
import shutil, tempfile
from pathlib import Path
import numpy
os.makedirs(f"runs/{rank}/deep")
Path(f"runs/{rank}/deep/log").write_text("hello")
assert Path(f"runs/{rank}/deep/log").read_text() == "hello"
if rank == 0:
    with open("kept.txt", "a") as file:
        file.write(" and more")
    assert open("kept.txt").read() == "precious and more"
    torch.save(torch.ones(2), "model.tmp")
    os.replace("model.tmp", "model.pt")
    assert torch.load("model.pt").sum() == 2 and os.path.exists("model.pt")
    numpy.save("x.npy", numpy.ones(3))
    assert numpy.load("x.npy").sum() == 3
    from safetensors.torch import load_file, save_file
    save_file({"a": torch.ones(2)}, "a.safetensors")
    assert load_file("a.safetensors")["a"].sum() == 2
    os.remove("kept.txt"); shutil.rmtree("old"); os.truncate("train.py", 0)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "one").write_text("1")
    import io, mmap, sqlite3
    with io.FileIO("kept2.txt", "w") as file:
        file.write(b"gone")
    assert Path("kept2.txt").read_text() == "gone" and isinstance(file, io.FileIO)
    assert isinstance(open("kept3.txt", "rb").raw, io.FileIO)
    os.chmod("kept3.txt", 0o600); os.utime("kept3.txt", (0, 0)); os.chmod(".", 0o700)
    folder = os.open(".", os.O_RDONLY)
    os.close(os.open("kept3.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=folder))
    os.symlink("kept4.txt", "latest"); Path("latest").write_text("changed")
    os.link("kept4.txt", "hard"); Path("hard").write_text("changed")
    with open("kept5.txt", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:4] = b"gone"
    database = sqlite3.connect("kept6.db")
    database.execute("create table gone (x)"); database.close()
    torch.from_file("kept5.txt", shared=True, size=1, dtype=torch.int64).zero_()
    torch._C.PyTorchFileWriter("kept3.txt").write_end_of_file()
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), "kept4.txt")
    torch.jit.script(torch.nn.Linear(1, 1)).save("kept4.txt")
    import subprocess
    subprocess.run(["true"]); os.system("echo hello")
"""
    )
    for number in range(2, 7):
        (tmp_path / f"kept{number}.txt").write_text("precious")
    (tmp_path / "kept6.txt").rename(tmp_path / "kept6.db").write_text("")
    before, source = state_of(tmp_path), path.read_text()
    report = doctor(path)
    assert not report.ending and state_of(tmp_path) == before, report
    assert report.programs == ["echo", "true"] and "what they did is real: echo" in str(report)
    assert (tmp_path / "kept.txt").read_text() == "precious" and path.read_text() == source
    assert str(tmp_path / "model.pt") in report.files
    assert "\nWritten to a folder that is gone: " in str(report)


def test_arguments_with_spaces_arrive(script):
    report = doctor(
        script("assert sys.argv[1:] == ['--name', 'a b', ''], sys.argv"), "--name", "a b", ""
    )
    assert report.ending == ""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda path: doctor(path.with_suffix(".ipynb")), "no script"),
        (lambda path: doctor(path, ranks=1), "ranks=1: the doctor needs 2 or more"),
        (lambda path: doctor(path, batches=0), "batches=0"),
        (lambda path: doctor(path.write_text("def f(:") and path), "not valid Python"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(call, said, script):
    with pytest.raises(LaunchRefused, match=said):
        call(script(""))


def test_a_script_for_gpus_computes_on_the_cpu(script, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
model = DDP(torch.nn.Linear(4, 2).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(7)
for _ in range(4):
    x = torch.randn(8, 4, device=device).to(local_rank)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).float().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
torch.cuda.synchronize()
"""
    )
    assert doctor(path, as_if_gpus=False).exit_code == 2
    report = doctor(path)
    assert [finding.rule for finding in report.findings] == ["same-rows"] and report.ending == ""
    assert "train.py:4 asks for one, and the ranks computed on the CPU" in report.not_seen[0]


@pytest.mark.parametrize(
    ("load", "rules"),
    [
        ('load_file("a.safetensors", device="cuda")', ["checkpoint-on-one-device"]),
        ('torch.load("a.pt")', ["checkpoint-on-one-device"]),
        (
            'torch.load("a.pt", map_location="cuda"), '
            'torch.load("a.pt", torch.device("cuda", rank)), load_file("a.safetensors", rank)',
            [],
        ),
    ],
)
def test_files_that_all_ranks_load_to_one_gpu(load, rules, script):
    path = script(f"""
from safetensors.torch import load_file, save_file
torch.cuda.set_device(rank)
if rank == 0:
    torch.save(torch.ones(2).cuda(), "a.pt")
    save_file({{"a": torch.ones(2)}}, "a.safetensors")
dist.barrier()
{load}
{MODEL}for _ in range(2):
    {STEP}""")
    report = doctor(path)
    assert ([finding.rule for finding in report.findings], report.ending) == (rules, ""), report


def test_the_step_that_get_state_dict_makes_is_not_counted(script):
    """It makes one to fill the optimizer's state, and would hide that the others moved nothing."""
    path = script(
        "from torch.distributed.checkpoint.state_dict import get_state_dict\n"
        f"{MODEL}for _ in range(3):\n    {STEP}get_state_dict(model, optimizer)\n"
        "get_state_dict(model, torch.optim.SGD(model.parameters(), lr=.2))\n"
    )
    report = doctor(path)
    assert (report.steps, report.findings) == (3, []), report
    assert "the learning rate was 0.1" in report.stated, report


def test_the_time_limit_is_no_missing_step(script):
    path = script("import time\ntime.sleep(600)")
    report = doctor(path, timeout=3)
    assert (report.exit_code, report.findings) == (2, []) and "--timeout" in report.ending


def test_a_hang_ends_and_names_the_rank(script):
    text = (
        f"{MODEL}for _ in range(4):\n    {STEP}if rank == 0:\n    dist.barrier()\nelse:\n    {STEP}"
    )
    start = time.monotonic()
    (finding,) = doctor(script(text)).findings
    assert finding.rule == "rank-alone-in-a-collective" and time.monotonic() - start < 30


@pytest.mark.long
def test_the_command_prints_json_and_its_exit_code_tells(script):
    path = script(
        "x = torch.ones(4, 3)\n"
        + MODEL
        + "for _ in range(3): model(x).mean().backward(); optimizer.step()"
    )
    run = subprocess.run([*COMMAND, path, "--json"], capture_output=True, text=True)
    content = json.loads(run.stdout)
    assert (run.returncode, [f["rule"] for f in content["findings"]]) == (1, ["same-rows"])
    assert content["findings"][0]["lines"][0] == "train.py:9"


def test_a_module_is_run_and_a_rule_ignored(script):
    """As `-m train --ignore same-rows` has it."""
    script(
        "x = torch.ones(4, 3)\n"
        f"{MODEL}for _ in range(3): model(x).mean().backward(); optimizer.step()"
    )
    report = doctor("-m", "train", ignore=["same-rows", "no-set-epoch"])
    assert (report.exit_code, report.steps, report.findings) == (0, 3, []), report
    assert str(report).endswith("Left out, as asked: same-rows.")


@pytest.mark.push("the doctor on more programs")
def test_an_interrupt_leaves_nothing(script, tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    path = script(f"{MODEL}{STEP}print('trains', flush=True)\nimport time; time.sleep(600)")
    with subprocess.Popen([*COMMAND, path], env=environment, stderr=subprocess.DEVNULL) as run:
        until = time.monotonic() + 60
        while not list(tmp_path.glob("doctor-*/facts/rank*")) and time.monotonic() < until:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        assert run.wait(60) != 0
    assert not list(tmp_path.glob("doctor-*"))


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_the_program_that_new_writes_is_left_alone(strategy, tmp_path, monkeypatch):
    write(tmp_path / "mine", strategy, "slurm")
    monkeypatch.chdir(tmp_path / "mine")
    report = doctor("train.py")
    assert (report.exit_code, report.ending) == (0, "") and not (
        tmp_path / "mine" / "saved"
    ).exists()


@pytest.mark.parametrize(
    "stem",
    [
        *("checkpoint_and_recover", "collectives", "distributed_data_parallel"),
        *("process_groups", "samplers"),
        *(
            pytest.param(stem, marks=pytest.mark.push("the doctor on more programs"))
            for stem in ("fully_sharded", "fully_sharded_by_hand", "model_parallel")
        ),
        pytest.param("fully_sharded_real_run", marks=pytest.mark.release("the doctor again")),
    ],
)
def test_the_chapters_are_left_alone(stem, monkeypatch):
    monkeypatch.chdir(ROOT)
    cut = ["--tensor", "2", "--pipeline", "2"] if stem == "model_parallel" else []
    path = ROOT / f"src/ddp_workbook/chapters/{stem}.py"
    report = doctor(path, *cut, ranks=4 if cut else 2)
    assert report.exit_code == 0 and report.steps >= 3, report


LIBRARIES = {
    "accelerate": (
        """
from accelerate import Accelerator
library = Accelerator(cpu=True)
""",
        "model, optimizer, loader = library.prepare(model, optimizer, loader)",
    ),
    "fabric": (
        """
import lightning
library = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
library.launch()
""",
        "model, optimizer = library.setup(model, optimizer)\n"
        "loader = library.setup_dataloaders(loader)",
    ),
}
LOOP = """
for epoch in range(2):
    for a, b in loader:
        optimizer.zero_grad()
        library.backward(torch.nn.functional.mse_loss(model(a), b))
        optimizer.step()
"""


@pytest.mark.push("the doctor on more programs")
@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_are_left_alone(library, script):
    begin, prepare = LIBRARIES[library]
    path = script("")
    path.write_text(f"""
import torch
from torch.utils.data import DataLoader, TensorDataset
{begin}
x = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
model = torch.nn.Linear(6, 1)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters())
{prepare}
{LOOP}""")
    report = doctor(path)
    assert (report.exit_code, report.ending) == (0, "") and report.steps == 32, report


def test_each_finding_names_a_page_that_is_there():
    sources = (ROOT / "src/manyranks/script_doctor").glob("*.py")
    stems = {page for source in sources for page in re.findall(r'"(\d\d_\w+)"', source.read_text())}
    assert len(stems) > 5 and stems <= {page.stem for page in pages.all_pages()}


def test_what_is_noted_of_each_pass_over_a_loader(script, tmp_path):
    """All that rules read of it; of the first pass alone, the first rows."""
    path = script(
        "from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset\n"
        "rows = Subset(TensorDataset(torch.arange(10.)), range(2, 10))\n"
        "sampler = DistributedSampler(rows, seed=3)\n"
        "loader = DataLoader(rows, 2, sampler=sampler)\n"
        "for epoch in range(2):\n"
        "    sampler.set_epoch(epoch)\n"
        "    for batch in loader: pass\n"
    )
    (tmp_path / "facts").mkdir()
    observed = ObservedWorker(call_of(path, (), {}, 2).worker, tmp_path, Extent(), False)
    run_ranks(Call(observed, (), {}), 2, quiet=True)
    own = {"num_replicas": 2, "shuffle": True, "seed": 3, "total_size": 8, "drop_last": False}
    for rank, facts in enumerate(read_notes(tmp_path / "facts", 2)):
        first, second = (fact for fact in facts if fact["kind"] == "pass")
        for number, fact in enumerate((first, second)):
            assert fact["distributed"] == own | {"rank": rank, "epoch": number}
            assert (fact["loader"], fact["pass"], fact["length"]) == (0, number + 1, 8)
            assert (fact["sampler"], fact["batch"]) == ("DistributedSampler", 2)
            assert (fact["workers"], fact["own_batches"]) == (0, False)
            assert (fact["made"][0], fact["lines"][0]) == ("train.py:10", "train.py:13")
        places = [[place for place, _ in first[name]] for name in ("items", "whole")]
        assert places == [[0, 1, 3, 5, 7], [0, 2, 4, 6, 9]]
        assert first["items"][0][1] == first["whole"][1][1] != first["whole"][0][1]
        assert not {"items", "whole"} & second.keys()


def call(line: int, op: str = "all_reduce", shape: int = 4) -> dict:
    """A call as an observer notes it."""
    about = {"group": "default", "op": op, "shape": [shape], "bytes": 4 * shape, "dtype": "float32"}
    return {"kind": "comm", "by": "hand", "of": "other", **about, "lines": [f"a.py:{line}"]}


CLOSED = {"kind": "error", "type": "RuntimeError", "text": "Connection closed by peer", "lines": []}
LATE = CLOSED | {"text": "Timed out waiting 3000ms"}


@pytest.mark.parametrize(
    ("calls", "error", "rule", "said"),
    [
        ([[call(3), call(8)], [call(3)]], CLOSED, "rank-alone", "out of the branch"),
        ([[call(3), call(3)], [call(3)]], CLOSED, "rank-alone", "2 times and rank 1 once"),
        (
            [[call(3), call(3)], [call(3), call(8, "barrier")]],
            CLOSED,
            "rank-alone",
            "or what is around a.py:3 runs more often on rank 0",
        ),
        ([[call(3)], []], LATE, "rank-alone", "raise the timeout"),
        ([[call(3)], [call(3, shape=5)]], CLOSED, "shapes-differ", "[4], rank 1 with float32 [5]"),
    ],
)
def test_what_differs_between_calls_is_said(calls, error, rule, said):
    (first, second), begin = calls, {"kind": "begin"}
    report = diagnosis_of(Facts([[begin, *first, error], [begin, *second]]), "a.py")
    (finding,) = report.findings
    assert finding.rule.startswith(rule) and said in str(finding), finding
    assert not any("same collective calls" in words for words in report.looked_at)


def test_rules_see_facts_alone():
    """A rule needs no ranks: two lists of facts, as observers write them."""
    begin = {"kind": "begin"}
    threads = {"kind": "threads", "number": 8, "lines": ["a.py:3"]}
    writes = {"kind": "file", "path": "/x/log", "by": "open", "lines": ["a.py:9"]}
    facts = Facts([[begin, threads, writes], [begin, threads, writes]], cores=4)
    rules = [(f.rule, f.lines) for f in diagnosis_of(facts, "a.py").findings]
    assert rules == [
        ("one-file-by-all-ranks", ("a.py:9",)),
        ("no-step-seen", ()),
        ("too-many-threads", ("a.py:3",)),
    ]
