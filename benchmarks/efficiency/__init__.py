"""What benchmarks/tuner_efficiency.py is made of: a recorded surface, its replay, contestants."""
