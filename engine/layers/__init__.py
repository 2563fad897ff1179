"""Building blocks of the decoder: linear maps, normalisation, rotary tables."""
