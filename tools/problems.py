"""What can go wrong while setting up, each in one sentence that says what to do."""

import re

NETWORK = "network"
NOT_FOUND = "not found"

# In this order: a full disk also makes downloads fail, and a retry that fails ends as "not found".
_KINDS = [
    ("space", r"No space left on device|Errno 28|os error 28"),
    ("quota", r"Disk quota exceeded|Errno 122|os error 122"),
    ("certificate", r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|UnknownIssuer"),
    (
        NETWORK,
        r"Retrying \(|NewConnectionError|Failed to establish|name resolution|not known|timed out"
        r"|ProxyError|Connection (?:reset|refused|aborted|broken)|error sending request|dns error",
    ),
    ("read only", r"Read-only file system|Permission denied|Errno 13\b|Errno 30\b"),
    (
        NOT_FOUND,
        r"No matching distribution|Could not find a version|ResolutionImpossible|No solution found",
    ),
]

_SENTENCES = {
    "space": "The disk is full: make room where .venv is, or where TMPDIR points, and run this "
    "again.",
    "quota": "Your disk quota is used up: make room, or put this folder on a larger file system, "
    "and run this again.",
    "certificate": "{what} could not be fetched, because this network's certificate is not "
    "trusted: set PIP_CERT and SSL_CERT_FILE to its certificate file and run this again.",
    NETWORK: "{what} could not be fetched, because the package index does not answer: check the "
    "network (and HTTPS_PROXY, if this network needs a proxy) and run this again.",
    "read only": "{what} could not be written: this folder, or what is in .venv, belongs to "
    "someone else or is read-only.",
    NOT_FOUND: "{what} was not found for this Python and this machine in the package index that "
    "pip uses here (pip config list shows which).",
}


class Problem(Exception):
    """Something the user can mend; its text is the one sentence they see."""


class InstallerFailed(Problem):
    """pip or uv failed; `kind` says in which way, None if it is none of the known ones."""

    def __init__(self, what, words, log):
        self.kind = next((kind for kind, sign in _KINDS if re.search(sign, words)), None)
        sentence = _SENTENCES.get(self.kind, "{what} could not be installed: " + last_words(words))
        super().__init__(f"{sentence.format(what=what)} (Log: {log})")


def last_words(words):
    """The last line of an installer's output that carries a message, as part of a sentence."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"(?i)error", line)] or lines or ["no reason given."]
    return re.sub(r"[{}]", "", told[-1])
