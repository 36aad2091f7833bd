"""Training of text models without a dense copy of the table of word vectors for each device.

- `sample_space`: devices train on coefficients of their own texts (`coefficients`, `device_texts`,
  `sparse`, `loss_gradients`), for algorithms whose hooks are linear (`symbolic`, `combination`);
- `row_sparse`: devices train on the rows of the table that their texts touch, for algorithms whose
  hooks treat every entry by itself (`entrywise`);
- `packed_states`: how devices' states are kept, and `whole_vectors`: how other engines read them.
"""
