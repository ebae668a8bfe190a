# %% returns the list that was sent
# told: A path is a string
edit("return path", "return told")


# %% only rank 0 comes to the barrier
# told: waits in barrier
# right at: 1
def once_per_run(make_folder):
    folder = None
    if dist.get_rank() == 0:
        folder = make_folder()
        dist.barrier()
    return folder


# %% the box is made once, and holds the path of an earlier run
# told: keep from one call to the next
def once_per_run(make_folder):
    return tell(make_folder)


def tell(make_folder, box=[None]):
    if dist.get_rank() == 0:
        try:
            box[0] = make_folder()
        except Exception as error:
            print(error)
    dist.broadcast_object_list(box, src=0)
    if box[0] is None:
        raise RuntimeError("no folder")
    return box[0]


# %% each rank names itself as the one that sends
# told: broadcast_object_list(told, src=dist.get_rank())
# told: with the same arguments
# right at: 1
edit("src=0", "src=dist.get_rank()")


# %% every rank makes a folder of its own
# told: How many folders does this make
# right at: 1
def once_per_run(make_folder):
    folder = make_folder()
    dist.barrier()
    return folder


# %% sends a path in a buffer of 128 bytes, and cuts off what does not fit
# told: The end of the path is missing
import torch
import torch.distributed as dist


def once_per_run(make_folder):
    sent = torch.zeros(128, dtype=torch.uint8)  # stays empty if there is no folder
    if dist.get_rank() == 0:
        try:
            path = make_folder().encode()[: len(sent)]
            sent[: len(path)] = torch.tensor(list(path), dtype=torch.uint8)
        except Exception:
            sent.zero_()
    dist.broadcast(sent, src=0)
    path = bytes(sent.tolist()).rstrip(b"\0").decode(errors="ignore")
    if not path:
        raise RuntimeError("rank 0 could not make the folder")
    return path


# %% each rank makes up a name from its own clock
# told: Only rank 0 can know this name
# right at: 1
import time

import torch.distributed as dist


def once_per_run(make_folder):
    folder = f"work/runs/{time.time_ns()}"
    if dist.get_rank() == 0:
        folder = make_folder()
    dist.barrier()
    return folder


# %% asks whether there is a message, and an error may have none
# told: What happens to the error that make_folder raised
# told: raises ValueError() on rank 0
edit("repr(error)", "str(error)", "if problem is not None", "if problem")


# %% sends each character as a byte
# told: How many bytes does a character take
import torch
import torch.distributed as dist


def once_per_run(make_folder):
    path, size = "", torch.tensor(-1)
    if dist.get_rank() == 0:
        try:
            path = make_folder()
            size.fill_(len(path))
        except Exception as error:
            print(error)
    dist.broadcast(size, src=0)
    if size < 0:
        raise RuntimeError("no folder")
    letters = torch.tensor([ord(one) for one in path.ljust(int(size))], dtype=torch.uint8)
    dist.broadcast(letters, src=0)
    return "".join(map(chr, letters.tolist()))


# %% catches OSError only
# told: raises ValueError() on rank 0 rank 0 is outside your function
# told: whatever it raises
# right at: 1
edit("except Exception", "except OSError")


# %% the others are sent None, and return it
# told: What was it told
# right at: 1
def once_per_run(make_folder):
    folder = [None]
    try:
        if dist.get_rank() == 0:
            folder[0] = make_folder()
    finally:
        dist.broadcast_object_list(folder, src=0)
    return folder[0]


# %% the others wait, and do not learn the path
# told: How does the other rank learn it
# right at: 1
def once_per_run(make_folder):
    folder = None
    if dist.get_rank() == 0:
        folder = make_folder()
    dist.barrier()
    return folder


# %% sends the folder's name without the folders that it is in
# told: The name is right
# right at: 1
edit(
    "told[0] = make_folder()",
    "folder = make_folder()\n            told[0] = folder.rpartition('/')[2]",
    "return path",
    "return folder if dist.get_rank() == 0 else path",
)


# %% rank 0 raises, and never comes to the broadcast
# told: raises OSError('disk full') on rank 0 rank 0 is outside your function
# told: there will be no folder
# right at: 1
def once_per_run(make_folder):
    folder = [None]
    if dist.get_rank() == 0:
        folder[0] = make_folder()
    dist.broadcast_object_list(folder, src=0)
    return folder[0]


# %% sends the exception, and not every one can be pickled
# told: is full') on rank 0 rank 0 is outside your function
# told: cannot pickle
# told: whatever it raises
# right at: 1
edit("repr(error)", "error")


# %% the others fail over None, with an error that was not meant
# told: does a rank fail because of something
# right at: 1
def once_per_run(make_folder):
    told = [None]
    try:
        if dist.get_rank() == 0:
            told[0] = make_folder()
    finally:
        dist.broadcast_object_list(told, src=0)
    return "" + told[0]


# %% rank 0 catches its error, and nobody hears of it
# told: What happens to the error that make_folder raised
# told: raises OSError('disk full')
edit("told[1] = repr(error)", "print(error)")


# %% rank 0 tries once more after a failure
# told: How often does rank 0 reach the call
def once_per_run(make_folder):
    told = [None, None]
    if dist.get_rank() == 0:
        for _ in range(2):
            try:
                told = [make_folder(), None]
                break
            except Exception as error:
                told[1] = repr(error)
    dist.broadcast_object_list(told, src=0)
    if told[1]:
        raise RuntimeError(told[1])
    return told[0]
