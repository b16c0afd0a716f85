"""Post-training quantization: sensitivity -> plan -> smaller model -> checkpoint. Start with ``paper.py``."""
