"""Model families: each a file that reads a checkpoint's facts and traces a Program from them."""
