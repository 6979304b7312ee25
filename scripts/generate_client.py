"""Write the blocking twin of the client, src/ability_search/client/blocking.py, anew.

Its methods are those of SearchClient with the same parameters, each run on a loop in a thread.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src" / "ability_search" / "client"
SOURCE, TWIN = CLIENT / "search.py", CLIENT / "blocking.py"

HEAD = '''"""The tools as functions. Written by scripts/generate_client.py; do not edit."""

from __future__ import annotations

{imports}

from ability_search.client.runner import Runner
from ability_search.client.search import DocumentLike, SearchClient


class BlockingSearchClient:
    """A :class:`SearchClient` without ``await``; it also works in notebooks.

    Example:
        with BlockingSearchClient() as search:
            note = {{"source": "n1", "title": "Backups", "content": "They run at two at night."}}
            search.index("notes", [note])
            found = search.query("notes", "when is the data saved?")
            print(found.results[0].content)

    Each method runs the method of the same name on an event loop in a thread, waits for it, and
    raises what that raises.

    Args:
        url: Address of the broker, as for :class:`SearchClient`.
        networks: KADI networks to join; the configured ones if not given.
        timeout: Seconds to wait for an answer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        networks: Sequence[str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._client = SearchClient(url, networks=networks, timeout=timeout)
        self._runner = Runner()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> Self:
        """Connect; does nothing if it is connected."""
        self._runner.start()
        try:
            self._runner.run(self._client.open())
        except BaseException:
            self._runner.stop()
            raise
        return self

    def close(self) -> None:
        """Disconnect; does nothing if it is not connected."""
        if self._runner.running:
            try:
                self._runner.run(self._client.close())
            finally:
                self._runner.stop()
'''


def blocking() -> str:
    """The twin's source, not yet formatted."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    client = next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SearchClient"
    )
    methods = [
        twin(node)
        for node in client.body
        if isinstance(node, ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and node.name not in ("open", "close")
    ]
    imports = [
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and ast.unparse(node) != "from __future__"
        and getattr(node, "module", "") != "__future__"
    ]
    text = HEAD.format(imports="\n".join(imports))
    body = "\n\n".join(textwrap.indent(method, "    ") for method in methods)
    return f"{text}\n{body}\n".replace("AsyncIterator", "Iterator")


def twin(method: ast.AsyncFunctionDef) -> str:
    """The method that waits for this one."""
    arguments = method.args
    passed = [argument.arg for argument in arguments.args[1:]]
    passed += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        passed.append(f"**{arguments.kwarg.arg}")
    assert method.returns is not None
    several = ast.unparse(method.returns).startswith("AsyncIterator")
    run = "each" if several else "run"
    call = f"return self._runner.{run}(self._client.{method.name}({', '.join(passed)}))"
    doc = re.sub(r"\bawait |\basync (?=for )", "", ast.get_docstring(method, clean=False) or "")
    function = ast.FunctionDef(
        name=method.name,
        args=arguments,
        body=[ast.Expr(ast.Constant(doc)), *ast.parse(call).body],
        decorator_list=[],
        returns=method.returns,
        lineno=0,
    )
    return ast.unparse(ast.fix_missing_locations(function))


def formatted(text: str) -> str:
    """As the project formats its sources, without imports that are not used."""
    for command in (
        ["check", "--quiet", "--fix", "--select", "F401,I", "--stdin-filename", str(TWIN), "-"],
        ["format", "--quiet", "--stdin-filename", str(TWIN), "-"],
    ):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


if __name__ == "__main__":
    TWIN.write_text(formatted(blocking()), encoding="utf-8")
