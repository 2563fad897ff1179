"""Finding the best configuration: space, sweep, joint search, confirmation, decision."""
