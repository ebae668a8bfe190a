"""`plan`: what a model needs on each GPU."""

import typer

app = typer.Typer()


@app.command()
def plan(
    parameters: str = typer.Option(
        "70B", help='A size ("70B"), a model ("Llama 3 8B", "GPT-3 175B"), or a config.json.'
    ),
    gpus: int = typer.Option(64, help="How many GPUs."),
    memory: str = typer.Option("", help='Of each GPU: "80GB" or "80GiB"; default: of --gpu.'),
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

    The exit code is 0 if the model fits, 1 if it does not, 2 for bad input.
    """
    from manyranks.planning.config import field_value
    from manyranks.planning.plan import plan as make_plan
    from manyranks.planning.sizes import PlanRefused

    try:
        result = make_plan(
            parameters,
            gpus,
            memory or None,
            strategy=strategy,
            precision=precision,
            batch=batch,
            global_batch=global_batch or None,
            sequence=sequence,
            checkpoint=checkpoint,
            offload=offload,
            split_root=split_root,
            tensor=tensor,
            gpu=gpu,
            link=link,
            inside=inside or None,
            gpus_per_node=gpus_per_node,
            fields=dict(map(field_value, field)),
        )
    except PlanRefused as refused:
        raise typer.BadParameter(str(refused)) from None
    typer.echo(result)
    raise typer.Exit(0 if result.fits else 1)
