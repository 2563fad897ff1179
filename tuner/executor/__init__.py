"""One study by several workers on a Ray cluster; only cluster.py imports Ray."""
