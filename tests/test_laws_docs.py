"""The page of theorems says what the laws say."""

from __future__ import annotations

import re
from pathlib import Path

from verify.laws import all_laws
from verify.theorems import theorems
from verify.verdict import Proved

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_page_of_theorems_is_up_to_date():
    """Its verdicts come from a run; the statements, scopes and mutants must be those of the laws now."""
    text = (DOCS / "THEOREMS.md").read_text(encoding="utf-8")
    assert text == theorems([(law, Proved(law.scope)) for law in all_laws()]), (
        "stale: python -m verify laws --markdown docs/THEOREMS.md"
    )


def test_the_page_of_what_proofs_rest_on_names_existing_laws_and_files():
    text = (DOCS / "trusted_base.md").read_text(encoding="utf-8")
    names = {law.name.partition(".")[2] for law in all_laws()}
    for lemma in ("lemma_divmod", "lemma_range", "lemma_positive", "divmod_exists", "divmod_is_unique", "span_step",
                  "digits_cover_all", "unique_head", "longest_run", "repeated_run", "merging_keeps_boundaries",
                  "greedy_step", "concatenate"):  # fmt: skip
        assert f"`{lemma}`" in text
        assert lemma in names
    for path in re.findall(r"`((?:verify|layoutalg)/[\w/]+\.py)`", text):
        assert (DOCS.parent / path).is_file(), path
