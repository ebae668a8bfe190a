"""`hostlist` (python-hostlist) for a job of one node, where it is not installed."""


def expand_hostlist(hosts: str) -> list[str]:
    """The hosts, without ranges such as node[1-4]."""
    return hosts.split(",")
