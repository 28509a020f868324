"""From a lowered epilogue to a few kernels, in terms that every shading language shares.

``decompose`` leaves nodes that are elementwise, a reduction of one axis, or an algorithm of their own (sort, nucleus, …);
``planner`` fuses the first two into kernels over rows; a *dialect* writes those in one language. A node's arithmetic is
written once, as an expression of scalar operations (``scalar.py``), and a dialect is a table of how each of the few dozen
scalar operations looks in its language. Algorithms of their own are kernels that each backend has by hand.
"""
