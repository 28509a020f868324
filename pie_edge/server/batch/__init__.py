"""Many requests from a file, answered into another, both in the format of OpenAI's batches."""
