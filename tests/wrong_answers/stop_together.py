# %% the handler raises
# told: rank 3 left after step 2
# told: By what does each decide whether to leave
# right at: 1
class Stop(Exception):
    pass


def stop_together(step, steps):
    def stop(number, frame):
        raise Stop

    signal.signal(signal.SIGUSR1, stop)
    done = 0
    try:
        for _ in range(steps):
            step()
            done += 1
    except Stop:
        pass
    return done


# %% leaves before it tells the others
# told: entered by ranks 0, 1 and 2, never by rank 3
# told: also a rank that has heard
# right at: 1
edit("        told = torch", "        if heard:\n            return done\n        told = torch")

# %% a handler for the other signal
# told: SIGUSR1
# told: Without a handler this signal ends the process
edit("signal.SIGUSR1", "signal.SIGTERM")

# %% exits in the handler
# told: ends the whole process
edit("heard.append(number)", "exit(0)")

# %% tells the others with a barrier
# told: entered by rank 3, never by ranks 0, 1 and 2
# told: also a rank that has heard
# right at: 1
edit(
    "        dist.all_reduce(told)\n        if told > 0:",
    "        if heard:\n            dist.barrier()",
)
