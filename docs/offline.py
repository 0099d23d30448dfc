"""A hook of MkDocs: the built site may load nothing from a network, so that it works from a disk without one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)|"
                    r"<link\b(?![^>]*\brel=[\"']?canonical)[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)|"
                    r"url\([\"']?((?:https?:)?//[^\"')]+)")  # fmt: skip
"""What a browser loads by itself; links that a reader may follow are none of it."""


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Refuse a site that loads something from a network.

    Raises:
        PluginError: names the file and the address.
    """
    site = Path(config.site_dir)
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for found in LOADED.finditer(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.relative_to(site)} loads {next(filter(None, found.groups()))} from a network")
