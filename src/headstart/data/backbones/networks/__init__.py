"""One network a file. `forward` gives features, `logits` the ImageNet classes; names and shapes of
the tensors are those of the published files."""
