"""Sampling: the right distribution, the filters' edges, and independence from the batch."""

from __future__ import annotations

import math

import pytest
import torch

from engine.sampling import filters
from engine.sampling.sampler import Sampler
from engine.sampling_params import SamplingParams
from engine.scheduler.plan import ScheduledSeq

EOS = 3


def share(sampling: SamplingParams, seq_id: int = 0, num_output_tokens: int = 0) -> ScheduledSeq:
    return ScheduledSeq(seq_id, 5, (1,), (0,), True, sampling, num_output_tokens)


def sampler() -> Sampler:
    return Sampler(engine_seed=7, eos_token_ids=frozenset({EOS}))


def draws(logits: torch.Tensor, sampling: SamplingParams, count: int) -> list[int]:
    shares = [share(sampling, num_output_tokens=position) for position in range(count)]
    return sampler().sample(logits.repeat(count, 1), shares)


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def test_greedy_takes_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0], [5.0, 2.0, 1.0, -1.0]])
    greedy = SamplingParams(temperature=0)
    assert sampler().sample(logits, [share(greedy), share(greedy)]) == [1, 0]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (SamplingParams(seed=1), (0.5, 0.3, 0.15, 0.05)),
        (SamplingParams(seed=1, top_k=2), (0.625, 0.375, 0, 0)),
        (SamplingParams(seed=1, top_p=0.79), (0.625, 0.375, 0, 0)),
        (SamplingParams(seed=1, top_p=0.81), (0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0)),
        (SamplingParams(seed=1, top_p=0.001), (1, 0, 0, 0)),
        (SamplingParams(seed=1, top_k=3, top_p=0.84), (0.625, 0.375, 0, 0)),
        (SamplingParams(seed=1, top_k=99), (0.5, 0.3, 0.15, 0.05)),
        (SamplingParams(seed=1, temperature=0.5), (0.6849, 0.2466, 0.0616, 0.0068)),
        (SamplingParams(seed=1, temperature=1e-30), (1, 0, 0, 0)),
    ],
)
def test_frequencies_follow_the_filtered_distribution(
    sampling: SamplingParams, expected: tuple[float, ...]
) -> None:
    """Within 4.5 standard errors of each probability; a filtered token never comes."""
    count = 4000
    tokens = draws(logits_of(0.5, 0.3, 0.15, 0.05), sampling, count)
    for token, probability in enumerate(expected):
        error = math.sqrt(probability * (1 - probability) / count)
        assert abs(tokens.count(token) / count - probability) <= 4.5 * error


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(seed=5),
        SamplingParams(seed=5, temperature=0.7, top_p=0.9),
        SamplingParams(seed=5, temperature=1.3, top_k=40),
        SamplingParams(temperature=0),
    ],
)
def test_a_token_does_not_depend_on_its_batch(sampling: SamplingParams) -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 5000) * 3
    alone = sampler().sample(logits.clone(), [share(sampling, 9, 4)])
    others = [
        share(SamplingParams(temperature=0), 1, 2),
        share(SamplingParams(seed=1, top_k=3), 2, 4),
        share(SamplingParams(temperature=2.0, top_p=0.99), 3),
        share(SamplingParams(min_tokens=9), 4),
    ]
    batch = torch.cat([torch.randn(4, 5000), logits])
    assert sampler().sample(batch, [*others, share(sampling, 9, 4)])[-1:] == alone


def test_a_seed_repeats_and_differs_by_position_and_seed() -> None:
    flat = torch.zeros(1, 1000)
    first = draws(flat, SamplingParams(seed=11), 20)
    assert first == draws(flat, SamplingParams(seed=11), 20)
    assert first != draws(flat, SamplingParams(seed=12), 20)
    assert len(set(first)) > 15


def test_unseeded_requests_differ_from_each_other_and_repeat_with_the_engine() -> None:
    flat = torch.zeros(8, 1000)
    shares = [share(SamplingParams(), seq_id) for seq_id in range(8)]
    tokens = sampler().sample(flat.clone(), shares)
    assert len(set(tokens)) > 5
    assert tokens == sampler().sample(flat.clone(), shares)


def test_negative_and_huge_seeds_are_accepted() -> None:
    draws(torch.zeros(1, 10), SamplingParams(seed=-1), 1)
    draws(torch.zeros(1, 10), SamplingParams(seed=2**80), 1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_end_before_min_tokens(temperature: float) -> None:
    """Neither EOS nor a stop token among the first min_tokens tokens, then they may come."""
    logits = torch.tensor([[0.0, -50.0, 30.0, 40.0]])
    sampling = SamplingParams(temperature=temperature, min_tokens=2, stop_token_ids=(2,))
    tokens = [
        sampler().sample(logits.clone(), [share(sampling, num_output_tokens=position)])[0]
        for position in range(3)
    ]
    assert tokens == [0, 0, EOS]


def test_a_wide_nucleus_is_sorted_whole() -> None:
    """Beyond the first candidates the nucleus is as large as top_p says."""
    vocab = 4 * filters.NUCLEUS_CANDIDATES
    kept = filters.filtered(torch.ones(1, vocab), [0], [0.75])
    assert int((kept.weights > 0).sum()) == 3 * filters.NUCLEUS_CANDIDATES


def test_candidates_give_the_nucleus_of_the_whole_vocabulary() -> None:
    torch.manual_seed(1)
    weights = (torch.randn(3, 20_000) * 4).exp()
    quick = filters.filtered(weights, [0, 5, 3000], [0.9, 0.5, 0.8])
    for row, (top_k, top_p) in enumerate(((20_000, 0.9), (5, 0.5), (3000, 0.8))):
        ordered, ids = weights[row].sort(descending=True)
        ordered = ordered[:top_k].double()
        before = ordered.cumsum(0) - ordered
        expected = ids[:top_k][before < top_p * ordered.sum()]
        assert quick.token_ids[row][quick.weights[row] > 0].tolist() == expected.tolist()
