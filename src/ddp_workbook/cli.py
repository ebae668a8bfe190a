"""Commands: `ddp-workbook check` says whether a machine is ready, `plan` whether a model fits."""

import time
from collections.abc import Callable

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.callback()
def commands() -> None:
    """Commands for people who run the workshop."""


@app.command()
def check(
    ranks: int = typer.Option(4, min=1, help="How many ranks to try."),
) -> None:
    """Show this machine, and try what every notebook needs; exit with 1 if that fails."""
    console = Console()
    console.print(machine_summary())
    failed = [name for name, trial in trials(ranks).items() if not report(console, name, trial)]
    if failed:
        console.print(f"[bold]Not ready:[/bold] {', '.join(failed)}.")
        raise typer.Exit(1)
    console.print("[bold]Ready.[/bold] Start the workbook with `make lab`.")


@app.command()
def plan(
    parameters: str = typer.Option(
        "70B", help='A size ("70B"), a model ("Llama 3 8B", "GPT-3 175B"), or a config.json.'
    ),
    gpus: int = typer.Option(64, help="How many GPUs."),
    memory: str = typer.Option("", help='Of each GPU: "80GB" or "80GiB"; default: of --gpu.'),
    strategy: str = typer.Option("fully_shard", help="fully_shard, HSDP, DDP or ZeRO-1."),
    precision: str = typer.Option("bf16", help="bf16 (parameters kept in fp32) or fp32."),
    batch: int = typer.Option(1, help="Sequences on each GPU."),
    sequence: int = typer.Option(4096, help="Tokens in a sequence."),
    checkpoint: bool = typer.Option(True, help="Activation checkpointing of each block."),
    offload: bool = typer.Option(False, help="Keep shards in the host's memory."),
    gpu: str = typer.Option("H100", help="A100 40GB, A100, H100, H200 or RTX 4090."),
    link: str = typer.Option(
        "InfiniBand NDR", help="Between nodes: InfiniBand NDR or HDR, Ethernet 100G, 25G or 10G."
    ),
    inside: str = typer.Option(
        "", help="In a node: NVLink 3 or 4, PCIe 4 or 5; by default the usual one of --gpu."
    ),
    gpus_per_node: int = typer.Option(8, help="GPUs in a node."),
) -> None:
    """Say what a model needs on each GPU, what a step sends, and what bounds it.

    No GPU is needed: PyTorch's own fully_shard cuts a model that
    takes no memory, for fake ranks. The optimizer is AdamW.

    The exit code is 0 if the model fits, 1 if it does not, 2 for bad input.
    """
    from ddp_workbook.planning.plan import plan as make_plan
    from ddp_workbook.planning.sizes import PlanRefused

    try:
        made = make_plan(
            parameters,
            gpus,
            memory or None,
            strategy=strategy,
            precision=precision,
            batch=batch,
            sequence=sequence,
            checkpoint=checkpoint,
            offload=offload,
            gpu=gpu,
            link=link,
            inside=inside or None,
            gpus_per_node=gpus_per_node,
        )
    except PlanRefused as refused:
        raise typer.BadParameter(str(refused)) from None
    typer.echo(made)
    raise typer.Exit(0 if made.fits else 1)


def machine_summary() -> Table:
    """The table of the machine from chapter 00, for the terminal."""
    from ddp_workbook.notebook.machine import machine_table

    frame = machine_table()
    table = Table(*frame.columns, title="This machine", title_justify="left")
    for row in frame.itertuples(index=False):
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def report(console: Console, name: str, trial: Callable[[], str]) -> bool:
    """Run one trial and print a line about it; True if it worked."""
    try:
        console.print(f"ok      {name}: {escape(trial())}")
    except Exception as error:
        console.print(f"[bold]failed[/bold]  {name}: {escape(str(error))}")
        return False
    return True


def trials(ranks: int) -> dict[str, Callable[[], str]]:
    """Trials of what a notebook needs, by name: each returns a sentence, or raises."""
    return {"data": try_data, "ranks": lambda: try_ranks(ranks), "JupyterLab": try_jupyterlab}


def try_data() -> str:
    """Read the digits."""
    from ddp_workbook.digits import DigitsDataset

    return f"{len(DigitsDataset()):,} digits"


def try_ranks(ranks: int) -> str:
    """Let `ranks` processes meet twice, because the first launch also starts the fork server."""
    first, warm = timed_meeting(ranks), timed_meeting(ranks)
    return f"{ranks} ranks met in {warm:.2f} s (the first time in {first:.2f} s)"


def timed_meeting(ranks: int) -> float:
    """Seconds of one launch; raises RuntimeError unless all ranks have the right sum."""
    from ddp_workbook.launcher.launch import launch

    start = time.perf_counter()
    sums = launch(meet, ranks=ranks)
    if set(sums) != {ranks * (ranks + 1) / 2}:
        raise RuntimeError(f"an all-reduce of 1 to {ranks} gave {sums}")
    return time.perf_counter() - start


def meet() -> float:
    """In a rank: the sum of 1 to world size, by one all-reduce."""
    import torch
    import torch.distributed as dist

    from ddp_workbook.launcher.process_group import set_up

    device = set_up(bare=False)
    number = torch.tensor([dist.get_rank() + 1.0], device=device)
    dist.all_reduce(number)
    return number.item()


def try_jupyterlab() -> str:
    """Find JupyterLab and a Python kernel."""
    import jupyterlab
    from jupyter_client.kernelspec import KernelSpecManager

    if "python3" not in KernelSpecManager().find_kernel_specs():
        raise RuntimeError(
            "there is no kernel python3; try `python -m ipykernel install --sys-prefix`"
        )
    return f"version {jupyterlab.__version__}"
