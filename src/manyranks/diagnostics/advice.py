"""One sentence of advice for an error that learners often meet; "" if none would help."""

import ast
import linecache
import os
import re
import signal
from collections.abc import Sequence

from manyranks.diagnostics.evidence import State
from manyranks.diagnostics.mismatches import Kind, Mismatch, present_ranks, ranks_in_words
from manyranks.diagnostics.parsing import parse_source
from manyranks.diagnostics.positions import RESULT_STATES, Position
from manyranks.diagnostics.user_code import is_cell

LACKS_GPU = re.compile(
    "Cannot access accelerator device|not compiled with CUDA|No CUDA GPUs|no NVIDIA driver"
    "|NVTX functions not installed|deserialize object on a CUDA|without ATen_cuda"
    "|have NCCL built in|ProcessGroupNCCL is only|SyncBatchNorm layers only work with GPU"
    "|not linked with support for cuda|has no attribute '_cuda_"
)
OF_GPUS = r"(?:triton|flash_attn|transformer_engine|apex|bitsandbytes|pynvml|cupy)\b"  # packages
RETURN_LESS = "Return less, such as a mean or a part, or save it to a file and return the path."
# (pattern in "Type: message", advice). The first that matches is given.
FOR_ERRORS: list[tuple[str | re.Pattern[str], str]] = [
    (
        r"NameError: name '(rank|world_size|device|dist|torch)'",
        "A worker in a file starts with no names: import torch, and ask dist.get_rank() and "
        "dist.get_world_size().",
    ),
    (
        r"Default process group has not been initialized",
        "Call dist.init_process_group(...) first, on every rank.",
    ),
    (
        r"trying to initialize the default process group twice",
        "The group exists already. A %%ranks cell makes it (`%%ranks N --bare` does not); to make "
        "another one, call dist.destroy_process_group() first.",
    ),
    (
        r"(?i)Expected to have finished reduction in the prior iteration",
        "Some parameters got no gradient in the last step, so their buckets were never sent. Use "
        "every parameter in the loss, or pass find_unused_parameters=True, which walks the graph "
        "once more in each step.",
    ),
    (
        r"Expected to mark a variable ready only once",
        "A parameter got two gradients in one step, or one after find_unused_parameters had "
        "counted it as unused. Checkpoint with use_reentrant=False, use parameters only inside the "
        "wrapped model's forward, and call backward once, on the sum of the losses. If every step "
        "runs the same graph, static_graph=True may do instead.",
    ),
    (
        r"not needed when a module doesn't have any parameter that requires a gradient",
        "Every parameter is frozen, so DDP has no gradient to average: use the model without DDP, "
        "or unfreeze what should be trained before you wrap it.",
    ),
    (
        r"appears not to match (?:sizes|strides) of the same param"
        r"|DDP expects same model across all ranks",
        "The ranks built different models. All ranks need the same trainable parameters in the "
        "same order, shape and memory layout: does one depend on the rank, on its data or on a "
        "random choice?",
    ),
    (
        r"Inference tensors cannot be saved for backward|[Ii]nference tensor outside InferenceMode",
        "Outside of torch.inference_mode(), a tensor made in it can be neither saved for backward "
        "nor changed. Make it under torch.no_grad() instead, or use its clone().",
    ),
    (
        r"element 0 of tensors does not require grad",
        "No graph leads from this tensor to one that requires a gradient. Did detach(), item(), "
        "no_grad() or frozen parameters cut it off? Nor do gradients flow through tensors that "
        "dist.all_gather and other collectives fill.",
    ),
    (
        r"needed for gradient computation has been modified by an inplace operation",
        "Backward needs the value that this tensor had in forward, and something has changed it "
        "since: optimizer.step(), an operation such as += or one that ends in `_`. Call "
        "backward first, or change a clone().",
    ),
    (
        r"Trying to backward through the graph a second time",
        "backward() frees the graph that it went through. Compute the loss again, add up the "
        "losses for one backward(), or detach() what one step takes over from the step before.",
    ),
    (
        r"leaf Variable that requires grad is being used in an in-place operation",
        "Change a parameter, or another tensor that requires a gradient, in place only under "
        "torch.no_grad().",
    ),
    (
        r"have NCCL built in|ProcessGroupNCCL is only",
        "NCCL moves data between GPUs only; on a CPU the backend is gloo: call "
        'init_process_group("gloo").',
    ),
    (
        r"No backend type associated with device type cpu",
        "This group carries tensors of GPUs only. Move the tensor to the rank's GPU, or make the "
        'group with init_process_group("cpu:gloo,cuda:nccl"), which carries both.',
    ),
    (
        LACKS_GPU,
        "There is no GPU for each rank here, so the ranks run on the CPU. Choose the device by "
        'torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu"); '
        "on the CPU, pass no device_ids to DistributedDataParallel.",
    ),
    (
        r"EADDRINUSE|Address already in use",
        "Another program has this port. `launch` and `torchrun --standalone` find a free one: "
        "do not set MASTER_PORT.",
    ),
    (
        r"wait timeout after \d+ms, keys:",
        "A rank waited for a key of the store that no rank set in time. Every rank of the group "
        "must call init_process_group and new_group; a key of your own needs a store.set().",
    ),
    (
        r"failed to pass monitoredBarrier",
        "The rank that failed to pass did not call monitored_barrier in time: every rank of the "
        "group must call it.",
    ),
    (
        r"Detected mismatch between collectives on ranks",
        "Compare the two fingerprints: the ranks differ in the call (OpType), in the tensors (how "
        "many, shape, dtype, device) or in how many collectives came before (SequenceNumber).",
    ),
    (
        r"gather: invalid tensor size|scatter: invalid tensor size",
        "All tensors of this call need one shape: each one in the list (or each part of a single "
        "output), and the rank's own. If the ranks' shapes differ, exchange the sizes first and "
        "pad to the largest.",
    ),
    (
        r"outputShape\[0\] \* worldSize == inputShape\[0\]"
        r"|outputs\[0\]\.sizes\(\)\S* == inputs\[0\]",
        "reduce_scatter gives every rank an equal part: a single input has world_size times the "
        "rows of the output, and each tensor in a list has the output's shape. Pad the input to a "
        "multiple of world_size.",
    ),
    (
        r"alltoall: (?:invalid tensor size|input and output tensors must have the same size)",
        "gloo's all_to_all takes parts of one shape only. If their lengths differ, use "
        "all_to_all_single with input_split_sizes and output_split_sizes.",
    ),
    (
        r"alltoallv\.cc|Split sizes doesn't match total dim 0 size"
        r"|Number of tensor splits not equal to group size",
        "input_split_sizes has one entry per rank, and they add up to the input's rows; "
        "output_split_sizes likewise for the output. Each rank must expect as many rows as the "
        "other one sends it: exchange the sizes with an all_to_all_single first.",
    ),
    (
        r"invalid root rank",
        "The group has no such rank. `src` and `dst` are global ranks, from 0 to "
        "dist.get_world_size() - 1; `group_src` and `group_dst` count within the group.",
    ),
    (
        r"Argument ``(?:gather|scatter)_list`` must",
        "Only the rank dst passes a list to a gather, and only the rank src to a scatter: all "
        "others pass None.",
    ),
    (
        r"Invalid function argument\. Expected parameter `\w+` of type (?:List\[)?torch\.Tensor",
        "A collective takes tensors: torch.tensor([x]) for a number, the *_object calls for other "
        "objects. Where p.grad is None, send zeros: the other ranks wait for this call.",
    ),
    (
        r"'NoneType' object has no attribute 'wait'",
        "If this comes from a collective: it returns something to wait for only with "
        "async_op=True, and only on the ranks of its group.",
    ),
    (
        r"result type (?:Float|Double|Half|BFloat16) can't be cast to the desired output type "
        r"(?:Bool|Byte|Char|Short|Int|Long)",
        "The result is a float, and this integer or bool tensor cannot hold it: convert it with "
        ".float() first. ReduceOp.AVG needs that too, because it divides.",
    ),
    (
        r"Cannot use ReduceOp\.PREMUL_SUM with Gloo",
        "gloo does not have this operation: scale the tensor before the call and use ReduceOp.SUM.",
    ),
    (
        r"^RuntimeError: Invalid scalar type\s*$",
        "If this is a collective: gloo does not know every dtype, int16, uint16 and float8 among "
        "them. Convert the tensor, or send x.view(torch.uint8) where nothing is computed.",
    ),
    (
        r"input tensor has to be contiguous|^ValueError: Tensors must be contiguous",
        "This call needs contiguous memory: send x.contiguous(); receive into a contiguous tensor "
        "and copy from there.",
    ),
    (
        r"not safe to split any process groups|its backend does not support splitting",
        "split_group needs a backend that can split, such as NCCL bound to a GPU by device_id. "
        "Make the groups with dist.new_group(ranks), and call that on every rank.",
    ),
    (
        r"^(RuntimeError|Dist\w*Error): (?!wait timeout after).*(?i:timed? ?out)",
        "A rank waited for others in vain. Did every rank of the group call the same collectives "
        "in the same order?",
    ),
    (
        r"Global rank \d+ is not part of group",
        "`src` and `dst` are global ranks, and this one is not in the group. Its first rank is "
        "dist.get_global_rank(group, 0).",
    ),
    (
        r"Invalid process group specified|is not part of group|not (?:a )?(?:part|member) of",
        "A rank may only use a group that it belongs to.",
    ),
    (
        r"Invalid device id|invalid device ordinal",
        "Use LOCAL_RANK, the number within the node, to choose the GPU, not RANK.",
    ),
    (
        r"^MemoryError|DefaultCPUAllocator",
        "All ranks share this machine's memory, and each holds its own copy of the model and its "
        "data. Use fewer ranks, a smaller model or smaller batches.",
    ),
    (
        r"out of memory",
        "Do all ranks put their tensors on GPU 0? Call torch.cuda.set_device(local_rank) first.",
    ),
    (
        r"AttributeError: Can't get attribute",
        "The worker's file has changed since this notebook imported it: import it again.",
    ),
    (
        r"'DistributedDataParallel' object has no attribute",
        "DDP wraps the model: its own attributes are those of ddp_model.module.",
    ),
    (
        r"'FSDP[A-Z]\w*' object has no attribute 'no_sync'",
        "After fully_shard, call model.set_requires_gradient_sync(False) instead of no_sync(), and "
        "pass True again before the last backward of the step.",
    ),
    (
        r"'FSDP[A-Z]\w*' object has no attribute 'clip_grad_norm_'",
        "After fully_shard, call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).",
    ),
    (
        r"object has no attribute 'set_epoch'",
        "set_epoch belongs to the DistributedSampler that you pass to the DataLoader: "
        "sampler.set_epoch(epoch).",
    ),
    (
        r"sampler option is mutually exclusive with shuffle",
        "The sampler chooses the order: pass shuffle to the DistributedSampler, not to the "
        "DataLoader.",
    ),
    (
        r"^KeyError: 'bucket'",
        "If this is register_comm_hook: name the hook's second parameter `bucket`.",
    ),
    (
        r"(?s)in loading state_dict for .*got mixed torch\.Tensor and DTensor",
        "Either the model or the state is sharded, and not both. set_model_state_dict and "
        "get_model_state_dict of torch.distributed.checkpoint.state_dict convert, with "
        "options=StateDictOptions(full_state_dict=True).",
    ),
    (
        r"key\(s\) in state_dict.*\bmodule\.",
        "The state was saved from a wrapped model, or is loaded into one: its names begin with "
        "`module.`. Save and load ddp_model.module.state_dict().",
    ),
    (
        r"key\(s\) in state_dict.*\b_orig_mod\.",
        "torch.compile(model) returns a wrapper whose names contain `_orig_mod.`. Save and load "
        "the state of the model that you compiled, or compile in place with model.compile().",
    ),
    (
        r"size mismatch for \S+: copying a param|Size mismatch between saved",
        "Build the model with the sizes that it was saved with. Or does the state hold one rank's "
        "shards (to_local()) instead of the whole tensors?",
    ),
    (
        r"loaded state dict contains a parameter group that doesn't match",
        "The optimizer was saved with another number of parameters: build the model, freeze its "
        "parameters and group them as when it was saved.",
    ),
    (
        r"Missing key in checkpoint state_dict",
        "dcp.load fills the keys of the dict that you pass, and this one was not saved under that "
        "name. Is it nested as it was saved, and did a wrapper add `module.` or `_orig_mod.`? For "
        "an optimizer use get_optimizer_state_dict, which has all keys before the first step, too.",
    ),
    (
        r"metadata is None; global metadata|No such file or directory: '[^']*\.metadata'",
        "dcp.load reads .metadata in this folder, and dcp.save writes it last. Is it the same "
        "folder on every rank, and had dcp.save (or the future of async_save) finished?",
    ),
    (
        r"Weights only load failed",
        "By default torch.load reads only tensors, numbers, strings and containers of these: save "
        "model.state_dict(), not the model. weights_only=False can run code from the file, so "
        "pass it only for files that you trust.",
    ),
    (
        r"failed finding central directory",
        "The file is damaged or not complete. Let one rank write it, under another name that "
        "os.replace then changes, and call dist.barrier() before others read it.",
    ),
    (
        r"inline_container\.cc\S* *\. unexpected pos",
        "torch.save could not write the whole file: is the disk or your quota full?",
    ),
    (
        r"No space left on device",
        "Where this line writes, nothing more fits: on the disk, or in /dev/shm, which DataLoader "
        "workers use for batches and containers keep small (docker run --shm-size).",
    ),
    (
        r"^EOFError(?:: Ran out of input)?\s*$",
        "Nothing was left to read. If it is a file, another rank may still be writing it: let that "
        "rank write under another name and os.replace it, and call dist.barrier() before others "
        "read.",
    ),
    (
        r"^IsADirectoryError",
        "This path is a folder. What dcp.save has written there, dcp.load reads, not torch.load.",
    ),
    (
        r"^FileExistsError",
        "Something has made this path already, perhaps another rank at the same line. For a folder "
        "use os.makedirs(path, exist_ok=True); or let rank 0 alone make it.",
    ),
    (
        r"optimizer got an empty parameter list",
        "No parameter reached the optimizer. Does this rank's model have any, and did something "
        "else already iterate over model.parameters()? Each call of it can be read once.",
    ),
    (
        r"Expected more than 1 value per channel when training",
        "BatchNorm cannot train on a single value per channel: give every rank at least two "
        "samples per batch. drop_last=True of the DataLoader leaves out a last batch that is too "
        "small.",
    ),
    (
        r"DataLoader worker \(pid.*(?:exited unexpectedly|is killed by signal)",
        "A worker process of the DataLoader died, and each rank starts num_workers of them. "
        "num_workers=0 shows an error in the dataset. If it was killed, memory or /dev/shm may be "
        "full: use fewer workers or smaller batches.",
    ),
    (
        r"[Tt]oo many open files(?! in system)",
        "This process has reached its limit of open files: close what is not needed, use fewer "
        "DataLoader workers, or raise the limit with `ulimit -n`.",
    ),
    (
        r"Cannot re-initialize CUDA in forked subprocess",
        "A forked process cannot use CUDA if its parent has. Return CPU tensors from the dataset "
        'and move them in the loop, or pass multiprocessing_context="spawn" to the DataLoader.',
    ),
    (
        r"Expected all tensors to be on the same device",
        "Put the model, the batch and whatever forward creates on the rank's device: x.to(device), "
        "torch.zeros(..., device=x.device), and register_buffer for constants.",
    ),
    (
        r"mat1 and mat2 must have the same dtype|expected m1 and m2 to have the same dtype"
        r"|expected scalar type \w+ but found",
        "Give the input the dtype that the operation needs, often that of the weights: "
        "x.to(model.weight.dtype). Tensors from NumPy are float64 by default. Or run forward under "
        "torch.autocast.",
    ),
    (
        r"Recomputed values for the following tensors have different metadata"
        r"|different number of tensors was saved during the original forward and recomputation",
        "Backward runs a checkpointed function a second time and needs the same tensors again: "
        "does the function depend on what has changed since, such as a cache, a counter or a flag?",
    ),
    # DTensor, device meshes and fully_shard
    (
        r"^RuntimeError: \S+ got mixed torch\.Tensor and DTensor",
        "A DTensor met a plain tensor. With fully_shard: shard the whole model last, and call the "
        "model itself, because its other methods and the layers inside a sharded module gather no "
        "parameters (see register_fsdp_forward_method). Otherwise convert one of the two with "
        "distribute_tensor() or full_tensor().",
    ),
    (
        r"Operator c10d\.\S+ does not have a sharding strategy",
        "A collective takes plain tensors: pass x.to_local(), or use x.full_tensor() or "
        "x.redistribute() instead. A model of DTensors needs no DDP around it.",
    ),
    (
        r"Operator (?!c10d\.)\S+ does not have a sharding strategy"
        r"|^RuntimeError: aten\.\w+\.\w+\s+Sharding propagation failed",
        "DTensor cannot run this operation. Run it on plain tensors: x.full_tensor() is the whole "
        "tensor and every rank must call it, x.to_local() is the rank's own shard.",
    ),
    (
        r"on inputs with different meshes",
        "All DTensors of one operation must be on the same DeviceMesh: make one mesh and take its "
        "parts from it, and treat parameters on different meshes separately.",
    ),
    (
        r"`placements` must have the same length as `device_mesh\.ndim`",
        "Each dimension of the mesh takes one placement. parallelize_module takes a mesh of one "
        'dimension, such as mesh["tp"].',
    ),
    (
        r"\.numpy\(\) is not supported for tensor subclasses",
        "If this is a DTensor, take x.full_tensor().numpy(), which every rank must call, or "
        "x.to_local().numpy().",
    ),
    (
        r"'(?:Tensor|Parameter)' object has no attribute '(?:full_tensor|to_local|redistribute)'",
        "This is a plain tensor, not a DTensor: test isinstance(x, DTensor) first. fully_shard and "
        "parallelize_module make DTensors of parameters.",
    ),
    (
        r"Mesh should not be bigger than default world size",
        "The product of the mesh's dimensions is more than the number of ranks: launch more ranks, "
        "or compute a dimension from dist.get_world_size().",
    ),
    (
        r"FSDP expects uniform original parameter dtype|Must flatten tensors with uniform dtype",
        "The parameters that one call shards together need one dtype. Shard the layers of another "
        "dtype by themselves first; for mixed precision, keep all in float32 and pass a "
        "mixed-precision policy.",
    ),
    (
        r"^TypeError: Invariant encountered: value was None when it should not be",
        "If this is fully_shard: call it on the inner layers first and on the whole model last.",
    ),
    (
        r"^RuntimeError: 'weight' must be 2-D",
        "If FullyShardedDataParallel wraps the model: call the wrapped model itself, because its "
        "layers gather no parameters when they are called alone.",
    ),
    (
        r"fully_shard does not support containers that do not implement forward",
        "Shard what the container holds instead: for layer in layers: fully_shard(layer).",
    ),
    (
        r"parameters should be materialized from meta device before training",
        "Parameters on the meta device have no data. After fully_shard, call "
        "model.to_empty(device=device) on every rank, then initialize them or load a checkpoint.",
    ),
    (
        r"(?:FileNotFoundError|CalledProcessError).*'(?:nvidia-smi|nvcc)",
        "This program comes with NVIDIA's driver or CUDA, and asks a GPU. Ask torch.cuda, or leave "
        "it out where there is no GPU.",
    ),
    (
        rf"No module named '{OF_GPUS}",
        "This package runs on GPUs, or asks them. Where it is missing, use PyTorch's own "
        "operations, such as scaled_dot_product_attention.",
    ),
    (
        r"FileNotFoundError.*: '(?![/\\]|[A-Za-z]:|nvidia-smi|nvcc)",
        "Relative paths start at the folder of the notebook or the terminal that launched.",
    ),
    (
        r"attempted relative import",
        'A file that runs by its path is in no package. launch("-m", "package.module") runs it as '
        "`python -m` does.",
    ),
    (
        rf"(?:ModuleNotFoundError|ImportError)(?!.*named '{OF_GPUS})",
        "Is it installed? The ranks import from the same folders (sys.path) as the process that "
        "launched them, and a script also from its own folder.",
    ),
    (
        r"EOFError: EOF when reading a line|^BdbQuit",
        "A rank has no keyboard: input() and breakpoint() cannot work there. Pass the value "
        "instead, or print it.",
    ),
    (
        r"^TooLargeToSend",
        f"The worker itself finished. {RETURN_LESS}",
    ),
    (
        r"^Unsendable",
        "The worker itself finished; return plain numbers, strings, lists, dicts or tensors.",
    ),
    (
        r"PicklingError|[Cc]an(?:no|')t (?:pickle|get local object)",
        "Objects travel between processes as pickles: numbers, strings, lists, dicts, tensors, and "
        "functions or classes by their name in a module. A lambda, a function inside another one, "
        "a generator, a lock or an open file cannot travel: send what it is made of.",
    ),
    (
        r"Connection closed by peer|Connection reset by peer|Broken pipe",
        "A collective needs every rank of its group: all must call it equally often, and none may "
        "leave before it ends.",
    ),
]
LOCAL_RANK = (
    'Neither torchrun nor launch passes --local_rank: read int(os.environ["LOCAL_RANK"]) instead.'
)
COMMAND_LINE = (
    'Pass a script\'s arguments as launch("train.py", "--epochs", "3"), a cell\'s as '
    "`%%ranks 2 -- --epochs 3`. A worker function has no command line."
)
USE_SUBPROCESS = (
    "exec replaces the whole rank, so nothing can report how it ended. Start the program with "
    "subprocess.run instead."
)
USAGE = re.compile(r"^\s*usage:", flags=re.I | re.M)  # of argparse, click and typer
NAMES_OF_A_CELL = (
    "A rank is a new process. It knows what its own file or cell defines and imports, but "
    "nothing from other cells."
)
EARLY_EXIT = (
    "The process exited before the worker had returned: os._exit does that, or exit in compiled "
    "code. Return from the worker instead, or raise an error that says what is wrong."
)
UNKNOWN_LOCAL_RANK = re.compile(r"error\W.*--local[-_]rank\b", flags=re.I | re.S)
TWO_CALLS = (
    "gloo aborts a process that receives a message of the wrong size. These ranks stand at "
    "different lines, so two different calls met. Does one rank run more steps, leave the loop "
    "early, or evaluate alone?"
)
ALL_RANKS = "A collective needs every rank of its group: each must call it."
UNDER_AN_IF = f"{ALL_RANKS} Is it under an `if`, or after a `return`?"
SAME_ORDER = "Every rank must call the same collectives in the same order."
PAIRS = (
    "Each send needs a recv on the other rank. Write down for each rank what it sends and "
    "receives, in order: two ranks that both send first, or both receive first, can wait forever."
)
UNLIKE_TENSORS = "The ranks make the same call with different shapes or dtypes. Which are they?"
UNLIKE_ARGUMENTS = (
    "All ranks are in the same call. Do they agree on its arguments, such as src and group?"
)
WHILE_HANDLING = (
    "{who} waited for other ranks while handling an error that they do not know of. An `except`, a "
    "`finally` and the end of a `with` must not wait for ranks that do not get there."
)
LOOP = "What ends the loop around this line, and does it ever happen?"
NO_LOOP = "What does this line wait for, or how long does it compute?"
COMPILES = (
    "torch.compile is still compiling this line, as it does on the first call and again for new "
    "shapes. That can take a minute."
)
OWN_PROCESSES = (
    "This line waits for processes that the worker started. The launch itself starts "
    "the ranks: give it the function that they run."
)
OF_PROCESSES = tuple(
    os.sep + file.replace("/", os.sep)
    for file in ("multiprocessing/process.py", "torch/multiprocessing/spawn.py")
)
NO_LINE = "What runs outside of the worker's own lines: a thread, a process, a signal?"
NOT_YET_WORKING = frozenset({State.STARTING, State.IMPORTING})
TAKE_LONGER = (
    "Work that only takes longer needs a longer timeout: timeout=300, in a cell --timeout 300."
)
FOR_SIGNALS = {
    -signal.SIGBUS: "SIGBUS: memory that belongs to a file was not there. /dev/shm, where "
    "DataLoader workers put batches, may be full, or a mapped file has become shorter.",
    -9: "SIGKILL comes from outside. If nobody sent it, the system ran out of memory: use fewer "
    "ranks or smaller tensors.",
    -11: "A crash in compiled code, not in Python. If TORCH_DISTRIBUTED_DEBUG is DETAIL, torch "
    "2.13 itself crashes with DDP on gloo: use INFO.",
    -15: "SIGTERM: something asked the process to end, such as a job scheduler at its time limit.",
}


