"""Fine-tuning of language models: data, adapters, runs and their records."""
