# %% only rank 0 comes to the barrier
# told: waits in barrier
# right at: 1
edit("dist.broadcast_object_list(told, src=0)", "dist.get_rank() or dist.barrier()")

# %% each rank names itself as the one that sends
# told: broadcast_object_list(told, src=dist.get_rank())
# told: with the same arguments
# right at: 1
edit("src=0", "src=dist.get_rank()")

# %% every rank makes a folder of its own
# told: How many folders does this make
# told: rank 1: 1
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

# %% sends the exception, and not every one can be pickled
# told: is full') on rank 0 rank 0 is outside your function
# told: cannot pickle
# told: whatever it raises
# right at: 1
edit("repr(error)", "error")
