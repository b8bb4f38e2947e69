"""Contents of whole tensors: every element of every block, from terms that split into a thread's and a block's part."""

from verify.ptx.blocks.contents import Outcome, check_blocks, refusal

__all__ = ["Outcome", "check_blocks", "refusal"]