def for_error(kind: str, reason: str, file: str = "") -> str:
    """Advice for a Python error of type `kind`, whose text `reason` may begin with the type.

    `file` is where the reader's line stands that raised it.
    """
    text = reason if reason.startswith(kind) else f"{kind}: {reason}"
    known = next((sentence for pattern, sentence in FOR_ERRORS if re.search(pattern, text)), "")
    if known:
        return known
    return NAMES_OF_A_CELL if kind == "NameError" and is_cell(file) else ""


def for_exit(lines: Sequence[str]) -> str:
    """Advice for a worker that left by SystemExit after it had printed these lines."""
    text = "\n".join(lines)
    if not USAGE.search(text):
        return ""
    return LOCAL_RANK if UNKNOWN_LOCAL_RANK.search(text) else COMMAND_LINE


def for_death(code: int | None, call: str) -> str:
    """Advice for a rank that ended with exit status `code`, perhaps inside `call`."""
    if code == -6 and call and call != "abort":
        return (
            f"An abort during {call}: gloo ends a process that receives a message of the wrong "
            "size. Either the ranks pass tensors of different shape or dtype, lists of different "
            "length or split sizes that do not match, or two different calls met. Print these and "
            "the call on each rank before it."
        )
    if code is None:
        return ""
    return EARLY_EXIT if code >= 0 else FOR_SIGNALS.get(code, "")


