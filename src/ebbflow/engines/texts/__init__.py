"""Training texts without a dense copy of the table of word vectors per device."""
