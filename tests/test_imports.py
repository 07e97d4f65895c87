"""Folders import downward only, and `import skbert` costs nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import skbert

ROOT = Path(skbert.__file__).parent
# From the bottom up: a folder imports from itself and from those before it.
ORDER = ["exceptions", "_version", "text", "nn", "metrics", "model_selection", "encoders",
         "training", "estimators", "inspection"]  # fmt: skip
# The bottom of the house knows nothing of networks, or of models.
FOREIGN = {"text": {"torch", "transformers", "sklearn"}, "nn": {"transformers", "sklearn"}}
FILES = sorted(ROOT.rglob("*.py"))


def imports(path):
    """Modules that a file imports anywhere, under TYPE_CHECKING and in functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide where they go"
            yield node.module
            if node.module == "skbert":
                yield from (f"skbert.{alias.name}" for alias in node.names)


def stage_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward(path):
    stage = stage_of(path)
    if stage == "__init__":
        return
    allowed = ORDER[: ORDER.index(stage) + 1]
    if stage == "text":
        allowed = ["exceptions", "text"]
    for module in imports(path):
        package, _, rest = module.partition(".")
        if package == "skbert" and rest:
            assert rest.split(".")[0] in allowed, f"{stage} imports {module}"
        assert package not in FOREIGN.get(stage, ()), f"{stage} imports {module}"


def test_every_folder_has_its_place():
    assert {stage_of(path) for path in FILES} <= {"__init__", *ORDER}


def test_importing_names_does_not_import_torch():
    """One process, since it starts slowly: it says what is there after each line."""
    lines = [
        "import skbert",
        "skbert.__version__; dir(skbert)",
        "from skbert import BertVectorizer",
        "repr(BertVectorizer(max_length=8))",
    ]
    show = "print({'torch', 'transformers', 'tokenizers'} & set(sys.modules))"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"\n{show}\n".join(["import sys", *lines, ""]),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("set()\n" * 5, "")


def test_every_public_name_is_there():
    for name in skbert.__all__:
        assert getattr(skbert, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        skbert.nothing  # noqa: B018
