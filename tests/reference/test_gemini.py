"""What Gemini's API is sent of a tool's result, by the real client of Google behind Pydantic AI."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source import package_folder
from tests.programs import ran
from tests.reference.servers import INSTALLED

pytestmark = [pytest.mark.reference, pytest.mark.slow]

CLIENT = (str(INSTALLED / "gemini" / "bin" / "python"), str(Path(__file__).parent / "clients" / "gemini.py"))
ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "seen"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}


class Api(ThreadingHTTPServer):
    """An API that notes what it is sent and streams one answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.bodies: list[dict[str, Any]] = []


class _Exchange(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Api)
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        text = f"data: {json.dumps(ANSWER)}\r\n\r\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=10)


@pytest.mark.requirement("C17")
def test_a_picture_of_a_result_is_part_of_its_function_response_and_nothing_else_is_lost(
    api: Api, tmp_path: Path
) -> None:
    # the package that is tested, in the checkout or installed, and nothing of what is installed beside it
    (tmp_path / "toolweave").symlink_to(package_folder(), target_is_directory=True)
    done = ran([*CLIENT, f"http://127.0.0.1:{api.server_port}"], env={"PYTHONPATH": str(tmp_path)})
    assert done.stdout == "seen\n", done.stderr

    (body,) = api.bodies
    _, call, answer, *rest = body["contents"]
    assert call["parts"][0]["functionCall"] == {"id": "call_1", "name": "charts_draw", "args": {}}
    (part,) = answer["parts"]
    response = part["functionResponse"]
    assert (response["id"], response["name"]) == ("call_1", "charts_draw")
    assert response["parts"] == [{"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgpyZXN0"}}]
    said = json.dumps(response["response"])
    assert "a chart" in said
    assert "y (x:/y)" in said
    # Gemini takes no sound in a function's response: it follows as a part of its own
    follows = [one for message in rest for one in message["parts"] if "inlineData" in one]
    assert follows == [{"inlineData": {"mime_type": "audio/wav", "data": "UklGRi4uLi5XQVZF"}}]
