"""Workers that lack something: memory, or an object that can travel."""

import os
import threading

import torch
import torch.distributed as dist


def gathers_a_lambda():
    gather(lambda: 1)


def gathers_a_generator():
    gather(one for one in ())


def gathers_a_lock():
    gather(threading.Lock())


def gather(thing: object) -> None:
    dist.init_process_group("gloo")
    dist.all_gather_object([None, None], thing if dist.get_rank() == 1 else 1)


def runs_out_of_memory():
    raise MemoryError


def allocates_too_much():
    torch.empty(10**15)


def exits():
    os._exit(3)
