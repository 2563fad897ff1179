"""Fused CPU kernels, compiled once on this machine; without a compiler the engine uses torch."""