def for_hang(positions: Sequence[Position], mismatches: Sequence[Mismatch]) -> str:
    """Advice for ranks that did not finish; `mismatches` are their calls that do not match."""
    if sentence := for_handled(positions):
        return sentence
    waiting = [p for p in positions if p.communicates]
    present = present_ranks(mismatches)
    elsewhere = [p for p in positions if p.file and not p.communicates and p.rank not in present]
    calls, kinds = {p.call for p in waiting if p.call}, {mismatch.kind for mismatch in mismatches}
    if not waiting and not mismatches:
        on_their_way = any(p.state in RESULT_STATES for p in positions)
        if not elsewhere:
            if on_their_way:
                return RETURN_LESS
            working = [p for p in positions if not p.ended and p.state not in NOT_YET_WORKING]
            return NO_LINE if working else ""
        return for_lines(elsewhere)
    if elsewhere:
        who = ranks_in_words([p.rank for p in elsewhere]).capitalize()
        absent = PAIRS if only_transfers(waiting, mismatches) else f"{who} did not reach it."
        if all(p.handled_error for p in elsewhere) and not all(p.handled_error for p in waiting):
            absent += f" {'It is' if len(elsewhere) == 1 else 'They are'} handling an error."
        return f"{absent} {for_lines(elsewhere)}"
    if any(p.is_point_to_point for p in waiting) or not (calls or mismatches):
        return PAIRS  # no call: `work.wait()`; the flight records would show a collective
    if Kind.TENSORS in kinds:
        return UNLIKE_TENSORS
    if any(p.ended for p in positions):
        return UNDER_AN_IF
    if mismatches:
        return SAME_ORDER
    return UNLIKE_ARGUMENTS if len(calls) == 1 else ALL_RANKS


