"""Checks of compiled code: PTX is read, understood instruction by instruction, executed and proved against a claim.

From the text up:

* ``lexer``, ``tree``, ``parse``, ``printer``: text to syntax tree and back;
* ``ops`` (``ops_base``, ``ops_integer``, ``ops_memory``, ``ops_tmem``): the table of operations, each meaning written
  once over the interface of ``domain``; ``domain_numpy`` (with ``floats``) and ``domain_z3`` interpret it;
* ``program``, ``resolve``: names looked up and instructions matched with the table; what is unknown stops here;
* ``concrete``: a kernel run for all threads at once (``launch``, ``memory``, ``machine``, ``accesses``, ``warp``,
  ``tmem``), with records of who touched what (``shadow``) and costs (``statistics``);
* ``symexec`` (with ``symwarp``): one unknown thread executed on solver terms; ``bytewise`` and ``follow`` say where
  bytes go;
* ``check``, ``symbolic`` (with ``expect``): a kernel against a claim, by execution and by proof;
* ``parametric``: a third domain, polynomials in unknown sizes, and kernels against families of claims;
* ``mutate``: wrong kernels, to see that they are refused.
"""
