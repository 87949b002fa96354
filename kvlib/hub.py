"""The one door to the network: a config from the Hugging Face Hub, fetched only when it is asked for by name.

It needs the package ``huggingface_hub`` (``pip install huggingface_hub``) and runs no code of the model's repository.
"""

from __future__ import annotations

import json
import re

from .errors import ConfigError


def download_config(repo_id: str) -> dict:
    """The ``config.json`` of a Hub repository such as ``Qwen/Qwen3-8B``, with ``_name_or_path`` set to its name.

    Raises ConfigError where the name is none, the package is missing, or the Hub does not give the file.
    """
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", str(repo_id)):
        raise ConfigError(f"{str(repo_id)[:60]!r} is not a name on the Hub; write owner/model, as Qwen/Qwen3-8B", field="config")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise ConfigError("downloading needs the package huggingface_hub: pip install huggingface_hub", field="config") from None
    try:
        with open(hf_hub_download(repo_id, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except Exception as problem:  # whatever the network, the Hub or the file says
        said = " ".join(str(problem).split())[:160] or type(problem).__name__
        raise ConfigError(f"the Hub gave no config.json for {repo_id}: {said}", field="config", found=repo_id) from None
    if not isinstance(config, dict):
        raise ConfigError(f"the config.json of {repo_id} is not an object in braces", field="config", found=repo_id)
    return {**config, "_name_or_path": repo_id}
