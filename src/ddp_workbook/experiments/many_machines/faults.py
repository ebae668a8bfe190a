"""What goes wrong between hosts: caused here, or recorded where it needs hosts of its own."""

import json
import os
import re
from typing import NamedTuple

import pandas as pd
import torch.distributed as dist

from ddp_workbook.errors import RankFailed
from ddp_workbook.experiments.many_machines.launchers import (
    LIMIT,
    RECORDED,
    program,
)
from ddp_workbook.launcher.agents import AgentRun, error_of, run_agents
from ddp_workbook.launcher.launch import launch
from ddp_workbook.launcher.rendezvous import LOOPBACK, free_port


class Fault(NamedTuple):
    """Something that goes wrong: what, what was run, the line that tells, and what to do."""

    what: str
    command: str
    message: str
    what_to_do: str


ADVICE = {
    "a name that nobody can resolve": "take the address, or a name that getent hosts knows, on "
    "every host",
    "a host that never comes": "compare the command lines: --nnodes, --rdzv-endpoint and --rdzv-id "
    "must be equal on all hosts",
    "an interface that does not exist": "ip -brief address lists the interfaces; leave the "
    "variable out unless gloo or NCCL picks a wrong one",
}
# The line in a long report that says what is wrong.
TELLING = re.compile(r"gai error[^)]*|Rendezvous\w*TimeoutError.*|Unable to find (?:addr|interf).*")


def what_breaks() -> pd.DataFrame:
    """Cause three mistakes on this machine; each with torch's own words."""
    commands = {
        "a name that nobody can resolve": _two_hosts("no-such-host.invalid:29500", "read", 1),
        "a host that never comes": _two_hosts(f"{LOOPBACK}:{free_port()}", "join", 1),
    }
    lines = {what: [*words, program()] for what, words in commands.items()}
    runs = run_agents(lines, timeout=LIMIT, quiet=True)
    faults = [
        Fault(what, run.command, telling_line(run), ADVICE[what]) for what, run in runs.items()
    ]
    what = "an interface that does not exist"
    command = "two ranks by launch, with GLOO_SOCKET_IFNAME=eth9"
    faults.append(Fault(what, command, _meet_by("eth9"), ADVICE[what]))
    return pd.DataFrame(faults).rename(columns={"what_to_do": "what to do"})


# Of the recorded ones: those that a laptop cannot show, and what to do about them.
RECORDED_ADVICE = {
    "wrong_interface": "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME: the one that the others can reach",
    "own_name_is_loopback": "the same variable, or the host's real address in its /etc/hosts",
    "head_does_not_know_itself": "the endpoint is what hostname prints there, if the others can "
    "resolve it; or --rdzv-conf is_host=1 there, is_host=0 on the others",
    "head_never_comes": "start the host that --rdzv-endpoint names; look for a firewall",
    "port_taken_in_silence": "another port, found free when the job starts",
    "standalone_on_both": "--nnodes and --rdzv-endpoint in place of --standalone",
    "host_cut_off": "nothing: start again from what was saved; keep the group's timeout short",
    "mixed_versions": "one environment for all hosts: that it works here is luck",
}
NO_ERROR = {
    "port_taken_in_silence": "none: both hosts wait",
    "standalone_on_both": "none: each rank says that it is rank 0 of 1",
    "mixed_versions": "none: {torch}",
}


def recorded() -> pd.DataFrame:
    """Faults that need hosts of their own, as tests/clusters/record_messages.py recorded them."""
    by_name = {fault["name"]: fault for fault in records()}
    return pd.DataFrame(
        {
            "what": by_name[name]["what"],
            "message": NO_ERROR.get(name, key_sentence(by_name[name])).format(**by_name[name]),
            "what to do": advice,
        }
        for name, advice in RECORDED_ADVICE.items()
    )


def records() -> list[dict]:
    """All recorded faults: what was typed, said and how long it took, by host."""
    return json.loads((RECORDED / "messages.json").read_text(encoding="utf-8"))


def key_sentence(fault: dict) -> str:
    """From the words that tell the fault to the end of their line, without a random port."""
    said = "\n".join(fault["message"].values())
    sentence = fault["key"] and said[said.index(fault["key"]) :].partition("\n")[0]
    return re.sub(r"\]:\d+\$\d+", "]", sentence)  # gloo writes port$attempt


def _two_hosts(endpoint: str, timeout: str, seconds: int) -> list[str]:
    """torchrun's words for one of two hosts; it waits briefly, in place of minutes."""
    words = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    return [*words, "--rdzv-conf", f"{timeout}_timeout={seconds}"]


def telling_line(run: AgentRun) -> str:
    """The part of torchrun's output that says what is wrong; its last error where none does."""
    found = [match[0] for line in run.lines if (match := TELLING.search(line.text))]
    return found[0] if found else error_of(run.lines)


def _meet_by(interface: str) -> str:
    """What gloo says of a network interface that is not there."""
    try:
        launch(join_by, interface, ranks=2, timeout=LIMIT)
    except RankFailed as failed:
        match = TELLING.search(failed.reason)
        return match[0] if match else failed.reason
    return "no error"


def join_by(interface: str) -> None:
    """A worker that joins a group by this interface, as GLOO_SOCKET_IFNAME asks for."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group("gloo")
    dist.destroy_process_group()
