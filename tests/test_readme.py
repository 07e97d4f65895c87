"""The README's commands are what continuous integration runs, and its names exist."""

import re
import subprocess
from pathlib import Path

import pytest

import skbert

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def command_of(name):
    found = re.search(rf"<!-- {name} -->\n```bash\n(.+)\n```", README)
    assert found, f"README has no command {name!r}"
    return found.group(1)


def test_ci_runs_the_readme_commands():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    function = re.search(r"^readme\(\) \{.*?^\}", script, re.DOTALL | re.MULTILINE).group()
    assert "for name in quickstart tests; do" in script
    for name in ("quickstart", "tests"):
        shown = subprocess.run(
            ["bash", "-c", f"{function}\nreadme {name}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        assert shown == command_of(name)


def test_readme_names_every_public_estimator():
    for name in skbert.__all__:
        if not name.startswith("_"):
            assert f"`{name}`" in README


@pytest.mark.parametrize("extra", ["minilm", "plot", "elmo", "word2vec", "test", "dev"])
def test_extras_exist(extra):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
