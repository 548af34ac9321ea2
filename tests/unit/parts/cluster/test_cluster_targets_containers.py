"""An image that is fetched is named by its hash, wherever azq names one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from azq.errors import ConfigError
from azq.parts.cluster.description import read_cluster
from azq.parts.cluster.targets.registry import render

ROOT = Path(__file__).parents[4]
BOX = read_cluster(ROOT / "ops" / "clusters" / "box.toml")
BY_HASH = "registry.example:5000/team/azq@sha256:" + "0a" * 32


def images_in(node):
    """Every `image` of a document, with whether anybody fetches it."""
    if isinstance(node, dict):
        if "image" in node:
            yield node["image"], "never" not in (node.get("pull_policy"), str(node.get("imagePullPolicy")).lower())
        yield from (found for name, each in node.items() if name != "<<" for found in images_in(each))
    elif isinstance(node, list):
        yield from (found for each in node for found in images_in(each))


@pytest.mark.parametrize("image", ["", BY_HASH], ids=["built here", "by hash"])
@pytest.mark.parametrize("target", ["compose", "kubernetes"])
def test_nobody_fetches_an_image_by_its_tag(target, image):
    files = render(BOX.model_copy(update={"image": image}), target)
    documents = [one for name, file in files.items() if name.endswith(".yaml") for one in yaml.safe_load_all(file.text)]
    named = {f"{each['newName']}@{each['digest']}" for one in documents for each in one.get("images", []) if "digest" in each}
    found = {(*named, name)[0] if name == "azq" else name for one in documents for name, fetched in images_in(one) if fetched}
    assert found == ({image} if image else set())


@pytest.mark.parametrize("image", ["azq:0.1.0", "registry.example/azq", "registry.example/azq@sha256:12"])
def test_a_tag_is_refused(tmp_path, image):
    file = tmp_path / "cluster.toml"
    text = (ROOT / "ops" / "clusters" / "box.toml").read_text()
    file.write_text(text.replace("[cluster]\n", f'[cluster]\nimage = "{image}"\n', 1))
    with pytest.raises(ConfigError, match=r"cluster\.toml: image"):
        read_cluster(file)


def test_no_file_of_the_repository_names_an_image_without_its_hash():
    """Containerfiles and YAML; a stage, a variable and azq's own name in a kustomization are none."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [ROOT / name for name in names if re.search(r"(?i)(containerfile|dockerfile|\.ya?ml)$", name)]
    assert any(file.name == "Containerfile" for file in files)
    told = [found for file in files for found in re.findall(r"(?im)^\s*(?:from|arg base=|-?\s*image:)\s*(\S+)", file.read_text("utf-8"))]
    assert [name for name in told if not re.search(r"@sha256:[0-9a-f]{64}$|^(\$\{BASE\}|\$image|azq)$", name)] == []
