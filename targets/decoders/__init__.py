"""What targets for decoders share: the cache in the graph, the folder's settings and tokenizer, tokens compared."""
