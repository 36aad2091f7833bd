"""What theory says of a run: Theorem 1 as printed, our corrected form, and its constants."""
