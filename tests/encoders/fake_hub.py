"""A hub of one repository on the loopback, which counts what is asked of it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class FakeHub:
    """Serves the files of a folder as the repository ``name``, at one commit."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.commit = "c0ffee" + "0" * 34
        self.requests: list[tuple[str, str]] = []
        self.address = ""

    def files(self) -> list[str]:
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)

    def fetched(self) -> list[str]:
        """Files whose content was sent."""
        marks = [path.split(f"/resolve/{self.commit}/") for _, path in self.gets()]
        return sorted(mark[1] for mark in marks if len(mark) == 2)

    def gets(self) -> list[tuple[str, str]]:
        return [request for request in self.requests if request[0] == "GET"]

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body, as huggingface_hub expects them."""
        self.requests.append((method, path))
        api = f"/api/models/{self.name}"
        if path == api or path.startswith(f"{api}/revision/"):
            siblings = [{"rfilename": file} for file in self.files()]
            info = {"id": self.name, "sha": self.commit, "siblings": siblings}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        if path.startswith(f"{api}/tree/"):
            tree = [
                {
                    "type": "file",
                    "path": file,
                    "size": (self.folder / file).stat().st_size,
                    "oid": self._digest(file),
                }
                for file in self.files()
            ]
            return 200, {"Content-Type": "application/json"}, json.dumps(tree).encode()
        repository, _, rest = path.partition("/resolve/")
        file = rest.partition("/")[2]
        if repository == f"/{self.name}" and file in self.files():
            headers = {"ETag": f'"{self._digest(file)}"', "X-Repo-Commit": self.commit}
            return 200, headers, (self.folder / file).read_bytes()
        known = self.name in path
        code = "EntryNotFound" if known else "RepoNotFound"
        return (404 if known else 401), {"X-Error-Code": code}, b""

    def _digest(self, file: str) -> str:
        return hashlib.sha1((self.folder / file).read_bytes()).hexdigest()


@contextmanager
def serve(name: str, folder: Path) -> Iterator[FakeHub]:
    hub = FakeHub(name, folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            path = unquote(urlsplit(self.path).path)
            status, headers, body = hub.answer(self.command, path)
            self.send_response(status)
            for header, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(header, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_GET = do_HEAD = respond

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
