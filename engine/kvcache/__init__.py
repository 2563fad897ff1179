"""Who holds which KV block, and which blocks can be shared. Bookkeeping only, no tensors."""
