"""What mkdocs does beyond its configuration: pages that are generated join the navigation where they exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

GENERATED = {
    "Theorems": "THEOREMS.md",
    "Trusted base": "trusted_base.md",
    "Permute planning": "permute_planning.md",
    "Permute performance": "permute_performance.md",
}


def on_config(config: Any) -> Any:
    """Append the generated pages to the navigation."""
    docs = Path(config["docs_dir"])
    config["nav"].extend({title: page} for title, page in GENERATED.items() if (docs / page).is_file())
    return config
