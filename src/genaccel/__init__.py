"""genaccel: cheaper generative AI on the accelerator you have, predictions for the one you don't have.

Importing the package loads nothing heavy; torch comes in with the modules that compute.
"""

__version__ = "0.1.0"
