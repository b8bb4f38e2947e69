"""Compiled kernels of unknown sizes: matrices of any M and N, any grid that is large enough.

Bit-vectors decide nothing once unknowns are multiplied, so here registers hold integers: polynomials in the thread's
and the block's index and in the sizes, exact up to multiples of 2^width (``words``, ``poly``).  Wherever an instruction
depends on more than that, it is first proved that nothing wrapped.  Products of unknowns stay uninterpreted; the solver
learns instances of a lemma about them (``facts``).  What depends on the thread index alone, such as every address in
shared memory, is not proved but evaluated for all threads of a block (``shared``).

``execute`` runs a kernel, loops of unknown length by induction (``loops``); ``events`` is what it leaves behind, and
``order`` says what the barriers there order.  ``setting`` turns a family of claims into facts, ``contents`` follows
elements from the output back to the input, ``witness`` finds numbers that show a mistake and checks them by arithmetic,
``check`` states the obligations, ``samples`` executes a few sizes as a second opinion.
"""
