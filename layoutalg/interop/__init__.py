"""Other ways to write layouts, read and written exactly, or refused with the reason.

* :mod:`~layoutalg.interop.cute`: CuTe layouts, swizzles and compositions, as text and as nested tuples;
* :mod:`~layoutalg.interop.triton`: the bases of Triton's linear layouts;
* :mod:`~layoutalg.interop.encodings`: Triton's encodings: blocked, slice, MMA, dot operand, shared memory;
* :mod:`~layoutalg.interop.tirx`: the fields of TIRx tile layouts and swizzles;
* :mod:`~layoutalg.interop.strides`: strided arrays (numpy, PyTorch, DLPack) and device-mesh placements.

No package of theirs is needed: the forms are plain data, and objects of the packages are read by their fields.
"""
