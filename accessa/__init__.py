import gc

__version__ = "0.1.0"  # of the product and its client; `python -m testing.release` changes it

# The imports make 400,000 objects and no garbage: with the default of 700 collections take a sixth of a start.
gc.set_threshold(50_000, 10, 10)
