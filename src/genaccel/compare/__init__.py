"""Records -> comparisons: like with like, or a sentence that says what differs. No torch here."""
