"""How an attendee's news get to the room: into a folder that all share, or to a small server."""

import contextlib
import http.client
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from manyranks.files import write_atomically

READABLE = 0o644  # by the instructor, whatever this account's umask is
TIMEOUT_S = 5.0  # seconds for an answer
ANSWERS = {  # status of the server -> why the news were not taken
    401: "the code is not this room's",
    404: "what answers there is not a room",
    429: "the room has too much to do now",
    503: "the room is full",
}


class Folder:
    """A folder on a disk that all machines share; each attendee has one file in it.

    The file is replaced as a whole by rename, so that no lock is needed, and who reads it on a
    network file system sees an old version or a new one.
    """

    def __init__(self, room: Path, own: str):
        self.room, self.file = room, room / f"{own}.json"

    def put(self, text: str) -> str:
        """Write the news; why not, if that fails, else ""."""
        if not self.room.is_dir():  # do not make it again: it may be a disk that is not mounted now
            return f"{self.room} is not there"
        try:
            own = write_atomically(self.file, text)
            with contextlib.suppress(OSError):  # not every file system has permissions
                own.chmod(READABLE)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def remove(self) -> str:
        """Take the news out of the room; why not, if that fails, else ""."""
        try:
            self.file.unlink(missing_ok=True)
        except OSError as error:
            return error.strerror or str(error)
        return ""


class Server:
    """`ddp-workbook room --serve` on the instructor's machine."""

    def __init__(self, address: str, code: str, own: str):
        self.address, self.code, self.path = address, code, f"/attendees/{own}"

    def put(self, text: str) -> str:
        """Send the news; why they were not taken, else ""."""
        return self._request("PUT", text)

    def remove(self) -> str:
        """Take the news out of the room; why not, if that fails, else ""."""
        return self._request("DELETE")

    def _request(self, method: str, text: str | None = None) -> str:
        """Ask once. Without urllib: no proxy is asked for a machine in the room, no redirect."""
        where = urlsplit(self.address)
        host, port = where.hostname or "", where.port
        if where.scheme == "https":
            secure = ssl.create_default_context()
            asking: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT_S, context=secure
            )
        else:
            asking = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.code}", "Content-Type": "application/json"}
        body = text.encode("utf-8") if text is not None else None
        try:
            asking.request(method, self.path, body, headers)
            answer = asking.getresponse()
            reply = answer.read(1000).decode("utf-8", "replace")
        except ssl.SSLCertVerificationError as error:
            return (
                f"its certificate is not trusted here ({error.verify_message}); if the instructor "
                "gave you a file with it, name that file in the variable SSL_CERT_FILE"
            )
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return f"nothing answers there as a room does ({reason})"
        finally:
            asking.close()
        if answer.status in (200, 204):
            return ""
        return reply if answer.status == 400 else ANSWERS.get(answer.status, "it refused the news")


def readable_address(address: str) -> str:
    """The address as it is asked, such as http://192.168.1.20:8765.

    Raises ValueError, in words, if it is none.
    """
    text = str(address).strip().rstrip("/")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it begins with http:// or https://, and a name or number follows")
    if parts.path or parts.query or parts.fragment or parts.username or parts.password:
        raise ValueError("nothing stands after the port, and no name before the machine's")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("its port is a number from 1 to 65535") from None
    return text
