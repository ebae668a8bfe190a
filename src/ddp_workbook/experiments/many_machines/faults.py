"""What goes wrong between nodes and needs nodes of its own: recorded, with what to do."""

import json
import re

import pandas as pd

from ddp_workbook.experiments.many_machines.launchers import RECORDED

# Of the recorded ones: those that a laptop cannot show, and what to do about them.
RECORDED_ADVICE = {
    "wrong_interface": "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME: the one that the others can reach",
    "own_name_is_loopback": "the same variable, or the node's real address in its /etc/hosts",
    "head_does_not_know_itself": "the endpoint is what hostname prints there, if the others can "
    "resolve it; or --rdzv-conf is_host=1 there, is_host=0 on the others",
    "head_never_comes": "start the node that --rdzv-endpoint names; look for a firewall",
    "port_taken_in_silence": "another port, found free when the job starts",
    "standalone_on_both": "--nnodes and --rdzv-endpoint in place of --standalone",
    "host_cut_off": "nothing: start again from what was saved; keep the group's timeout short",
    "mixed_versions": "one environment for all nodes: that it works here is luck",
}
NO_ERROR = {
    "port_taken_in_silence": "none: both nodes wait",
    "standalone_on_both": "none: each rank says that it is rank 0 of 1",
    "mixed_versions": "none: {torch}",
}


def recorded() -> pd.DataFrame:
    """Faults that need nodes of their own, as tests/clusters/record_messages.py recorded them."""
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
    """All recorded faults: what was typed, said and how long it took, by node."""
    return json.loads((RECORDED / "messages.json").read_text(encoding="utf-8"))


def key_sentence(fault: dict) -> str:
    """From the words that tell the fault to the end of their line, without a random port."""
    said = "\n".join(fault["message"].values())
    sentence = fault["key"] and said[said.index(fault["key"]) :].partition("\n")[0]
    return re.sub(r"\]:\d+\$\d+", "]", sentence)  # gloo writes port$attempt
