"""Does the advice of the diagnosis hold up? One knob turned, before against after, proved.

`proposal` says what is turned, `watch` reads both sides' signals, `predict` what is to be expected
and why, `proof` measures pairs until decided, `history` what became of earlier advice.
"""
