"""Benchmarks: speed and memory figures of the product, each against a baseline in the same run."""
