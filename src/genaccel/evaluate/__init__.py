"""What a model is worth: perplexity by a named protocol, and tokens per second."""
