"""One module per page. A page asks, lays out and returns; figures come from tuner and storage."""
