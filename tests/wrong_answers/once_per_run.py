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
# told: 1 on rank 1
# right at: 1
edit("if dist.get_rank() == 0", "if True")


# %% cuts off what does not fit into a buffer
# told: how do the others get all of it
# told: xxxxx'
edit("return path", "return path[:128]")


# %% asks whether there is a message, and an error may have none
# told: What happens to the error that make_folder raised
# told: raises ValueError() on rank 0
edit("repr(error)", "str(error)", "if problem is not None", "if problem")


# %% loses the characters that are not ASCII
# told: how do the others get all of it
# told: gr??e
edit("return path", "return path.encode('ascii', 'replace').decode()")


# %% catches OSError only
# told: raises ValueError() on rank 0 rank 0 is outside your function
# told: whatever it raises
# right at: 1
edit("except Exception", "except OSError")


# %% only rank 0 looks whether there is a problem
# told: What was it told
# right at: 1
edit("if problem is not None", "if dist.get_rank() == 0 and problem")


# %% the others do not return the path
# told: how do the others get all of it
# told: rank 1: returned None
# right at: 1
edit("return path", "return path if dist.get_rank() == 0 else None")


# %% rank 0 raises, and never comes to the broadcast
# told: raises OSError('disk full') on rank 0 rank 0 is outside your function
# told: there will be no folder
# right at: 1
edit("except Exception", "except KeyError")


# %% sends the exception, and not every one can be pickled
# told: is full') on rank 0 rank 0 is outside your function
# told: cannot pickle
# told: whatever it raises
# right at: 1
edit("repr(error)", "error")


# %% the others fail over None, with an error that was not meant
# told: does a rank fail because of something
# right at: 1
edit(
    "if problem is not None",
    "if dist.get_rank() == 0 and problem",
    "return path",
    "return '' + path",
)


# %% rank 0 catches its error, and nobody hears of it
# told: What happens to the error that make_folder raised
# told: raises OSError('disk full')
edit("told[1] = repr(error)", "print(error)")


# %% rank 0 makes two folders, and returns one of them
# told: How many folders does this make
# told: 2 on rank 0
edit("told[0] = make_folder()", "told[0] = make_folder() and make_folder()")
