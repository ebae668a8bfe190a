"""`plan`: what a model needs on each GPU."""

import typer

from manyranks.command_line import OWN_PROGRAM

app = typer.Typer()
TYPED = "COMMANDLINE"  # the name of click's ParameterSource for an option that was given


@app.command(rich_help_panel=OWN_PROGRAM)
def plan(
    context_of_command: typer.Context,
    parameters: str = typer.Option(
        "70B", help='A size ("70B"), a model ("Llama 3 8B", "GPT-3 175B"), or a config.json.'
    ),
    gpus: int = typer.Option(64, help="How many GPUs."),
    memory: str = typer.Option("", help='Of each GPU: "80GB" or "80GiB"; default: of --gpu.'),
    best: bool = typer.Option(
        False, help="Try all splits of the GPUs: all degrees and schedules that are not given."
    ),
    strategy: str = typer.Option("fully_shard", help="fully_shard, HSDP, DDP or ZeRO-1."),
    precision: str = typer.Option(
        "bf16", help="bf16 (kept and reduced in fp32), bf16-reduce (reduced in bf16) or fp32."
    ),
    batch: int = typer.Option(1, help="Sequences on each GPU."),
    global_batch: int = typer.Option(0, help="Sequences in a step of all GPUs; default: one each."),
    sequence: int = typer.Option(4096, help="Tokens in a sequence."),
    checkpoint: str = typer.Option("full", help="Activation checkpointing: full, selective, none."),
    offload: bool = typer.Option(False, help="Keep shards in the host's memory."),
    split_root: bool = typer.Option(False, help="Embedding and output as units of their own."),
    tensor: int = typer.Option(1, help="GPUs that compute each block together."),
    pipeline: int = typer.Option(1, help="GPUs that have some of the blocks each."),
    schedule: str = typer.Option("1f1b", help="gpipe, 1f1b, interleaved or zero-bubble."),
    stages_per_rank: int = typer.Option(0, help="Default: 2 if interleaved, else 1."),
    micro_batches: int = typer.Option(
        0, help="In a step, in place of --global-batch; in a pipeline, default: one for each stage."
    ),
    context: int = typer.Option(1, help="GPUs that share each sequence."),
    expert: int = typer.Option(1, help="GPUs that share the experts of a block."),
    gpu: str = typer.Option(
        "H100", help="V100, A100 40GB, A100, L40S, H100, H200, B200, MI300X or RTX 4090."
    ),
    link: str = typer.Option(
        "InfiniBand NDR", help="Between nodes: InfiniBand NDR or HDR, Ethernet 100G, 25G or 10G."
    ),
    inside: str = typer.Option(
        "", help="In a node: NVLink 4, PCIe 5, ...; by default the usual one of --gpu."
    ),
    gpus_per_node: int = typer.Option(8, help="GPUs in a node."),
    field: list[str] = typer.Option(  # noqa: B008  as typer wants it
        [], help="NAME=VALUE: adds to a config.json what it lacks. Can be repeated."
    ),
) -> None:
    """Say what a model needs on each GPU, what a step sends, and what bounds it.

    No GPU is needed: bytes follow from the shapes of the parameters.
    The optimizer is AdamW.

    With --best, show the five fastest splits that fit, and why four of them lose to the best.

    The exit code is 0 if the model fits, 1 if it does not, 2 for bad input.
    """
    from manyranks.planning.config import field_value
    from manyranks.planning.plan import plan as make_plan
    from manyranks.planning.search import best_splits
    from manyranks.planning.sizes import PlanRefused

    # The defaults above are those of `make_plan`; `best_splits` tries what is not given.
    given = {
        name: value
        for name, value in context_of_command.params.items()
        if (source := context_of_command.get_parameter_source(name)) and source.name == TYPED
    }
    options = {name: value for name, value in given.items() if name not in ("best", "field")}
    try:
        options["fields"] = dict(map(field_value, field))
        splits = best_splits(**options) if best else None
        result = None if best else make_plan(**options)
    except PlanRefused as refused:
        raise typer.BadParameter(str(refused)) from None
    typer.echo(splits or result)
    raise typer.Exit(0 if (splits and splits.plans) or (result and result.fits) else 1)