def for_handled(positions: Sequence[Position]) -> str:
    """Advice if a rank waited for others while it handled an error that not all have; else "".

    Whether a rank that has returned had the same error, and caught it, is not known.
    """
    failed = [p for p in positions if p.handled_error and not p.handled_error.succeeds]
    handling = [p.rank for p in failed if p.communicates or p.ended]
    shared = all(p.handled_error or p.state is State.RETURNED for p in positions)
    if not handling or shared:
        return ""
    return WHILE_HANDLING.format(who=ranks_in_words(handling).capitalize())


def only_transfers(waiting: Sequence[Position], mismatches: Sequence[Mismatch]) -> bool:
    """True if these ranks wait for a send or a recv of another one, and for nothing else.

    A call without a name is `work.wait()`; if it were a collective's, there would be a mismatch.
    """
    there = [p for p in waiting if p.communicates]
    return bool(there) and all(p.is_point_to_point or not (p.call or mismatches) for p in there)


def for_lines(positions: Sequence[Position]) -> str:
    """Advice for lines that do not end."""
    if any(p.call in ("join", "spawn") and p.source.endswith(OF_PROCESSES) for p in positions):
        return OWN_PROCESSES
    if any(p.state is State.COMPILING for p in positions):
        return COMPILES
    return LOOP if any(in_loop(p.file, p.line) for p in positions) else NO_LOOP


def in_loop(path: str, line: int) -> bool:
    """True if this line of the file is in a `for` or `while`, or is its first line."""
    linecache.checkcache(path)
    try:
        tree = parse_source("".join(linecache.getlines(path)))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
    return any(loop.lineno <= line <= (loop.end_lineno or 0) for loop in loops)
